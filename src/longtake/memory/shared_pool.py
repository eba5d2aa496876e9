"""What all branches of a memory share: the slabs, the epoch of the last commit, and which forks live."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from longtake.memory.eviction import Eviction
from longtake.memory.layout import StreamLayout
from longtake.memory.retention import Retention
from longtake.memory.slab import BOOK_BYTES, Slab, SlotState
from longtake.memory.tokens import Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """One stream of a memory: what a slot holds, what is remembered, how many slots there are."""

    layout: StreamLayout
    policy: Retention | Eviction
    num_slots: int
    """For tokens of all layers at once, or of single layers where each forgets on its own."""

    @property
    def num_bytes(self) -> int:
        return self.num_slots * bytes_per_slot(self.layout, self.policy)


def bytes_per_slot(layout: StreamLayout, policy: Retention | Eviction) -> int:
    """Keys and values; where each layer forgets on its own, all that is kept about them too."""
    if isinstance(policy, Retention):
        return layout.bytes_per_slot
    return layout.bytes_per_slot_layer + BOOK_BYTES + policy.num_token_stats * np.dtype(np.float32).itemsize


@dataclass(frozen=True, slots=True)
class LayerSlots:
    """Tokens that come and go together: a stream, or one layer of a stream whose layers forget on their own."""

    stream: str
    slab: Slab
    """Shared by all layers of such a stream."""
    plan: StreamPlan

    @property
    def num_token_stats(self) -> int:
        return self.plan.policy.num_token_stats if isinstance(self.plan.policy, Eviction) else 0


def layer_slots_name(stream: str, layer: int) -> str:
    """The name of the shelf where each layer has one."""
    return f"{stream}.{layer}"


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


class SharedPool:
    """What all branches share: slabs, the epoch of the last commit, and which forks live."""

    def __init__(self, plans: Mapping[str, StreamPlan], device: torch.device) -> None:
        self.plans = dict(plans)
        self.slabs = {name: _slab(plan, device) for name, plan in plans.items()}
        self.layer_slots = {
            layer_slots: LayerSlots(name, self.slabs[name], plan)
            for name, plan in plans.items()
            for layer_slots in _layer_slots_names(name, plan)
        }
        self.device = device
        self.changed = threading.Condition(threading.RLock())
        self.epoch = 0
        self.births: dict[int, Mapping[int, int]] = {}
        self._num_branches = 0

    def layer_slots_of(self, stream: str) -> list[str]:
        """One, or one for each layer."""
        return _layer_slots_names(stream, self.plans[stream])

    def next_branch(self) -> int:
        self._num_branches += 1
        return self._num_branches

    def take_all(self, num_frames: int, *, from_top: bool) -> dict[str, Integers] | str:
        """Slots for a clip on every shelf, or the name of the first stream that has too few and no slot taken."""
        taken: dict[str, Integers] = {}
        for name, plan in self.plans.items():
            layer_slots = self.layer_slots_of(name)
            count = num_frames * plan.layout.tokens_per_frame
            slot = self.slabs[name].take(count * len(layer_slots), from_top=from_top)
            if slot is None:
                self.give_back(taken)
                return name
            taken |= dict(zip(layer_slots, np.split(slot, len(layer_slots)), strict=True))
        return taken

    def give_back(self, taken: Mapping[str, Integers]) -> None:
        for name, slot in taken.items():
            self.layer_slots[name].slab.give_back(slot)


def _layer_slots_names(name: str, plan: StreamPlan) -> list[str]:
    if isinstance(plan.policy, Retention):
        return [name]
    return [layer_slots_name(name, layer) for layer in range(plan.layout.num_layers)]


def _slab(plan: StreamPlan, device: torch.device) -> Slab:
    layout = plan.layout if isinstance(plan.policy, Retention) else replace(plan.layout, num_layers=1)
    return Slab(layout, plan.num_slots, device)


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
