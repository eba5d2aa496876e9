"""Plain values as typed records: what fits comes back as it was, all else is a sentence that names the field."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import pytest

from longtake.records import parse_json, record_from


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Inner:
    count: int
    share: float = 0.5


@dataclass(frozen=True, slots=True)
class Outer:
    name: str
    size: tuple[int, int]
    times: tuple[float, ...]
    colour: Colour
    inner: Inner | None
    counts: Mapping[str, int]
    is_done: bool = False


WHOLE = Outer("a", (3, 4), (0.5, 1.0), Colour.RED, Inner(2), {"ok": 1})


def test_a_record_comes_back_from_json_as_it_was() -> None:
    assert record_from(Outer, json.loads(json.dumps(asdict(WHOLE)))) == WHOLE
    assert type(record_from(Outer, asdict(WHOLE)).colour) is Colour


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"name": 3}, "expected a str as 'name', but got 3"),
        ({"size": [3]}, "expected a list of 2 as 'size'"),
        ({"size": [3, True]}, "expected a whole number as 'size.1.'"),
        ({"size": [3, 10**400]}, "expected a whole number as 'size.1.'"),
        ({"times": {}}, "expected a list as 'times'"),
        ({"times": [float("nan")]}, "expected a number as 'times.0.'"),
        ({"colour": "blue"}, "expected 'red' as 'colour'"),
        ({"colour": []}, "expected 'red' as 'colour'"),
        ({"inner": {"share": 1.0}}, "'inner.count' is missing|expected a NoneType as 'inner'"),
        ({"inner": 7}, "'inner'"),
        ({"counts": [1]}, "expected an object as 'counts'"),
        ({"counts": {"ok": "1"}}, "expected a whole number as 'counts.ok'"),
        ({"is_done": 1}, "expected a bool as 'is_done'"),
        ({"mood": 1}, "'mood' is not known"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        record_from(Outer, asdict(WHOLE) | change)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "nothing", b"\xff", ""])
def test_json_that_cannot_be_read_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"nested|column|codec"):
        parse_json(text)
