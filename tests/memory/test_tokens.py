"""Three columns that stay aligned, whatever is done to them."""

import numpy as np
import pytest
from beartype.roar import BeartypeCallHintParamViolation
from hypothesis import given
from hypothesis import strategies as st

from longtake.memory.tokens import Tokens


def rows(tokens: Tokens) -> list[tuple[int, int, int]]:
    return list(zip(tokens.frame.tolist(), tokens.index.tolist(), tokens.slot.tolist(), strict=True))


def test_frames_are_laid_out_one_after_another_each_from_its_first_token() -> None:
    tokens = Tokens.of_frames((7, 8), 3, np.array([4, 5, 6, 10, 11, 2]))
    assert rows(tokens) == [(7, 0, 4), (7, 1, 5), (7, 2, 6), (8, 0, 10), (8, 1, 11), (8, 2, 2)]


def test_nothing_is_three_empty_columns() -> None:
    assert rows(Tokens.empty()) == []
    assert len(Tokens.empty()) == 0
    assert Tokens.empty().slot.dtype == np.int64


def test_joining_keeps_the_order_of_the_parts_and_of_their_tokens() -> None:
    late = Tokens.of_frames((9,), 2, np.array([1, 0]))
    early = Tokens.of_frames((3,), 1, np.array([5]))
    assert rows(Tokens.join((late, Tokens.empty(), early))) == [(9, 0, 1), (9, 1, 0), (3, 0, 5)]
    assert rows(Tokens.join(())) == rows(Tokens.join((Tokens.empty(), Tokens.empty()))) == []


@given(st.lists(st.integers(0, 5), max_size=4), st.data())
def test_taking_by_position_or_by_flag_keeps_the_columns_aligned(sizes: list[int], data: st.DataObject) -> None:
    count = sum(sizes)
    slots = np.array(data.draw(st.permutations(range(count))), dtype=np.int64)
    cuts = np.split(slots, np.cumsum(sizes))[: len(sizes)]
    parts = [Tokens.of_frames((frame,), size, slot) for frame, (size, slot) in enumerate(zip(sizes, cuts, strict=True))]
    tokens = Tokens.join(parts)
    assert rows(tokens) == [row for part in parts for row in rows(part)]
    flags = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), dtype=np.bool_)
    positions = np.array(data.draw(st.lists(st.integers(0, max(0, count - 1)), max_size=count)), dtype=np.int64)
    assert rows(tokens.take(flags)) == [row for row, flag in zip(rows(tokens), flags, strict=True) if flag]
    assert rows(tokens.take(positions)) == [rows(tokens)[position] for position in positions]


def test_tokens_moved_to_other_slots_are_the_same_tokens() -> None:
    tokens = Tokens.of_frames((0, 1), 2, np.arange(4))
    moved = tokens.at(np.array([9, 8, 7, 6]))
    assert rows(moved) == [(0, 0, 9), (0, 1, 8), (1, 0, 7), (1, 1, 6)]
    assert tokens.slot.tolist() == [0, 1, 2, 3]


def test_columns_of_unequal_length_are_refused() -> None:
    with pytest.raises(BeartypeCallHintParamViolation):
        Tokens.of_frames((0, 1), 2, np.arange(3))
