"""Blocks of slots: slices where they can be, gathered where they must be, in the same order either way."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from longtake.memory.slots import View, as_block, view_of

CPU = torch.device("cpu")
STORAGE = torch.arange(12.0).reshape(12, 1, 1)


def read(view: View) -> list[list[float]]:
    return [block.flatten().tolist() for block in view.read(STORAGE)]


def test_neighbours_are_a_slice() -> None:
    assert as_block(np.array([3, 4, 5]), CPU) == slice(3, 6)
    assert as_block(np.array([7]), CPU) == slice(7, 8)


def test_slots_out_of_order_or_with_a_hole_are_gathered() -> None:
    for slots in ([3, 5, 4, 6], [5, 4, 3], [1, 3], [0, 3, 1, 2, 4]):
        block = as_block(np.array(slots), CPU)
        assert isinstance(block, torch.Tensor)
        assert block.tolist() == slots


def test_slice_is_read_in_place() -> None:
    view = view_of((np.arange(2, 6),), CPU)
    (block,) = view.read(STORAGE)
    assert block.data_ptr() == STORAGE[2].data_ptr()
    assert view.in_place


def test_view_is_in_place_only_if_every_block_is() -> None:
    assert not view_of((np.arange(2), np.array([5, 3])), CPU).in_place


def test_empty_sections_make_no_block() -> None:
    none = np.empty(0, dtype=np.int64)
    view = view_of((none, np.array([1]), none, np.array([5, 2])), CPU)
    assert read(view) == [[1.0], [5.0, 2.0]]
    assert view_of((none,), CPU).blocks == ()


@given(st.permutations(range(12)), st.lists(st.integers(0, 12), max_size=3))
def test_tokens_are_read_in_the_order_they_were_given(slots: list[int], cuts: list[int]) -> None:
    sections = np.split(np.array(slots), sorted(cuts))
    assert read(view_of(sections, CPU)) == [section.tolist() for section in sections if len(section)]
