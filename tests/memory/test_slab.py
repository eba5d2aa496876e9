"""The life of a slot: free, staged, live, held, and free again once nobody sees it."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longtake.memory.layout import StreamLayout
from longtake.memory.slab import Slab, SlotState

LAYOUT = StreamLayout(num_layers=2, num_heads=1, head_dim=3, tokens_per_frame=2)
ROOT, FORK, GRANDCHILD = 1, 2, 3


def new_slab(num_slots: int = 10, layout: StreamLayout = LAYOUT) -> Slab:
    return Slab(layout, num_slots, torch.device("cpu"))


def with_free(free: list[int], num_slots: int = 10) -> Slab:
    """A slab in which only these slots are free."""
    slab = new_slab(num_slots)
    slab.take(num_slots, from_top=False)
    slab.give_back(np.array(free, dtype=np.int64))
    return slab


def counts(slab: Slab) -> dict[SlotState, int]:
    return {state: slab.count(state) for state in SlotState if slab.count(state)}


def test_slot_goes_from_free_to_staged_to_live_to_free() -> None:
    slab = new_slab()
    assert counts(slab) == {SlotState.FREE: 10}
    slot = slab.take(4, from_top=False)
    assert slot is not None
    assert slot.tolist() == [0, 1, 2, 3]
    assert counts(slab) == {SlotState.FREE: 6, SlotState.STAGED: 4}
    slab.give_back(slot[2:])
    slab.settle(slot[:2], owner=ROOT, epoch=1)
    assert counts(slab) == {SlotState.FREE: 8, SlotState.LIVE: 2}
    assert slab.owned_by(ROOT).tolist() == [0, 1]
    assert slab.owned_by(FORK).tolist() == []
    slab.release(slot[:1], epoch=2, forks=())
    assert counts(slab) == {SlotState.FREE: 9, SlotState.LIVE: 1}
    assert slab.owned_by(ROOT).tolist() == [1]


def test_slot_that_a_fork_sees_is_held_until_the_fork_ends() -> None:
    slab = new_slab()
    slot = slab.take(2, from_top=False)
    assert slot is not None
    slab.settle(slot, owner=ROOT, epoch=1)
    slab.release(slot, epoch=2, forks=[{ROOT: 1}])
    assert counts(slab) == {SlotState.FREE: 8, SlotState.HELD: 2}
    slab.reclaim([{ROOT: 1}])
    assert counts(slab) == {SlotState.FREE: 8, SlotState.HELD: 2}
    slab.reclaim([])
    assert counts(slab) == {SlotState.FREE: 10}


def test_reclaiming_frees_held_slots_alone() -> None:
    slab = new_slab()
    slot = slab.take(3, from_top=False)
    assert slot is not None
    slab.settle(slot[:1], owner=ROOT, epoch=1)
    slab.reclaim([])
    assert counts(slab) == {SlotState.FREE: 7, SlotState.STAGED: 2, SlotState.LIVE: 1}


@pytest.mark.parametrize(
    ("births", "held"),
    [
        ({ROOT: 2}, False),  # born before the slot was settled
        ({ROOT: 3}, True),  # born of the very commit that settled it
        ({ROOT: 4}, True),
        ({ROOT: 5}, False),  # born of the very commit that released it
        ({ROOT: 6}, False),
        ({FORK: 4}, False),  # another branch's fork
        ({ROOT: 3, FORK: 9}, True),  # a grandchild sees what its parent saw
        ({ROOT: 1, FORK: 4}, False),
        ({ROOT: 7, FORK: 3}, False),
    ],
)
def test_slot_is_held_for_forks_born_between_its_commit_and_its_release(births: Mapping[int, int], held: bool) -> None:
    for others in ([], [{ROOT: 0}], [{FORK: 4}, {GRANDCHILD: 4}]):
        slab = new_slab(1)
        slot = slab.take(1, from_top=False)
        assert slot is not None
        slab.settle(slot, owner=ROOT, epoch=3)
        slab.release(slot, epoch=5, forks=[*others, births])
        assert slab.count(SlotState.HELD) == int(held)
        slab.reclaim([births, *others])
        assert slab.count(SlotState.HELD) == int(held)


def test_each_slot_is_judged_by_its_own_dates_and_owner() -> None:
    slab = new_slab(4)
    slab.take(4, from_top=False)
    slab.settle(np.array([0]), owner=ROOT, epoch=1)
    slab.settle(np.array([1]), owner=ROOT, epoch=5)
    slab.settle(np.array([2]), owner=FORK, epoch=3)
    slab.settle(np.array([3]), owner=FORK, epoch=1)
    forks = [{ROOT: 4}, {ROOT: 0, FORK: 2}]
    slab.release(np.arange(4), epoch=6, forks=forks)
    held = np.flatnonzero(slab._state == SlotState.HELD)
    assert held.tolist() == [0, 3]


@pytest.mark.parametrize(
    ("free", "count", "bottom", "top"),
    [
        ([0, 1, 2, 3], 2, [0, 1], [2, 3]),
        ([0, 2, 3, 6, 7], 2, [2, 3], [6, 7]),
        ([0, 2, 4, 6], 2, [0, 2], [4, 6]),  # no run is long enough
        ([1, 2, 3, 5, 6, 8], 3, [1, 2, 3], [1, 2, 3]),
        ([0, 2, 3, 5], 3, [0, 2, 3], [2, 3, 5]),
        ([4, 9], 1, [4], [9]),
        ([1, 3, 8], 3, [1, 3, 8], [1, 3, 8]),
    ],
)
def test_slots_are_taken_as_one_run_from_the_bottom_or_the_top(
    free: list[int], count: int, bottom: list[int], top: list[int]
) -> None:
    for from_top, want in ((False, bottom), (True, top)):
        slab = with_free(free)
        slot = slab.take(count, from_top=from_top)
        assert slot is not None
        assert slot.tolist() == want
        assert slab.count(SlotState.FREE) == len(free) - count


@given(st.sets(st.integers(0, 15)), st.integers(1, 6), st.booleans())
def test_taken_slots_were_free_and_are_neighbours_wherever_they_can_be(
    free: set[int], count: int, from_top: bool
) -> None:
    slab = with_free(sorted(free), num_slots=16)
    before = slab._state.copy()
    slot = slab.take(count, from_top=from_top)
    if len(free) < count:
        assert slot is None
        assert np.array_equal(slab._state, before)
        return
    assert slot is not None
    assert len(slot) == count
    assert set(slot.tolist()) <= free
    assert slab.count(SlotState.FREE) == len(free) - count
    runs = [start for start in range(16) if set(range(start, start + count)) <= free]
    if runs:
        start = runs[-1] if from_top else runs[0]
        assert slot.tolist() == list(range(start, start + count))


def test_too_few_free_slots_take_none() -> None:
    slab = with_free([1, 5])
    assert slab.take(3, from_top=False) is None
    assert slab.take(3, from_top=True) is None
    assert slab.count(SlotState.FREE) == 2


def test_write_and_read_back_every_layer_in_the_stream_type() -> None:
    slab = new_slab(layout=StreamLayout(num_layers=2, num_heads=1, head_dim=3, tokens_per_frame=2, dtype=torch.float16))
    rows = torch.randn(2, 1, 3)
    slab.write(1, torch.tensor([4, 2]), rows, -rows)
    slab.write(0, slice(4, 6), 2 * rows, 3 * rows)
    assert torch.equal(slab.keys[1][[4, 2]], rows.half())
    assert torch.equal(slab.values[1][[4, 2]], -rows.half())
    assert torch.equal(slab.keys[0][4:6], (2 * rows).half())
    assert torch.equal(slab.values[0][4:6], (3 * rows).half())


def test_bytes_are_those_of_the_layout() -> None:
    slab = new_slab(7)
    assert slab.num_bytes == 7 * LAYOUT.bytes_per_slot == sum(t.nbytes for t in (*slab.keys, *slab.values))


def test_moved_tokens_carry_keys_values_owner_and_dates_with_them() -> None:
    slab = new_slab(6)
    slab.take(6, from_top=False)
    slab.settle(np.array([3]), owner=ROOT, epoch=1)
    slab.settle(np.array([4, 5]), owner=FORK, epoch=4)
    slab.give_back(np.array([0, 1, 2]))
    rows = torch.randn(2, 6, 1, 3)
    for layer in range(2):
        slab.write(layer, slice(0, 6), rows[layer], -rows[layer])
    slab.move(np.array([3, 4, 5]), np.array([1, 0, 3]))  # one target is another's source
    for layer in range(2):
        assert torch.equal(slab.keys[layer][[1, 0, 3]], rows[layer, 3:])
        assert torch.equal(slab.values[layer][[1, 0, 3]], -rows[layer, 3:])
    assert slab.owned_by(ROOT).tolist() == [1]
    assert slab.owned_by(FORK).tolist() == [0, 3]
    assert counts(slab) == {SlotState.FREE: 3, SlotState.LIVE: 3}
    slab.release(np.array([0, 1, 3]), epoch=9, forks=[{ROOT: 0, FORK: 3}])  # born before all of them
    assert counts(slab) == {SlotState.FREE: 6}
