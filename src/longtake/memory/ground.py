"""What all branches of a memory share: the slabs, the epoch of the last commit, and which forks live."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from longtake.memory.layout import StreamLayout
from longtake.memory.retention import Retention
from longtake.memory.slab import Slab, SlotState
from longtake.memory.tokens import Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """One stream of a memory: what a slot holds, what is remembered, how many slots there are."""

    layout: StreamLayout
    retention: Retention
    num_slots: int

    @property
    def num_bytes(self) -> int:
        return self.num_slots * self.layout.bytes_per_slot


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamUse:
    """How the slots of one stream are used now, and what they cost."""

    num_slots: int
    live: int
    held: int
    staged: int
    free: int
    num_bytes: int
    live_bytes: int


class Ground:
    """What all branches share: slabs, the epoch of the last commit, and which forks live."""

    def __init__(self, plans: Mapping[str, StreamPlan], device: torch.device) -> None:
        self.plans = dict(plans)
        self.slabs = {name: Slab(plan.layout, plan.num_slots, device) for name, plan in plans.items()}
        self.device = device
        self.changed = threading.Condition(threading.RLock())
        self.epoch = 0
        self.births: dict[int, Mapping[int, int]] = {}
        self._num_branches = 0

    def next_branch(self) -> int:
        self._num_branches += 1
        return self._num_branches

    def take_all(self, counts: Mapping[str, int], *, from_top: bool) -> dict[str, Integers] | str:
        """Slots in every stream, or the name of the first stream that has too few and no slot taken."""
        taken: dict[str, Integers] = {}
        for name, count in counts.items():
            slot = self.slabs[name].take(count, from_top=from_top)
            if slot is None:
                self.give_back(taken)
                return name
            taken[name] = slot
        return taken

    def give_back(self, taken: Mapping[str, Integers]) -> None:
        for name, slot in taken.items():
            self.slabs[name].give_back(slot)


def use_of(slab: Slab) -> StreamUse:
    live = slab.count(SlotState.LIVE)
    return StreamUse(
        num_slots=slab.num_slots,
        live=live,
        held=slab.count(SlotState.HELD),
        staged=slab.count(SlotState.STAGED),
        free=slab.count(SlotState.FREE),
        num_bytes=slab.num_bytes,
        live_bytes=live * slab.layout.bytes_per_slot,
    )
