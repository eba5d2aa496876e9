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
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int, Int8, Int32, Int64
from torch import Tensor

from longtake.errors import BudgetError
from longtake.memory.tokens import Flags, Integers, StreamLayout

Rows = Float[Tensor, "tokens heads head_dim"]
Block = slice | Tensor
"""One stretch of slots in a fixed order."""
FEWEST_RANGES = 4
_NARROW = 2**31
_WORDS = (torch.int64, torch.int32, torch.int16)
"""As which numbers are copied: the wider, the fewer."""
_LOOKED_AT = 2048
"""Slots that are looked through for free ones before all are."""
_COPIED_AT_ONCE = 1024
"""Slots, of all layers: they are held twice meanwhile."""
Births = Mapping[int, int]
"""Of a fork: for each branch it descends from, the epoch at which it left it."""


@dataclass(frozen=True, slots=True)
class Places:
    """A view as numbers: ranges of slots one after another, or of a list of slots."""

    ranges: tuple[tuple[int, int], ...]
    slots: Integers | None


@dataclass(frozen=True, slots=True)
class DevicePlaces:
    """The same where kernels read it."""

    ranges: Int32[Tensor, "ranges 2"]
    """As many as `num_ranges`, the last ones empty."""
    slots: Int32[Tensor, "_"] | None


@dataclass(frozen=True)
class View:
    """What a clip may see: sections of slots in a fixed order, over which attention is merged by log-sum-exp.

    A section whose slots lie one after another is a slice of the slab, without a copy; any other is gathered in the
    same order. So the numbers that come out depend on the order of the tokens alone, never on where they lie.
    """

    sections: tuple[Integers, ...]
    device: torch.device

    def read(self, storage: Float[Tensor, "slots heads head_dim"]) -> Iterator[Rows]:
        return (storage[block] if isinstance(block, slice) else storage.index_select(0, block) for block in self.blocks)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """One for each section, on the device; made once, for all layers that see the same."""
        return tuple(as_block(section, self.device) for section in self.sections)

    @cached_property
    def places(self) -> Places:
        runs = [run_of(section) for section in self.sections]
        in_place = tuple((run.start, run.stop) for run in runs if run is not None)
        if len(in_place) == len(runs):
            return Places(in_place, None)
        return self.listed

    @cached_property
    def listed(self) -> Places:
        """The same as a list, whatever lies one after another."""
        ends = np.cumsum([len(section) for section in self.sections]).tolist()
        return Places(tuple(zip([0, *ends[:-1]], ends, strict=True)), np.concatenate(self.sections))

    @cached_property
    def device_places(self) -> DevicePlaces:
        """Made once as well."""
        places = self.places
        ranges = np.zeros((self.num_ranges, 2), dtype=np.int32)
        ranges[: len(places.ranges)] = places.ranges
        slots = None
        if places.slots is not None:
            slots = torch.from_numpy(places.slots.astype(np.int32)).to(self.device, non_blocking=True)
        return DevicePlaces(torch.from_numpy(ranges).to(self.device, non_blocking=True), slots)

    @property
    def num_slots(self) -> int:
        return sum(map(len, self.sections))

    @property
    def num_ranges(self) -> int:
        """A number of ranges that most views share, so that few kernels are compiled."""
        return max(FEWEST_RANGES, 1 << (len(self.sections) - 1).bit_length())

    @property
    def in_place(self) -> bool:
        """Whether nothing has to be gathered."""
        return self.places.slots is None


@dataclass(frozen=True, slots=True)
class Seen:
    """Keys and values of one layer, where they lie, and which of them a clip may see."""

    keys: Float[Tensor, "slots heads head_dim"]
    values: Float[Tensor, "slots heads head_dim"]
    where: Int64[Tensor, " 3"]
    """For kernels, on the device: the addresses of both, and how many slots there are."""
    view: View

    @classmethod
    def of(
        cls, keys: Float[Tensor, "slots heads head_dim"], values: Float[Tensor, "slots heads head_dim"], view: View
    ) -> "Seen":
        """Of tensors that are no slab's."""
        return cls(keys, values, torch.tensor([keys.data_ptr(), values.data_ptr(), len(keys)]).to(keys.device), view)

    def blocks(self) -> Iterator[tuple[Rows, Rows]]:
        """Read one after another."""
        return zip(self.view.read(self.keys), self.view.read(self.values), strict=True)


