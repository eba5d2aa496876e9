"""The life of a slot: free, staged, live, held, and free again once nobody sees it; its keys and values, and views."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from longtake.errors import BudgetError
from longtake.memory import slots as slots_module
from longtake.memory.slots import RowsBefore, Slab, SlotState, SlotTable, View, as_block, view_of
from longtake.memory.tokens import StreamLayout

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


@given(st.sets(st.integers(0, 15)), st.integers(1, 6), st.booleans(), st.sampled_from([1, 2048]))
def test_taken_slots_were_free_and_are_neighbours_wherever_they_can_be(
    free: set[int], count: int, from_top: bool, looked_at: int
) -> None:
    table = with_free(sorted(free), num_slots=16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots_module, "_LOOKED_AT", looked_at)
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


LAYOUT = StreamLayout(num_layers=2, num_heads=1, head_dim=3, tokens_per_frame=2)


def new_slab(num_slots: int = 10, layout: StreamLayout = LAYOUT) -> Slab:
    return Slab(layout, num_slots, torch.device("cpu"))


def written_slab(rows: Tensor) -> Slab:
    """A slab with these rows, a layer after another, as keys and their opposites as values."""
    slab = new_slab(rows.shape[1])
    for layer in range(2):
        slab.write(layer, slice(0, rows.shape[1]), rows[layer], -rows[layer])
    return slab


def test_write_and_read_back_every_layer_in_the_stream_type() -> None:
    slab = new_slab(layout=StreamLayout(num_layers=2, num_heads=1, head_dim=3, tokens_per_frame=2, dtype=torch.float16))
    rows = torch.randn(2, 1, 3)
    slab.write(1, torch.tensor([4, 2]), rows, -rows)
    slab.write(0, slice(4, 6), 2 * rows, 3 * rows)
    assert torch.equal(slab.keys[1][[4, 2]], rows.half())
    assert torch.equal(slab.values[1][[4, 2]], -rows.half())
    assert torch.equal(slab.keys[0][4:6], (2 * rows).half())
    assert torch.equal(slab.values[0][4:6], (3 * rows).half())


def test_memory_larger_than_the_machine_is_refused_in_a_sentence() -> None:
    layout = StreamLayout(num_layers=2, num_heads=2, head_dim=4, tokens_per_frame=1)
    with pytest.raises(
        BudgetError, match=r"^Expected room for a memory of \d+ MB, but cpu has less; give a smaller one"
    ):
        Slab(layout, 2**50, torch.device("cpu"))


def test_bytes_are_those_of_the_layout() -> None:
    slab = new_slab(7)
    assert slab.num_bytes == 7 * LAYOUT.bytes_per_slot == sum(t.nbytes for t in (*slab.keys, *slab.values))


def test_copied_tokens_are_in_both_places_in_every_layer() -> None:
    rows = torch.randn(2, 6, 1, 3)
    slab = written_slab(rows)
    slab.copy(np.array([3, 4, 5]), np.array([1, 0, 2]))
    for layer in range(2):
        for slots in ([1, 0, 2], [3, 4, 5]):
            assert torch.equal(slab.keys[layer][slots], rows[layer, 3:])
            assert torch.equal(slab.values[layer][slots], -rows[layer, 3:])


@pytest.mark.parametrize("fails_at", [1, 2])
def test_revised_keys_are_put_back_however_far_it_came(fails_at: int) -> None:
    rows = torch.randn(2, 6, 1, 3)
    slab, before, calls = written_slab(rows), RowsBefore(), 0

    def spoil_and_fail(keys: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        keys.zero_()
        if calls == fails_at:
            raise MemoryError
        return keys

    with pytest.raises(MemoryError):
        slab.revise_keys(np.array([4, 1]), spoil_and_fail, before)
    before.put_back()
    assert all(torch.equal(keys, rows[layer]) for layer, keys in enumerate(slab.keys))
    slab.revise_keys(np.array([4, 1]), lambda keys: keys + 1, before)
    changed = rows.clone()
    changed[:, [4, 1]] += 1
    assert all(torch.equal(keys, changed[layer]) for layer, keys in enumerate(slab.keys))


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
