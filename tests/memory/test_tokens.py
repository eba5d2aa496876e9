"""What a token costs, and which are remembered."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from beartype.roar import BeartypeCallHintParamViolation
from hypothesis import given
from hypothesis import strategies as st

from longtake.errors import SettingError
from longtake.memory.tokens import StreamLayout, Tokens

LAYOUT = StreamLayout(num_layers=3, num_heads=2, head_dim=8, tokens_per_frame=5)


@pytest.mark.parametrize(("dtype", "itemsize"), [(torch.float32, 4), (torch.bfloat16, 2), (torch.float16, 2)])
def test_slot_costs_a_key_and_a_value_in_every_layer(dtype: torch.dtype, itemsize: int) -> None:
    layout = replace(LAYOUT, dtype=dtype)
    key = torch.zeros(2, 8, dtype=dtype)
    assert layout.bytes_per_slot_layer == 2 * key.nbytes == 2 * 2 * 8 * itemsize
    assert layout.bytes_per_slot == 3 * layout.bytes_per_slot_layer
    assert layout.bytes_per_frame == 5 * layout.bytes_per_slot


def test_keys_and_values_are_float32_unless_asked_otherwise() -> None:
    assert LAYOUT.dtype is torch.float32


@pytest.mark.parametrize("field", ["num_layers", "num_heads", "head_dim", "tokens_per_frame"])
@pytest.mark.parametrize("size", [0, -1])
def test_size_below_one_is_refused_with_the_layout_it_came_in(field: str, size: int) -> None:
    with pytest.raises(SettingError, match=f"must be at least 1, but .*{field}={size}"):
        replace(LAYOUT, **{field: size})


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