def is_wide(storage: Float[Tensor, "slots heads head_dim"]) -> bool:
    """Whether an element can lie farther away than 32 bits count."""
    return storage.numel() >= _NARROW


def view_of(sections: Iterable[Integers], device: torch.device) -> View:
    """Of the sections that are not empty."""
    return View(tuple(section for section in sections if len(section)), device)


def as_block(slot: Integers, device: torch.device) -> Block:
    """A slice where the slots follow one another, else their indices on the device."""
    run = run_of(slot)
    return torch.from_numpy(slot).to(device, non_blocking=True) if run is None else run


def run_of(slot: Integers) -> slice | None:
    """The slice that these slots are, if they follow one another."""
    first = int(slot[0])
    if int(slot[-1]) - first == len(slot) - 1 and bool(np.all(np.diff(slot) == 1)):
        return slice(first, first + len(slot))
    return None


class Slab:
    """Keys and values of one stream, by layer; slots that somebody reads are written by `revise_keys` alone."""

    def __init__(self, layout: StreamLayout, num_slots: int, device: torch.device) -> None:
        shape = (num_slots, layout.num_heads, layout.head_dim)
        layers = range(layout.num_layers)
        self.layout = layout
        self.num_slots = num_slots
        self.device = device
        try:
            self._storage = torch.empty((len(layers), 2, *shape), dtype=layout.dtype, device=device)
        except RuntimeError as error:  # of both of torch's allocators
            num_bytes = 2 * len(layers) * math.prod(shape) * layout.dtype.itemsize
            raise BudgetError(
                f"Expected room for a memory of {num_bytes / 1e6:.0f} MB, but {device} has less; give a smaller one."
            ) from error
        self.keys = list(self._storage[:, 0])
        self.values = list(self._storage[:, 1])

    @property
    def num_bytes(self) -> int:
        return self._storage.nbytes

    @cached_property
    def where(self) -> Int64[Tensor, "layers 3"]:
        """On the device, for kernels: of each layer the addresses of keys and values, and how many slots there are."""
        pairs = zip(self.keys, self.values, strict=True)
        return torch.tensor([[k.data_ptr(), v.data_ptr(), self.num_slots] for k, v in pairs]).to(self.device)

    def write(
        self, layer: int, block: Block, k: Float[Tensor, "new heads dim"], v: Float[Tensor, "new heads dim"]
    ) -> None:
        self.keys[layer][block] = k.to(self.device, self.layout.dtype)
        self.values[layer][block] = v.to(self.device, self.layout.dtype)

    def copy(self, source: Integers, target: Integers) -> None:
        """Keys and values of every layer into other slots, none of which is a source."""
        sources, targets = (torch.from_numpy(slot).to(self.device, non_blocking=True) for slot in (source, target))
        row_bytes = self.layout.head_dim * self.layout.dtype.itemsize
        rows = self._storage.view(next(dtype for dtype in _WORDS if row_bytes % dtype.itemsize == 0))
        for some, to in zip(sources.split(_COPIED_AT_ONCE), targets.split(_COPIED_AT_ONCE), strict=True):
            rows.index_copy_(2, to, rows.index_select(2, some))

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
        zeros = np.zeros(num_slots, dtype=np.int32)
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

    def are_free(self, slot: Integers) -> bool:
        """Whether all of these are free."""
        return bool((self.state[slot] == SlotState.FREE).all())

    def choose(self, count: int, *, from_top: bool) -> Integers | None:
        """So many free slots, from the bottom up or the top down, in one run where one is long enough."""
        if from_top:
            return self._choose_at_top(count)
        free = np.flatnonzero(self.state == SlotState.FREE)
        return None if len(free) < count else _run_at_bottom(free, count)

    def _choose_at_top(self, count: int) -> Integers | None:
        """Looks at the highest slots first, for a fork begins with few of its own however many there are."""
        start = len(self) - max(_LOOKED_AT, 4 * count)
        if start > 0:
            free = start + np.flatnonzero(self.state[start:] == SlotState.FREE)
            if len(free) >= count and len(_starts_of_runs(free, count)):
                return _run_at_top(free, count)
        free = np.flatnonzero(self.state == SlotState.FREE)
        return None if len(free) < count else _run_at_top(free, count)

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
        if not forks:
            return replace(self, state=_with(self.state, slot, SlotState.FREE))
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
