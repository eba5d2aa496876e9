"""Storage of one stream: preallocated slots, who owns each, and which forks can still see it.

Every slot is in exactly one state:

    free ──take──▶ staged ──settle──▶ live ──release──▶ held ──reclaim──▶ free
      ▲              │                 │                 (a fork still sees it)
      └──give_back───┘                 └──────────────▶ free (nobody else sees it)

A slot is visible from the epoch of the commit that settled it until that of the commit that released it. A fork born
in between sees it. Taking free slots depends on which are free alone, not on the past.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from longtake.memory.layout import StreamLayout
from longtake.memory.tokens import Integers
from longtake.memory.view import Block

BOOK_BYTES = 1 + 3 * 8 + 3 * 8
"""Of one slot: its state, owner and two epochs here, and its token's frame, index and slot."""


class SlotState(IntEnum):
    """Where a slot is in its life."""

    FREE = 0
    STAGED = 1
    LIVE = 2
    HELD = 3


class Slab:
    """Keys and values of one stream, a tensor a layer, and the books on their slots."""

    def __init__(self, layout: StreamLayout, num_slots: int, device: torch.device) -> None:
        shape = (num_slots, layout.num_heads, layout.head_dim)
        layers = range(layout.num_layers)
        self.layout = layout
        self.num_slots = num_slots
        self.device = device
        self.keys = [torch.empty(shape, dtype=layout.dtype, device=device) for _ in layers]
        self.values = [torch.empty(shape, dtype=layout.dtype, device=device) for _ in layers]
        self._state = np.zeros(num_slots, dtype=np.int8)
        self._owner = np.zeros(num_slots, dtype=np.int64)
        self._settled = np.zeros(num_slots, dtype=np.int64)
        self._released = np.zeros(num_slots, dtype=np.int64)

    @property
    def num_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values))

    def count(self, state: SlotState) -> int:
        return int(np.count_nonzero(self._state == state))

    def owned_by(self, owner: int) -> Integers:
        """Slots that are live and belong to this branch."""
        return np.flatnonzero((self._state == SlotState.LIVE) & (self._owner == owner))

    def write(
        self, layer: int, block: Block, k: Float[Tensor, "new heads dim"], v: Float[Tensor, "new heads dim"]
    ) -> None:
        self.keys[layer][block] = k.to(self.device, self.layout.dtype)
        self.values[layer][block] = v.to(self.device, self.layout.dtype)

    def take(self, count: int, *, from_top: bool) -> Integers | None:
        """Stage `count` free slots, from the bottom up or the top down, in one run where one is long enough."""
        free = np.flatnonzero(self._state == SlotState.FREE)
        if len(free) < count:
            return None
        if from_top:
            chosen = _run_at_top(free, count)
        else:
            chosen = _run_at_bottom(free, count)
        self._state[chosen] = SlotState.STAGED
        return chosen

    def give_back(self, slot: Integers) -> None:
        """Staged slots that were not committed."""
        self._state[slot] = SlotState.FREE

    def settle(self, slot: Integers, *, owner: int, epoch: int) -> None:
        """Slots that belong to this branch and are seen by forks born from this epoch on."""
        self._state[slot] = SlotState.LIVE
        self._owner[slot] = owner
        self._settled[slot] = epoch

    def release(self, slot: Integers, *, epoch: int, forks: Iterable[Mapping[int, int]]) -> None:
        """Slots their owner no longer remembers: free, or held while a fork sees them."""
        self._released[slot] = epoch
        self._state[slot] = SlotState.HELD
        self._free_unseen(slot, forks)

    def reclaim(self, forks: Iterable[Mapping[int, int]]) -> None:
        """Free the held slots that none of the remaining forks sees."""
        self._free_unseen(np.flatnonzero(self._state == SlotState.HELD), forks)

    def num_unseen(self, slot: Integers, forks: Iterable[Mapping[int, int]]) -> int:
        """How many of these live slots no fork sees: released, they would be free at once."""
        seen = np.zeros(len(slot), dtype=np.bool_)
        for births in forks:
            for ancestor, birth in births.items():
                seen |= (self._owner[slot] == ancestor) & (self._settled[slot] <= birth)
        return int(np.count_nonzero(~seen))

    def move(self, source: Integers, target: Integers) -> None:
        """Carry tokens to other slots; only while no fork lives, since a fork reads where it first looked."""
        sources = torch.from_numpy(source).to(self.device)
        targets = torch.from_numpy(target).to(self.device)
        for storage in (*self.keys, *self.values):
            storage.index_copy_(0, targets, storage.index_select(0, sources))
        owner, settled = self._owner[source], self._settled[source]
        self._state[source] = SlotState.FREE
        self._state[target] = SlotState.LIVE
        self._owner[target], self._settled[target] = owner, settled

    def _free_unseen(self, slot: Integers, forks: Iterable[Mapping[int, int]]) -> None:
        seen = np.zeros(len(slot), dtype=np.bool_)
        owner, settled, released = self._owner[slot], self._settled[slot], self._released[slot]
        for births in forks:
            for ancestor, birth in births.items():
                seen |= (owner == ancestor) & (settled <= birth) & (birth < released)
        self._state[slot[~seen]] = SlotState.FREE


def _run_at_bottom(free: Integers, count: int) -> Integers:
    """The lowest run of `count` neighbours, or the lowest `count` slots where no run is long enough."""
    if count and free[count - 1] - free[0] == count - 1:
        return free[:count]  # most often; looking through all takes milliseconds where there are many
    starts = _starts_of_runs(free, count)
    first = int(starts[0]) if len(starts) else 0
    return free[first : first + count]


def _run_at_top(free: Integers, count: int) -> Integers:
    """The highest run of `count` neighbours, or the highest `count` slots where no run is long enough."""
    if count and free[-1] - free[-count] == count - 1:
        return free[len(free) - count :]
    starts = _starts_of_runs(free, count)
    first = int(starts[-1]) if len(starts) else len(free) - count
    return free[first : first + count]


def _starts_of_runs(free: Integers, count: int) -> Integers:
    spans = free[count - 1 :] - free[: len(free) - count + 1]
    return np.flatnonzero(spans == count - 1)
