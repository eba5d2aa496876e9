"""What all branches of a memory share: streams, and one state that is replaced as a whole.

A change first makes the next state, which may fail; then one assignment makes it the present one, by itself or together
with values beside it.
"""

import threading
import weakref
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from longtake.memory.books import Books
from longtake.memory.budget import StreamPlan
from longtake.memory.change import Change, Changing
from longtake.memory.slots import Births, RowsBefore, Slab, SlotState, SlotTable
from longtake.memory.stream import Live, Outcome, Stream, open_stream
from longtake.memory.tokens import Integers

Slots = Mapping[str, Integers]
"""Slots of every stream."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StagedClip:
    """A clip that is written but not kept yet."""

    slots: Slots
    """Those that were free, and those of remembered tokens that leave with the commit; of streams that are staged on
    the device only once somebody asked."""
    rewrites: bool = False
    """Whether remembered tokens are written over meanwhile: forks are born before the clip or after it."""
    before: RowsBefore = field(default_factory=RowsBefore)
    thread: int = field(default_factory=threading.get_ident)
    """Whose clip it is."""


@dataclass(frozen=True, slots=True)
class PackingStep:
    """Tokens of one stream that are carried to free slots, and the state once they are there."""

    stream: str
    source: Integers
    target: Integers
    after: "PoolState"


@dataclass(frozen=True, slots=True)
class Packing:
    """How the tokens of a branch come together in one run of slots: a step after another, and the state at last.

    It is found while a clip is kept, when there is time. Whatever changes the branch drops it, and a fork is born only
    when it is done, so the rest of the state is as it was.
    """

    steps: tuple[PackingStep, ...]
    packed: "PoolState"


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A memory or one of its forks: what it remembers, and the clip it has staged."""

    live: Mapping[str, Live]
    births: Births
    """Empty for the memory that all others descend from."""
    num_kept: int
    """Frames of the sequence kept so far."""
    version: int
    """The epoch of its last change."""
    parent_version: int
    """Of the parent when the fork was born."""
    staged: StagedClip | None = None
    is_packed: bool = True
    """Whether its own tokens are known to lie in one run of slots."""
    packing: Packing | None = None
    """Where they are not, how they will, if that was found already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """Slots and branches at one moment; a value."""

    epoch: int
    """Counts changes of what any branch remembers."""
    num_born: int
    """Branches there ever were."""
    tables: Mapping[str, SlotTable]
    branches: Mapping[int, Branch]
    books: Mapping[str, Books] = field(default_factory=dict)
    """What the first branch remembers of streams that are kept on the device; gone once the host changes it."""
    is_known: bool = True
    """Whether tables and branches say the same as the books: they do while there is a fork."""

    @property
    def forks(self) -> Collection[Births]:
        """Births of the forks that live."""
        return [branch.births for branch in self.branches.values() if branch.births]

    def staging(self, number: int, clip: StagedClip) -> "PoolState":
        """With a clip of this branch staged."""
        tables = {name: self.tables[name].take(slot) for name, slot in clip.slots.items()}
        return self._with(number, replace(self.branches[number], staged=clip), tables=tables)

    def keeping(self, books: Mapping[str, Books]) -> "PoolState":
        """With what books say of their streams, whatever tables and branches do."""
        return replace(self, books=books, is_known=False) if books else self

    def known(self, streams: Mapping[str, Stream]) -> "PoolState":
        """With tables and branches that say what the books do; waits for the device."""
        if self.is_known:
            return self
        branch, live, tables, staged = (
            self.branches[ROOT],
            dict[str, Live](),
            dict[str, SlotTable](),
            dict[str, Integers](),
        )
        for name, books in self.books.items():
            bookkeeping, table = streams[name].bookkeeping, SlotTable.free(len(self.tables[name]))
            assert bookkeeping is not None
            live[name] = bookkeeping.read(books)
            tables[name] = table.commit(own_slots(live[name]), owner=ROOT, epoch=branch.version)
            if branch.staged is not None:
                staged[name] = bookkeeping.clip_slots(books.columns).flatten().cpu().numpy().astype(np.int64)
                tables[name] = tables[name].take(staged[name])
        branch = replace(branch, live={**branch.live, **live})
        if branch.staged is not None:
            branch = replace(branch, staged=replace(branch.staged, slots={**branch.staged.slots, **staged}))
        return replace(self._with(ROOT, branch, tables=tables), is_known=True)

    def unstaged(self, number: int) -> "PoolState":
        """With the staged clip of this branch gone, if it has one."""
        branch = self.branches[number]
        if branch.staged is None:
            return self
        tables = {name: self.tables[name].give_back(slot) for name, slot in branch.staged.slots.items()}
        return self._with(number, replace(branch, staged=None), tables=tables)

    def committed(self, number: int, outcomes: Mapping[str, Outcome], *, num_kept: int) -> "PoolState":
        """With the staged clip of this branch kept, and with what its streams give up released."""
        branch, epoch = self.branches[number], self.epoch + 1
        assert branch.staged is not None
        tables = {
            name: self.tables[name].commit(slot, owner=number, epoch=epoch)
            for name, slot in branch.staged.slots.items()
        }
        kept = self._with(number, replace(branch, staged=None), tables=tables)
        return kept.changed(number, outcomes, num_kept=num_kept)

    def changed(self, number: int, outcomes: Mapping[str, Outcome], *, num_kept: int | None = None) -> "PoolState":
        """With what this branch remembers of some streams replaced; slots it gives up are free, or held for forks."""
        branch, epoch, forks = self.branches[number], self.epoch + 1, self.forks
        tables = {
            name: self.tables[name].release(outcome.left, epoch=epoch, forks=forks)
            for name, outcome in outcomes.items()
        }
        live = {**branch.live, **{name: outcome.live for name, outcome in outcomes.items()}}
        counted = branch.num_kept if num_kept is None else num_kept
        after = replace(branch, live=live, version=epoch, num_kept=counted, is_packed=False, packing=None)
        changed = self._with(number, after, tables=tables, epoch=epoch)
        return replace(changed, books={}) if number == ROOT else changed

    def forked(self, number: int) -> "PoolState":
        """With a new branch, numbered last, that sees what this one does."""
        parent = self.branches[number]
        child = Branch(
            live={name: tuple(part.as_birth_of_fork() for part in live) for name, live in parent.live.items()},
            births={**parent.births, number: self.epoch},
            num_kept=parent.num_kept,
            version=self.epoch,
            parent_version=parent.version,
        )
        born = self.num_born + 1
        return replace(self, num_born=born, branches={**self.branches, born: child})

    def merged(self, number: int, into: int, outcomes: Mapping[str, Outcome]) -> "PoolState":
        """Without this fork, all that it owned and kept being its parent's."""
        epoch, fork = self.epoch + 1, self.branches[number]
        branches = {other: branch for other, branch in self.branches.items() if other != number}
        tables = {
            name: table.commit(table.owned_by(number), owner=into, epoch=epoch) for name, table in self.tables.items()
        }
        return replace(self, branches=branches, tables=tables).changed(into, outcomes, num_kept=fork.num_kept)

    def ended(self, number: int) -> "PoolState":
        """Without this branch, if it is still there; all that it owned is free, or held for forks of it."""
        if number not in self.branches:
            return self
        state, epoch = self.unstaged(number), self.epoch + 1
        branches = {other: branch for other, branch in state.branches.items() if other != number}
        left = replace(state, branches=branches, epoch=epoch)
        if number == ROOT:
            left = replace(left, books={}, is_known=True)
        tables = {
            name: table.release(table.owned_by(number), epoch=epoch, forks=left.forks).reclaim(left.forks)
            for name, table in state.tables.items()
        }
        return replace(left, tables=tables)

    def moved(self, number: int, stream: str, source: Integers, target: Integers, live: Live) -> "PoolState":
        """With tokens of this branch in other slots; what it remembers is the same."""
        branch = self.branches[number]
        return self._with(
            number,
            replace(branch, live={**branch.live, stream: live}),
            tables={stream: self.tables[stream].move(source, target)},
        )

    def packed(self, number: int) -> "PoolState":
        """With it known that all tokens of this branch are in their places."""
        return self._with(number, replace(self.branches[number], is_packed=True, packing=None), tables={})

    def _with(
        self, number: int, branch: Branch, *, tables: Mapping[str, SlotTable], epoch: int | None = None
    ) -> "PoolState":
        return replace(
            self,
            epoch=self.epoch if epoch is None else epoch,
            tables={**self.tables, **tables},
            branches={**self.branches, number: branch},
        )


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


