"""All streams of one video, moved together: begin a clip, fork for a question, clear for a new sequence.

A memory is a branch over a shared pool of slots. Forks are branches too: they see the memory as it was at their birth,
and write into slots of their own. A slot that a living fork can see is never overwritten; while any fork lives nothing
moves. Every change is all or nothing: it makes the pool's next state, and only then does that become the present one.
"""

import threading
import time
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import torch

from longtake.errors import ForkError, InputError, MemoryFullError, TransactionError
from longtake.memory.budget import StreamPlan
from longtake.memory.change import Change, change_together
from longtake.memory.policy import Keep
from longtake.memory.saved import Pieces, SavedTensors
from longtake.memory.serialization import restored_stream, stream_pieces
from longtake.memory.shared_pool import (
    ROOT,
    Branch,
    PoolState,
    SharedPool,
    Slots,
    StagedClip,
    StreamUse,
    own_slots,
    use_of,
)
from longtake.memory.stream import Live, Outcome, Stream
from longtake.memory.tokens import Integers, Tokens
from longtake.memory.transaction import Transaction

_NONE_LEFT = np.empty(0, dtype=np.int64)
_LONGEST_WAIT_S = 0.1
"""How long a clip waits for room before it looks whether a fork was dropped without being closed."""


class Memory:
    """What one branch remembers of one video, in every stream."""

    def __init__(self, plans: Mapping[str, StreamPlan], device: torch.device | str = "cpu") -> None:
        self._stand_for(ROOT, SharedPool(plans, torch.device(device)), parent=None)

    def _stand_for(self, branch: int, pool: SharedPool, *, parent: "Memory | None") -> None:
        self._pool = pool
        self._branch = branch
        self._parent = parent
        self._is_held = False
        pool.end_with(self, branch)

    @property
    def num_kept(self) -> int:
        """How many frames of the sequence were kept so far."""
        return self._require_usable(self._pool.state).num_kept

    @property
    def plans(self) -> Mapping[str, StreamPlan]:
        return self._pool.plans

    @property
    def streams(self) -> Mapping[str, Stream]:
        return self._pool.streams

    @property
    def num_bytes(self) -> int:
        """Bytes of all keys and values, used or not, and of policies' statistics: what was declared, allocated once."""
        return sum(plan.num_bytes for plan in self._pool.plans.values())

    @property
    def is_fork(self) -> bool:
        return self._parent is not None

    def require_open(self) -> None:
        """Refuse, in a sentence, whatever is asked of a memory or fork that was closed."""
        self._require_usable(self._pool.state)

    @property
    def has_forks(self) -> bool:
        """Whether any branch but the first lives; hold the `lock` for this to stay so."""
        with self._pool.lock:
            return bool(self._pool.current().forks)

    def tokens(self, stream: str, layer: int = 0) -> Tokens:
        """What this branch remembers of a stream's layer, in attention order; often the same for all layers."""
        group, _, _ = self._pool.streams[stream].find(layer)
        return Tokens.join(self._live[stream][group].sections)

    def use(self) -> dict[str, StreamUse]:
        """How the slots are used, over all branches."""
        with self._pool.lock:
            tables = self._pool.current().tables
            return {name: use_of(tables[name], stream.slab) for name, stream in self._pool.streams.items()}

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Guards all branches. Hold it to do several things as one; `begin` lets go of it while it waits for room."""
        return self._pool.lock

    def begin(
        self,
        num_frames: int,
        keep: Keep,
        *,
        patience_s: float = 0.0,
        forgetting: Mapping[str, Integers] = MappingProxyType({}),
        rewriting: bool = False,
        on_device: bool = False,
    ) -> Transaction:
        """Stage a clip in every stream. With too few free slots it waits up to `patience_s` for forks to end.

        The clip does not see frames of `forgetting`, by stream, and may lie where they do; they are forgotten when it
        is committed, and not before. `rewriting` lets it revise keys, which is refused while a fork lives. A clip that
        writes over what is remembered makes forks wait until it is committed or left. With `on_device`, streams whose
        policies decide there are staged by their `books`, where they can be, and the caller works out the rest.
        """
        if num_frames < 1:
            raise TransactionError(f"A clip has at least one frame, but {num_frames} were announced.")
        with self._pool.lock:
            self._pack()
            may_be = on_device and not forgetting and not rewriting
            books = self._pool.books(self._pool.latest(), num_frames) if may_be else {}
            past, slots = self._wait_for_slots(num_frames, patience_s, forgetting, besides=books)
            state, first = self._pool.latest(), past.num_kept
            if rewriting and state.forks:
                raise ForkError("Keys are revised only while there is no fork, which reads them too; end the forks.")
            staged = {
                name: stream.stage(past.live[name], slots[name], num_kept=first, num_frames=num_frames, keep=keep)
                for name, stream in self._pool.streams.items()
                if name not in books
            }
            overwrites = any(not state.tables[name].are_free(slot) for name, slot in slots.items())
            clip = StagedClip(slots=slots, rewrites=rewriting or overwrites)
            transaction = Transaction(
                self,
                self._pool,
                self._branch,
                ordinals=tuple(range(first, first + num_frames)),
                keep=keep,
                clip=clip,
                staged=staged,
                past={name: past.live[name] for name in staged},
                forgetting=forgetting,
                books=books,
            )
            self._pool.publish(state.staging(self._branch, clip).keeping(books))
            return transaction

    def leave(self) -> None:
        """Drop a clip that this thread has begun and was kept from ending, by an interrupt on the way.

        For whoever has one clip at a time. A clip that is lost goes by itself, but a traceback may still hold it.
        """
        with self._pool.lock:
            branch = self._pool.latest().branches.get(self._branch)
            clip = None if branch is None else branch.staged
            if clip is not None and clip.thread == threading.get_ident():
                self._pool.unstage(self._branch, clip)

    def fork(self) -> "Memory":
        """A branch that sees this memory as it is now, at no cost. `close`, a `with` block or losing it ends it.

        Where a clip is writing over what is remembered, that is waited for.
        """
        with self._pool.lock:
            while (clip := self._require_usable(self._pool.current()).staged) is not None and clip.rewrites:
                if clip.thread == threading.get_ident():
                    raise TransactionError("A clip writes over what is remembered; commit or leave it before forking.")
                self._pool.changed.wait(_LONGEST_WAIT_S)
            self._pack()
            state = self._pool.current()
            after = state.forked(self._branch)
            self._pool.publish(replace(state, num_born=after.num_born))  # so that its number is never another's
            child = Memory.__new__(Memory)
            child._stand_for(after.num_born, self._pool, parent=self)
            self._pool.publish(after)
            return child

    def hold(self) -> "Memory":
        """This memory as it is now, for `contents` alone, while it goes on: a fork that is only read."""
        self._require_savable()
        held = self.fork()
        held._is_held = True
        return held

    def commit_fork(self) -> None:
        """End this fork and let its parent remember what the fork does, if the parent has not moved on."""
        change_together(self.commit_fork_with)

    def commit_fork_with(self, change: Change) -> None:
        """The same as a part of a change."""
        with self._pool.lock:
            state = self._pool.current()
            fork = self._require_usable(state)
            number = self._require_unmoved_parent(state, fork)
            parent = state.branches[number]
            outcomes = {
                name: stream.after_merge(fork.live[name], parent.live[name], num_kept=fork.num_kept)
                for name, stream in self._pool.streams.items()
            }
            self._pool.publish_with(state.merged(self._branch, number, outcomes), change)

    def forget(self, stream: str, frames: Integers) -> None:
        """Forget these frames of one stream, whatever its policy says."""
        with self._pool.lock:
            state = self._pool.current()
            branch = self._require_nothing_staged(state, "forgetting frames")
            outcome = self._pool.streams[stream].after_forget(branch.live[stream], frames)
            self._pool.publish(state.changed(self._branch, {stream: outcome}))

    def clear(self) -> None:
        """Forget everything and start a new sequence."""
        change_together(self.clear_with)

    def clear_with(self, change: Change) -> None:
        """The same as a part of a change."""
        with self._pool.lock:
            state = self._pool.current()
            branch = self._require_nothing_staged(state, "clearing")
            outcomes = {
                name: Outcome(stream.nothing(), own_slots(branch.live[name]))
                for name, stream in self._pool.streams.items()
            }
            self._pool.publish_with(state.changed(self._branch, outcomes, num_kept=0), change)

    def contents(self) -> dict[str, Pieces]:
        """All that a new memory needs to go on from here, to be written piece by piece."""
        with self._pool.lock:
            branch = self._require_nothing_staged(self._pool.current(), "saving")
        self._require_savable()
        tensors = {"num_kept": Pieces.of(torch.tensor(branch.num_kept))}
        for name, stream in self._pool.streams.items():
            live = branch.live[name]
            own = tuple(part.as_before_fork() for part in live) if self._is_held else live
            tensors |= stream_pieces(stream, own)
        return tensors

    def restore(self, saved: SavedTensors) -> None:
        """Remember what `contents` wrote; only in a new memory with the same streams."""
        with self._pool.lock:
            state = self._pool.current()
            assert state.epoch == 0, "only a new memory can be restored"
            live = {name: restored_stream(stream, saved) for name, stream in self._pool.streams.items()}
            slots = {name: own_slots(of_stream) for name, of_stream in live.items()}
            staging = state.staging(self._branch, StagedClip(slots=slots))
            outcomes = {name: Outcome(of_stream, _NONE_LEFT) for name, of_stream in live.items()}
            self._pool.publish(
                staging.committed(self._branch, outcomes, num_kept=int(saved.read("num_kept", torch.int64)))
            )

    def close(self) -> None:
        """End this branch and give back all it owns; ending twice is fine."""
        with self._pool.lock:
            self._pool.publish(self._pool.current().ended(self._branch))

    def __enter__(self) -> "Memory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _live(self) -> Mapping[str, Live]:
        with self._pool.lock:
            return self._require_usable(self._pool.current()).live

    def _pack(self) -> None:
        """Bring own tokens together so that views are one run of slots; not while a fork may be reading.

        What clips see and compute does not depend on it. Tokens are copied into slots that are free, and only then said
        to be there: a step that fails loses nothing, and is taken again before the next clip.
        """
        state = self._pool.latest()
        branch = self._require_usable(state)
        if state.forks or branch.staged is not None or branch.is_packed:
            return
        packing = self._pool.packing(state, self._branch)
        for step in packing.steps:
            self._pool.streams[step.stream].slab.copy(step.source, step.target)
            self._pool.publish(step.after)
        self._pool.publish(packing.packed)

    def _wait_for_slots(
        self, num_frames: int, patience_s: float, forgetting: Mapping[str, Integers], *, besides: Collection[str]
    ) -> tuple[Branch, Slots]:
        """This branch once these frames are forgotten, and slots for a clip in it, in all streams but those."""
        deadline = time.monotonic() + patience_s
        while True:
            state = self._pool.latest() if besides else self._pool.current()
            if self._require_usable(state).staged is not None:
                raise TransactionError(
                    "This memory has a clip staged already; commit or leave it before the next begins."
                )
            after = self._pool.without(state, self._branch, forgetting)
            chosen = self._pool.choose(after, num_frames, from_top=self.is_fork, besides=besides)
            if not isinstance(chosen, str):
                return after.branches[self._branch], chosen
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not state.forks:
                raise MemoryFullError(self._sentence_on_full(state, chosen, num_frames))
            self._pool.changed.wait(min(left_s, _LONGEST_WAIT_S))

    def _require_usable(self, state: PoolState) -> Branch:
        if self._branch not in state.branches:
            if self.is_fork:
                raise ForkError("This fork has ended; fork the session that it was made from again.")
            raise InputError("This session was closed; open another, or resume a saved one.")
        return state.branches[self._branch]

    def _require_savable(self) -> None:
        if self.is_fork and not self._is_held:
            raise ForkError("A fork cannot be saved; save the memory it was made from.")

    def _require_nothing_staged(self, state: PoolState, doing: str) -> Branch:
        branch = self._require_usable(state)
        if branch.staged is not None:
            raise TransactionError(f"A clip is staged; commit or leave it before {doing}.")
        return branch

    def _require_unmoved_parent(self, state: PoolState, fork: Branch) -> int:
        """The parent's number."""
        if self._parent is None:
            raise ForkError("Only a fork can be committed into its parent; this memory has none.")
        self._require_nothing_staged(state, "committing the fork")
        if any(self._branch in births for births in state.forks):
            raise ForkError("This fork has forks of its own that still live; end them before committing it.")
        parent = state.branches.get(self._parent._branch)
        if parent is None or parent.version != fork.parent_version:
            raise ForkError(
                "The memory has moved on since this fork was made; fork again and repeat what was asked on it."
            )
        self._parent._require_nothing_staged(state, "committing the fork")
        return self._parent._branch

    def _sentence_on_full(self, state: PoolState, name: str, num_frames: int) -> str:
        stream = self._pool.streams[name]
        use, plan = use_of(state.tables[name], stream.slab), stream.plan
        needed = num_frames * plan.policy.slots_per_frame(plan.layout)
        sentence = f"Stream '{name}' needs {needed} slots for this clip, but {use.free} of {use.num_slots} are free"
        if use.held or state.forks:
            forks = len(state.forks)
            return (
                f"{sentence} ({use.held} held for {forks} forks); end a fork, or open the session with more room for "
                "forks: reserve_frames of a map, reserve_tokens of a dialogue."
            )
        return f"{sentence}; give the memory a larger budget or choose a policy that forgets."
