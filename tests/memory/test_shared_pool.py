"""What all branches share: slots taken in every stream or in none, and how they are counted."""

import numpy as np
import pytest
import torch

from longtake.memory.budget import StreamPlan
from longtake.memory.policies.lockstep import KeepAll
from longtake.memory.shared_pool import ROOT, SharedPool, StagedClip, use_of
from longtake.memory.slots import SlotState, SlotTable
from longtake.memory.tokens import StreamLayout

WIDE = StreamLayout(num_layers=2, num_heads=1, head_dim=2, tokens_per_frame=3)
NARROW = StreamLayout(num_layers=1, num_heads=1, head_dim=4, tokens_per_frame=1)


def new_pool(wide: int = 9, narrow: int = 3) -> SharedPool:
    return SharedPool(
        {
            "wide": StreamPlan(layout=WIDE, policy=KeepAll(), num_slots=wide),
            "narrow": StreamPlan(layout=NARROW, policy=KeepAll(), num_slots=narrow),
        },
        torch.device("cpu"),
    )


@pytest.mark.parametrize(("wide", "narrow", "short"), [(9, 1, "narrow"), (5, 3, "wide")])
def test_stream_that_is_full_leaves_the_slots_of_the_others_free(wide: int, narrow: int, short: str) -> None:
    pool = new_pool(wide, narrow)
    assert pool.choose(pool.state, 2, from_top=False) == short
    free = {name: table.count(SlotState.FREE) for name, table in pool.state.tables.items()}
    assert free == {"wide": wide, "narrow": narrow}


@pytest.mark.parametrize(
    ("from_top", "wide", "narrow"), [(False, [0, 1, 2], [0]), (True, [6, 7, 8], [2])], ids=["bottom", "top"]
)
def test_slots_are_taken_from_the_same_end_of_every_stream(from_top: bool, wide: list[int], narrow: list[int]) -> None:
    pool = new_pool()
    chosen = pool.choose(pool.state, 1, from_top=from_top)
    assert not isinstance(chosen, str)
    assert {name: slot.tolist() for name, slot in chosen.items()} == {"wide": wide, "narrow": narrow}
    staged = pool.state.staging(ROOT, StagedClip(slots=chosen))
    assert [table.count(SlotState.STAGED) for table in staged.tables.values()] == [3, 1]
    assert all(table.count(SlotState.FREE) == len(table) for table in staged.unstaged(ROOT).tables.values())


def test_branches_are_numbered_one_by_one() -> None:
    state = new_pool().state
    for _ in range(2):
        state = state.forked(ROOT)
    assert list(state.ended(2).forked(ROOT).branches) == [ROOT, 3, 4]


def test_use_counts_every_slot_once_and_the_bytes_of_the_live() -> None:
    slab = new_pool().streams["wide"].slab
    table = SlotTable.free(9).take(np.arange(6)).commit(np.arange(4), owner=1, epoch=1)
    use = use_of(table.release(np.array([0]), epoch=2, forks=[{1: 1}]), slab)
    assert (use.num_slots, use.live, use.held, use.staged, use.free) == (9, 3, 1, 2, 3)
    assert use.live_bytes == 3 * WIDE.bytes_per_slot
    assert use.num_bytes == slab.num_bytes == 9 * WIDE.bytes_per_slot


def test_bytes_of_a_plan_are_those_of_its_slab() -> None:
    pool = new_pool()
    assert all(pool.plans[name].num_bytes == stream.slab.num_bytes for name, stream in pool.streams.items())