ROOT = 1
"""The number of the branch that a pool begins with."""


class SharedPool:
    """Streams, and the present state. Whoever reads it to replace it holds the `lock`; `changed` tells who waits."""

    def __init__(self, plans: Mapping[str, StreamPlan], device: torch.device) -> None:
        self.plans = dict(plans)
        self.streams = {name: open_stream(name, plan, device) for name, plan in plans.items()}
        self.lock = threading.RLock()  # held in `with` as it is: an interrupt can come between Python's lines of others
        self.changed = threading.Condition(self.lock)
        live = {name: stream.nothing() for name, stream in self.streams.items()}
        self._state = Changing(
            PoolState(
                epoch=0,
                num_born=ROOT,
                tables={name: SlotTable.free(plan.num_slots) for name, plan in plans.items()},
                branches={ROOT: Branch(live=live, births={}, num_kept=0, version=0, parent_version=0)},
            )
        )
        self._dropped: deque[tuple[int, StagedClip | None]] = deque()

    @property
    def state(self) -> PoolState:
        """The present one."""
        return self._state.value

    def current(self) -> PoolState:
        """The present state, all of it known on the host."""
        state = self.latest()
        if not state.is_known:
            self.publish(state.known(self.streams))
        return self.state

    def latest(self) -> PoolState:
        """The present state, once what was dropped without being ended is given back."""
        while self._dropped:
            number, clip = self._dropped[0]
            if clip is None:
                self.publish(self.state.ended(number))
            else:
                self.unstage(number, clip)
            self._dropped.popleft()
        return self.state

    def publish(self, state: PoolState) -> None:
        """Make this the present state. The last thing that a change does, so that nothing can fail after it."""
        self.changed.notify_all()
        self._state.become(state)

    def publish_with(self, state: PoolState, change: Change) -> None:
        """The same as a part of a change, to which nothing else of this pool may belong."""
        self.changed.notify_all()
        self._state.become_with(state, change)

    def is_staged(self, number: int, clip: StagedClip) -> bool:
        """Whether this is the clip that the branch has staged."""
        branch = self.state.branches.get(number)
        staged = None if branch is None else branch.staged
        return staged is not None and staged.before is clip.before  # it may know more of its slots by now

    def unstage(self, number: int, clip: StagedClip) -> None:
        """Drop a clip that is not kept, if it is still there; all that it wrote over is as it was."""
        if self.is_staged(number, clip):
            clip.before.put_back()
            self.publish(self.state.unstaged(number))

    def end_with(self, owner: object, number: int, clip: StagedClip | None = None) -> None:
        """End a branch, or a clip that it has staged, at the latest with the object that stands for it."""
        weakref.finalize(owner, self._dropped.append, (number, clip)).atexit = False

    def without(self, state: PoolState, number: int, forgetting: Mapping[str, Integers]) -> PoolState:
        """The state once a branch has forgotten these frames, by stream."""
        if not forgetting:
            return state
        live = state.branches[number].live
        outcomes = {name: self.streams[name].after_forget(live[name], frames) for name, frames in forgetting.items()}
        return state.changed(number, outcomes)

    def packing(self, state: PoolState, number: int) -> Packing:
        """How the tokens of a branch come together; only while there are no forks, which may be reading them."""
        known = state.branches[number].packing
        if known is not None:
            return known
        steps = []
        for name, stream in self.streams.items():
            while moves := stream.moves(state.branches[number].live[name], state.tables[name]):
                state = state.moved(number, name, moves.source, moves.target, moves.live)
                steps.append(PackingStep(name, moves.source, moves.target, state))
        return Packing(tuple(steps), state.packed(number))

    def with_packing(self, state: PoolState, number: int) -> PoolState:
        """The same state, with what the next clip of a branch will have to know."""
        if state.forks:
            return state
        branch = replace(state.branches[number], packing=self.packing(state, number))
        return replace(state, branches={**state.branches, number: branch})

    def books(self, state: PoolState, num_frames: int) -> dict[str, Books]:
        """Those of all streams that can be kept on the device, for a clip of the first branch; none where the host has
        to know more: beside forks, of clips of several frames, where the memory might be full."""
        if state.forks or num_frames != 1:
            return {}
        branch, books = state.branches[ROOT], dict[str, Books]()
        for name, stream in self.streams.items():
            bookkeeping = stream.bookkeeping
            if bookkeeping is None:
                continue
            if not bookkeeping.has_room(branch.num_kept + 1):
                return {}
            books[name] = state.books.get(name) or bookkeeping.written(branch.live[name], stream.slab.device)
        return books

    def choose(
        self, state: PoolState, num_frames: int, *, from_top: bool, besides: Collection[str] = ()
    ) -> dict[str, Integers] | str:
        """Free slots for a clip in every stream but those, or the name of the first stream that has too few."""
        chosen: dict[str, Integers] = {}
        for name, plan in self.plans.items():
            if name in besides:
                continue
            slot = state.tables[name].choose(num_frames * plan.policy.slots_per_frame(plan.layout), from_top=from_top)
            if slot is None:
                return name
            chosen[name] = slot
        return chosen


def own_slots(live: Live) -> Integers:
    """Of all sets of layers."""
    return np.concatenate([part.own.slot for part in live])


def use_of(table: SlotTable, slab: Slab) -> StreamUse:
    """How the slots of a stream are used."""
    live = table.count(SlotState.LIVE)
    return StreamUse(
        num_slots=len(table),
        live=live,
        held=table.count(SlotState.HELD),
        staged=table.count(SlotState.STAGED),
        free=table.count(SlotState.FREE),
        num_bytes=slab.num_bytes,
        live_bytes=live * slab.layout.bytes_per_slot,
    )
