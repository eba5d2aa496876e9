"""Who has which slot of a stream, and which forks can still see it.

Every slot is in exactly one state:

    free ──take──▶ staged ──commit──▶ live ──release──▶ held ──reclaim──▶ free
      ▲              │                 │                 (a fork still sees it)
      └──give_back───┘                 └──────────────▶ free (nobody else sees it)

A slot is visible from the epoch of the commit that made it live until that of the commit that released it. A fork born
in between sees it. Taking free slots depends on which are free alone, not on the past.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from jaxtyping import Int, Int8

from longtake.memory.tokens import Flags, Integers

Births = Mapping[int, int]
"""Of a fork: for each branch it descends from, the epoch at which it left it."""


class SlotState(IntEnum):
    """Where a slot is in its life."""

    FREE = 0
    STAGED = 1
    LIVE = 2
    HELD = 3


@dataclass(frozen=True, slots=True)
class SlotTable:
    """A row for each slot; every change makes a new table, so that one that fails leaves the old."""

    state: Int8[np.ndarray, " slots"]
    owner: Int[np.ndarray, " slots"]
    """The branch, of live and held slots."""
    committed_at: Int[np.ndarray, " slots"]
    released_at: Int[np.ndarray, " slots"]

    @classmethod
    def free(cls, num_slots: int) -> "SlotTable":
        """All slots free."""
        zeros = np.zeros(num_slots, dtype=np.int64)
        return cls(np.zeros(num_slots, dtype=np.int8), zeros, zeros, zeros)

    def __len__(self) -> int:
        return len(self.state)

    def count(self, state: SlotState) -> int:
        return int(np.count_nonzero(self.state == state))

    def is_free(self) -> Flags:
        """Which slots are free."""
        flags: Flags = self.state == SlotState.FREE
        return flags

    def owned_by(self, owner: int) -> Integers:
        """Slots that are live and belong to this branch."""
        return np.flatnonzero((self.state == SlotState.LIVE) & (self.owner == owner))

    def choose(self, count: int, *, from_top: bool) -> Integers | None:
        """So many free slots, from the bottom up or the top down, in one run where one is long enough."""
        free = np.flatnonzero(self.state == SlotState.FREE)
        if len(free) < count:
            return None
        return _run_at_top(free, count) if from_top else _run_at_bottom(free, count)

    def take(self, slot: Integers) -> "SlotTable":
        """Stage free slots."""
        return replace(self, state=_with(self.state, slot, SlotState.STAGED))

    def give_back(self, slot: Integers) -> "SlotTable":
        """Free staged slots that were not committed."""
        return replace(self, state=_with(self.state, slot, SlotState.FREE))

    def commit(self, slot: Integers, *, owner: int, epoch: int) -> "SlotTable":
        """Let slots belong to this branch, seen by forks born from this epoch on."""
        return replace(
            self,
            state=_with(self.state, slot, SlotState.LIVE),
            owner=_with(self.owner, slot, owner),
            committed_at=_with(self.committed_at, slot, epoch),
        )

    def release(self, slot: Integers, *, epoch: int, forks: Collection[Births]) -> "SlotTable":
        """Slots their owner no longer remembers: free, or held while a fork sees them."""
        if not len(slot):
            return self
        released = replace(
            self,
            state=_with(self.state, slot, SlotState.HELD),
            released_at=_with(self.released_at, slot, epoch),
        )
        return released._without_unseen(slot, forks)

    def reclaim(self, forks: Collection[Births]) -> "SlotTable":
        """Free the held slots that none of the remaining forks sees."""
        return self._without_unseen(np.flatnonzero(self.state == SlotState.HELD), forks)

    def move(self, source: Integers, target: Integers) -> "SlotTable":
        """Let live tokens be in other slots, which are free."""
        return SlotTable(
            _with(_with(self.state, source, SlotState.FREE), target, SlotState.LIVE),
            _with(self.owner, target, self.owner[source]),
            _with(self.committed_at, target, self.committed_at[source]),
            self.released_at,
        )

    def _without_unseen(self, slot: Integers, forks: Collection[Births]) -> "SlotTable":
        if not len(slot):
            return self
        seen = np.zeros(len(slot), dtype=np.bool_)
        owner, committed_at, released_at = self.owner[slot], self.committed_at[slot], self.released_at[slot]
        for births in forks:
            for ancestor, birth in births.items():
                seen |= (owner == ancestor) & (committed_at <= birth) & (birth < released_at)
        return replace(self, state=_with(self.state, slot[~seen], SlotState.FREE))


def _with(column: Int[np.ndarray, " slots"], slot: Integers, value: int | Integers) -> Int[np.ndarray, " slots"]:
    changed = column.copy()
    changed[slot] = value
    return changed


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
