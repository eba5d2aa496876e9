"""The life of a slot: free, staged, live, held, and free again once nobody sees it."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtake.memory.slots import SlotState, SlotTable

ROOT, FORK, GRANDCHILD = 1, 2, 3


def staged(num_slots: int = 10) -> SlotTable:
    """A table in which all slots are staged."""
    return SlotTable.free(num_slots).take(np.arange(num_slots))


def with_free(free: list[int], num_slots: int = 10) -> SlotTable:
    """A table in which only these slots are free."""
    return staged(num_slots).give_back(np.array(free, dtype=np.int64))


def counts(table: SlotTable) -> dict[SlotState, int]:
    return {state: table.count(state) for state in SlotState if table.count(state)}


def test_slot_goes_from_free_to_staged_to_live_to_free() -> None:
    table = SlotTable.free(10)
    assert counts(table) == {SlotState.FREE: 10}
    slot = table.choose(4, from_top=False)
    assert slot is not None
    assert slot.tolist() == [0, 1, 2, 3]
    table = table.take(slot)
    assert counts(table) == {SlotState.FREE: 6, SlotState.STAGED: 4}
    table = table.give_back(slot[2:]).commit(slot[:2], owner=ROOT, epoch=1)
    assert counts(table) == {SlotState.FREE: 8, SlotState.LIVE: 2}
    assert table.owned_by(ROOT).tolist() == [0, 1]
    assert table.owned_by(FORK).tolist() == []
    table = table.release(slot[:1], epoch=2, forks=())
    assert counts(table) == {SlotState.FREE: 9, SlotState.LIVE: 1}
    assert table.owned_by(ROOT).tolist() == [1]


def test_every_change_makes_a_new_table_and_leaves_the_old() -> None:
    slot = np.array([1, 2])
    free = SlotTable.free(4)
    taken = free.take(slot)
    live = taken.commit(slot, owner=ROOT, epoch=1)
    held = live.release(slot, epoch=2, forks=[{ROOT: 1}])
    moved, reclaimed = live.move(slot[1:], np.array([0])), held.reclaim([])
    assert [counts(table) for table in (free, taken, live, held, moved, reclaimed)] == [
        {SlotState.FREE: 4},
        {SlotState.FREE: 2, SlotState.STAGED: 2},
        {SlotState.FREE: 2, SlotState.LIVE: 2},
        {SlotState.FREE: 2, SlotState.HELD: 2},
        {SlotState.FREE: 2, SlotState.LIVE: 2},
        {SlotState.FREE: 4},
    ]
    assert live.owned_by(ROOT).tolist() == [1, 2]
    assert moved.owned_by(ROOT).tolist() == [0, 1]


def test_slot_that_a_fork_sees_is_held_until_the_fork_ends() -> None:
    slot = np.array([0, 1])
    table = SlotTable.free(10).take(slot).commit(slot, owner=ROOT, epoch=1)
    table = table.release(slot, epoch=2, forks=[{ROOT: 1}])
    assert counts(table) == {SlotState.FREE: 8, SlotState.HELD: 2}
    table = table.reclaim([{ROOT: 1}])
    assert counts(table) == {SlotState.FREE: 8, SlotState.HELD: 2}
    assert counts(table.reclaim([])) == {SlotState.FREE: 10}


def test_reclaiming_frees_held_slots_alone() -> None:
    slot = np.array([0, 1, 2])
    table = SlotTable.free(10).take(slot).commit(slot[:1], owner=ROOT, epoch=1).reclaim([])
    assert counts(table) == {SlotState.FREE: 7, SlotState.STAGED: 2, SlotState.LIVE: 1}


@pytest.mark.parametrize(
    ("births", "held"),
    [
        ({ROOT: 2}, False),  # born before the slot was committed
        ({ROOT: 3}, True),  # born of the very commit of the slot
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
        slot = np.array([0])
        table = staged(1).commit(slot, owner=ROOT, epoch=3).release(slot, epoch=5, forks=[*others, births])
        assert table.count(SlotState.HELD) == int(held)
        assert table.reclaim([births, *others]).count(SlotState.HELD) == int(held)


def test_each_slot_is_judged_by_its_own_dates_and_owner() -> None:
    table = staged(4)
    for slot, owner, epoch in ((0, ROOT, 1), (1, ROOT, 5), (2, FORK, 3), (3, FORK, 1)):
        table = table.commit(np.array([slot]), owner=owner, epoch=epoch)
    forks = [{ROOT: 4}, {ROOT: 0, FORK: 2}]
    held = np.flatnonzero(table.release(np.arange(4), epoch=6, forks=forks).state == SlotState.HELD)
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
        table = with_free(free)
        slot = table.choose(count, from_top=from_top)
        assert slot is not None
        assert slot.tolist() == want
        assert table.take(slot).count(SlotState.FREE) == len(free) - count


@given(st.sets(st.integers(0, 15)), st.integers(1, 6), st.booleans())
def test_taken_slots_were_free_and_are_neighbours_wherever_they_can_be(
    free: set[int], count: int, from_top: bool
) -> None:
    table = with_free(sorted(free), num_slots=16)
    slot = table.choose(count, from_top=from_top)
    if len(free) < count:
        assert slot is None
        return
    assert slot is not None
    assert len(slot) == count
    assert set(slot.tolist()) <= free
    assert table.take(slot).count(SlotState.FREE) == len(free) - count
    runs = [start for start in range(16) if set(range(start, start + count)) <= free]
    if runs:
        start = runs[-1] if from_top else runs[0]
        assert slot.tolist() == list(range(start, start + count))


def test_too_few_free_slots_are_none_at_all() -> None:
    table = with_free([1, 5])
    assert table.choose(3, from_top=False) is None
    assert table.choose(3, from_top=True) is None
    assert table.count(SlotState.FREE) == 2


def test_moved_tokens_carry_owner_and_dates_with_them() -> None:
    table = staged(6).commit(np.array([3]), owner=ROOT, epoch=1).commit(np.array([4, 5]), owner=FORK, epoch=4)
    table = table.give_back(np.array([0, 1, 2])).move(np.array([3, 4, 5]), np.array([1, 0, 2]))
    assert table.owned_by(ROOT).tolist() == [1]
    assert table.owned_by(FORK).tolist() == [0, 2]
    assert counts(table) == {SlotState.FREE: 3, SlotState.LIVE: 3}
    table = table.release(np.array([0, 1, 2]), epoch=9, forks=[{ROOT: 0, FORK: 3}])  # born before all of them
    assert counts(table) == {SlotState.FREE: 6}
