"""Slots of one stream: the keys and values in them, how attention reads them, who has them and who still sees them.

Every slot is in exactly one state:

    free ──take──▶ staged ──commit──▶ live ──release──▶ held ──reclaim──▶ free
      ▲              │                 │                 (a fork still sees it)
      └──give_back───┘                 └──────────────▶ free (nobody else sees it)

A slot is visible from the epoch of the commit that made it live until that of the commit that released it. A fork born
in between sees it. Taking free slots depends on which are free alone, not on the past.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
import torch
from jaxtyping import Float, Int, Int8
from torch import Tensor

from longtake.errors import BudgetError
from longtake.memory.tokens import Flags, Integers, StreamLayout

Rows = Float[Tensor, "tokens heads head_dim"]
Block = slice | Tensor
"""One stretch of slots in a fixed order."""
Births = Mapping[int, int]
"""Of a fork: for each branch it descends from, the epoch at which it left it."""


@dataclass(frozen=True, slots=True)
class View:
    """What a clip may see: disjoint blocks of slots, over which attention is merged by log-sum-exp.

    A block whose slots lie one after another is a slice of the slab, without a copy; any other is gathered in the same
    order. So the numbers that come out depend on the order of the tokens alone, never on where they lie.
    """

    blocks: tuple[Block, ...]

    def read(self, storage: Float[Tensor, "slots heads head_dim"]) -> Iterator[Rows]:
        return (storage[block] if isinstance(block, slice) else storage.index_select(0, block) for block in self.blocks)

    @property
    def in_place(self) -> bool:
        """Whether nothing has to be gathered."""
        return all(isinstance(block, slice) for block in self.blocks)


def view_of(sections: Iterable[Integers], device: torch.device) -> View:
    """One block for each section that is not empty."""
    return View(tuple(as_block(slot, device) for slot in sections if len(slot)))


def as_block(slot: Integers, device: torch.device) -> Block:
    """A slice where the slots follow one another, else their indices on the device."""
    first = int(slot[0])
    if int(slot[-1]) - first == len(slot) - 1 and bool(np.all(np.diff(slot) == 1)):
        return slice(first, first + len(slot))
    return torch.from_numpy(slot).to(device)


class Slab:
    """Keys and values of one stream, a tensor a layer; slots that somebody reads are written by `revise_keys` alone."""

    def __init__(self, layout: StreamLayout, num_slots: int, device: torch.device) -> None:
        shape = (num_slots, layout.num_heads, layout.head_dim)
        layers = range(layout.num_layers)
        self.layout = layout
        self.num_slots = num_slots
        self.device = device
        try:
            self.keys = [torch.empty(shape, dtype=layout.dtype, device=device) for _ in layers]
            self.values = [torch.empty(shape, dtype=layout.dtype, device=device) for _ in layers]
        except RuntimeError as error:  # of both of torch's allocators
            num_bytes = 2 * len(layers) * math.prod(shape) * layout.dtype.itemsize
            raise BudgetError(
                f"Expected room for a memory of {num_bytes / 1e6:.0f} MB, but {device} has less; give a smaller one."
            ) from error

    @property
    def num_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values))

    def write(
        self, layer: int, block: Block, k: Float[Tensor, "new heads dim"], v: Float[Tensor, "new heads dim"]
    ) -> None:
        self.keys[layer][block] = k.to(self.device, self.layout.dtype)
        self.values[layer][block] = v.to(self.device, self.layout.dtype)

    def copy(self, source: Integers, target: Integers) -> None:
        """Keys and values of every layer into other slots, none of which is a source."""
        sources = torch.from_numpy(source).to(self.device)
        targets = torch.from_numpy(target).to(self.device)
        for storage in (*self.keys, *self.values):
            storage.index_copy_(0, targets, storage.index_select(0, sources))

    def revise_keys(self, slot: Integers, revise: Callable[[Rows], Rows], before: "RowsBefore") -> None:
        """Replace the keys in these slots in every layer; as they were, they are noted on the host, for they may be all
        there are."""
        slots = torch.from_numpy(slot).to(self.device)
        for keys in self.keys:
            before.note(keys, slots, torch.device("cpu"))
            keys[slots] = revise(keys.index_select(0, slots))


class RowsBefore:
    """Keys and values of remembered tokens that a clip writes over, to be put back should it not be kept."""

    def __init__(self) -> None:
        self._rows: list[tuple[Rows, Block, Rows]] = []

    def note(self, storage: Rows, block: Block, device: torch.device) -> None:
        self._rows.append((storage, block, storage[block].to(device, copy=True)))

    def put_back(self) -> None:
        """Write all as it was; doing it twice is fine."""
        for storage, block, rows in self._rows:
            storage[block] = rows.to(storage.device)


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
        """Stage those of these slots that are free; the others stay what they are until the clip is committed."""
        return replace(self, state=_with(self.state, slot[self.state[slot] == SlotState.FREE], SlotState.STAGED))

    def give_back(self, slot: Integers) -> "SlotTable":
        """Free those of these slots that are staged and were not committed."""
        return replace(self, state=_with(self.state, slot[self.state[slot] == SlotState.STAGED], SlotState.FREE))

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
