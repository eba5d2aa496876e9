"""Fields of JSON objects are what they must be, or one sentence says where they are not."""

import json
import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from longtake.errors import InputError
from longtake.takes.fields import JsonObject, parse_file, read_objects


class Fruit(StrEnum):
    APPLE = "apple"
    PEAR = "pear"


READERS: dict[str, Callable[[JsonObject], Any]] = {
    "integer": lambda record: record.integer("it"),
    "from one": lambda record: record.integer("it", least=1),
    "number": lambda record: record.number("it"),
    "positive": lambda record: record.positive_number("it"),
    "numbers": lambda record: record.numbers("it", 2),
    "integers": lambda record: record.integers("it"),
    "texts": lambda record: record.texts("it"),
    "boolean": lambda record: record.boolean("it"),
    "text": lambda record: record.text("it"),
    "object": lambda record: record.object("it"),
    "objects": lambda record: record.objects("it"),
    "choice": lambda record: record.choice("it", Fruit),
}

WRONG = [
    *[("integer", value) for value in ("-1", "1.5", "true", '"1"', "null", "[1]")],
    ("from one", "0"),
    *[("number", value) for value in ("NaN", "Infinity", "1e999", "1" + "0" * 400, "true", '"1"', "null")],
    *[("positive", value) for value in ("0", "-0.1")],
    *[("numbers", value) for value in ("[1]", "[1, 2, 3]", "[1, null]", "[1, true]", "[1, NaN]", "12", '"12"')],
    *[("integers", value) for value in ("1", "[1.0]", "[0, -1]", "[true]", "[null]", "{}")],
    *[("texts", value) for value in ('"a"', '["a", 1]', "[null]", "{}")],
    *[("boolean", value) for value in ("0", "1", '"true"')],
    *[("text", value) for value in ("1", "[]")],
    *[("object", value) for value in ("1", "[]")],
    *[("objects", value) for value in ("{}", "[1]", "[{}, null]")],
    *[("choice", value) for value in ('"plum"', "1", "[]", "{}")],
]


@pytest.mark.parametrize(("reader", "value"), WRONG)
def test_wrong_value_is_one_sentence_with_its_place(reader: str, value: str) -> None:
    record = JsonObject.parse(f'{{"it": {value}}}'.encode(), "walk/frames.jsonl line 3")
    with pytest.raises(InputError, match=r"as 'it' in walk/frames\.jsonl line 3, but got .*; make the take again\.$"):
        READERS[reader](record)


@pytest.mark.parametrize("reader", READERS)
def test_missing_field_is_one_sentence(reader: str) -> None:
    with pytest.raises(InputError, match="as 'it' in here, but there is none"):
        READERS[reader](JsonObject({}, "here"))


def test_right_values_come_as_what_was_asked_for() -> None:
    fields = {"i": 7, "f": 0.25, "list": [1, 2.5], "b": False, "t": "é", "o": {"x": 1}, "l": [{}], "c": "pear"}
    record = JsonObject.parse(json.dumps(fields).encode(), "here")
    assert record.integer("i") == 7
    assert record.number("f") == record.positive_number("f") == 0.25
    assert isinstance(record.number("i"), float)
    assert record.numbers("list", 2) == (1.0, 2.5)
    assert record.boolean("b") is False
    assert record.text("t") == "é"
    assert record.object("o").integer("x") == 1
    assert len(record.objects("l")) == 1
    assert record.choice("c", Fruit) is Fruit.PEAR
    assert JsonObject({"it": [0, 7]}, "here").integers("it") == (0, 7)
    assert JsonObject({"it": ["a", "b"]}, "here").texts("it") == ("a", "b")


def test_field_within_an_object_is_named_with_both() -> None:
    with pytest.raises(InputError, match="as 'x' in 'o' of here"):
        JsonObject({"o": {"x": "no"}}, "here").object("o").integer("x")


def test_optional_field_may_be_missing_or_null_but_not_wrong() -> None:
    record = JsonObject({"null": None, "wrong": 1}, "here")
    assert record.optional("missing", record.text) is None
    assert record.optional("null", record.text) is None
    with pytest.raises(InputError, match="a text as 'wrong'"):
        record.optional("wrong", record.text)


@pytest.mark.parametrize("text", [b"", b"{", b"nonsense", b"\xff\xfe", b"[" * 100_000, b"[1]", b"null", b"3"])
def test_what_is_no_object_is_one_sentence(text: bytes) -> None:
    with pytest.raises(InputError, match="Expected a JSON object in here, but"):
        JsonObject.parse(text, "here")


def test_list_of_objects_is_read_with_the_place_of_each(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    assert read_objects(path) is None
    assert read_objects(tmp_path / "list.json" / "within") is None
    path.write_text('[{"a": 1}, {"a": "no"}]')
    assert read_objects(path / "within") is None
    first, second = read_objects(path) or []
    assert first.integer("a") == 1
    with pytest.raises(InputError, match=r"as 'a' in entry 2 of .*list\.json"):
        second.integer("a")


@pytest.mark.parametrize("text", ["", "[", "{}", "[1]", "[{}, null]", "[" * 100_000])
def test_what_is_no_list_of_objects_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "list.json").write_text(text)
    with pytest.raises(InputError, match=r"Expected a JSON list of objects in .*list\.json, but"):
        read_objects(tmp_path / "list.json")


def test_a_pipe_in_place_of_a_file_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "take.json")
    with pytest.raises(InputError, match="it is a pipe or a device"):
        parse_file(tmp_path / "take.json", JsonObject.parse)
