"""The checks of types under which all other tests run."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from beartype import beartype
from beartype.roar import (
    BeartypeCallHintParamViolation,
    BeartypeCallHintReturnViolation,
    BeartypeDoorHintViolation,
)
from checked import jaxtyped
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from longtake.spatial.pose import matrix_from_quaternion

REFUSED = (
    BeartypeCallHintParamViolation,
    BeartypeCallHintReturnViolation,
    BeartypeDoorHintViolation,
    TypeCheckError,
)
check = jaxtyped(typechecker=beartype)


@check
def repeat(rows: Float[Tensor, "rows columns"], calls: list[int], times: int = 2) -> Float[Tensor, "rows 2*columns"]:
    calls.append(times)
    return rows.repeat(1, times)


@check
def join(first: Float[Tensor, "tokens"], second: Float[Tensor, "tokens"] | None) -> None:
    pass


@check
def fill(size: tuple[int, int], channels: int) -> Float[Tensor, "{size[0]} {size[1]}"]:
    return torch.zeros(size[0], channels)


@check
def count(num_frames: int) -> "str | int":
    return str(num_frames) if num_frames else 0.0  # type: ignore[return-value]


@check
def each(frames: list[Float[Tensor, "frames"]], more: Float[Tensor, "frames"]) -> Iterator[Tensor]:
    yield from frames


@check
@dataclass
class Pair:
    first: Float[Tensor, "tokens"]
    second: Float[Tensor, "tokens"]


def test_right_types_pass() -> None:
    assert repeat(torch.zeros(3, 4), []).shape == (3, 8)
    join(torch.zeros(2), None)
    join(torch.zeros(2), torch.zeros(2))
    assert fill((2, 3), 3).shape == (2, 3)
    assert count(1) == "1"
    assert len(list(each([torch.zeros(2)] * 3, torch.zeros(2)))) == 3
    assert len(Pair(torch.zeros(2), torch.zeros(2)).second) == 2


@pytest.mark.parametrize("bad", [torch.zeros(3), torch.zeros(3, 4, dtype=torch.int64), [1.0]])
def test_wrong_argument_is_refused_before_the_call(bad: object) -> None:
    calls: list[int] = []
    with pytest.raises(REFUSED):
        repeat(bad, calls)  # type: ignore[arg-type]
    assert not calls


def test_an_axis_has_one_size_in_all_arguments_and_the_result() -> None:
    for make in (join, Pair):
        with pytest.raises(REFUSED, match="tokens"):
            make(torch.zeros(2), torch.zeros(3))
    with pytest.raises(REFUSED):
        repeat(torch.zeros(3, 4), [], 3)
    with pytest.raises(REFUSED):
        each([torch.zeros(2)], torch.zeros(3))


@pytest.mark.parametrize("bad", [torch.zeros(2, 8, dtype=torch.int64), torch.zeros(2, 7), None])
def test_what_passed_once_is_checked_again_where_it_differs(bad: object) -> None:
    @check
    def give(rows: Float[Tensor, "rows columns"], result: list[object]) -> Float[Tensor, "rows 2*columns"]:
        return result[0]  # type: ignore[return-value]

    def holding(result: object) -> list[object]:
        return Holder([result])

    for _ in range(2):
        assert give(torch.zeros(2, 4), holding(torch.zeros(2, 8))).shape == (2, 8)
    with pytest.raises(REFUSED):
        give(torch.zeros(2, 4), holding(bad))
    with pytest.raises(REFUSED):
        give(torch.zeros(2, 5), holding(torch.zeros(2, 8)))


class Holder(list[object]):
    """A list whose values the checks do not see, so that only the result differs."""

    def __iter__(self) -> Iterator[object]:
        return iter(())


def test_sizes_that_are_values_and_types_that_are_named_later_are_checked() -> None:
    with pytest.raises(REFUSED):
        fill((2, 3), 4)
    with pytest.raises(REFUSED):
        count(0)


def test_a_result_is_checked_again_where_a_size_is_an_argument() -> None:
    @check
    def give(size: tuple[int, int], result: list[object]) -> Float[Tensor, "{size[0]} {size[1]}"]:
        return result[0]  # type: ignore[return-value]

    for size in ((2, 3), (4, 5), (2, 3)):
        assert give(size, Holder([torch.zeros(size)])).shape == size
    for size in ((2, 3), (3, 2)):
        with pytest.raises(REFUSED):
            give(size, Holder([torch.zeros(4, 5)]))


def test_a_call_within_a_call_has_axes_of_its_own() -> None:
    @check
    def outer(tensor: Float[Tensor, "tokens"]) -> Float[Tensor, "tokens"]:
        join(torch.zeros(9), torch.zeros(9))
        return tensor

    assert len(outer(torch.zeros(2))) == 2


def test_the_package_is_under_these_checks() -> None:
    with pytest.raises(REFUSED):
        matrix_from_quaternion(torch.zeros(2, 3))
