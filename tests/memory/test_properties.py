"""Any order of begin, commit, abandon, fork, clear and save: each slot has one owner, each branch its own truth."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from longtake.errors import ForkError, MemoryFullError
from longtake.memory.budget import MemoryRequirements
from longtake.memory.memory import Memory
from longtake.memory.policies.lockstep import ContextRetention, Window
from longtake.memory.policy import Keep, LockstepPolicy
from longtake.memory.saved import SavedTensors, write_tensors
from longtake.memory.slots import SlotState
from longtake.memory.tokens import StreamLayout, Tokens

LAYOUTS = {
    "patches": StreamLayout(num_layers=2, num_heads=1, head_dim=2, tokens_per_frame=3),
    "cameras": StreamLayout(num_layers=3, num_heads=1, head_dim=2, tokens_per_frame=1),
}


@dataclass(frozen=True)
class Expected:
    """What a branch should remember: for each stream, (frame, index) to the mark its clip wrote."""

    tokens: dict[str, dict[tuple[int, int], float]]
    num_kept: int = 0


@dataclass
class Branch:
    memory: Memory
    expected: Expected
    saw: frozenset[tuple[str, int]] = frozenset()
    """Stream and slot of all that was visible when the branch or a branch before it was born."""

    def fork(self) -> "Branch":
        fork = self.memory.fork()
        visible = {(name, int(slot)) for name in LAYOUTS for slot in fork.tokens(name).slot}
        return Branch(fork, self.expected, self.saw | visible)


class AnyOrder(RuleBasedStateMachine):
    """Drives a memory and a plain dictionary side by side; `who` picks one of the branches that live."""

    who = st.integers(0, 4)

    @initialize(
        anchors=st.integers(0, 2),
        window=st.integers(1, 3),
        trail=st.integers(0, 2),
        extra=st.integers(0, 3),
        reserve=st.integers(0, 12),
    )
    def start(self, anchors: int, window: int, trail: int, extra: int, reserve: int) -> None:
        history = anchors + window + extra
        self.retentions: dict[str, LockstepPolicy] = {
            "patches": ContextRetention(anchors=anchors, window=window, trail=trail, history=history),
            "cameras": Window(anchors=anchors, window=window + extra),
        }
        streams = {name: (LAYOUTS[name], self.retentions[name]) for name in LAYOUTS}
        self.plans = MemoryRequirements(streams=streams, first_clip=2, reserve=reserve).plan()
        self.bound = sum(plan.num_bytes for plan in self.plans.values())
        self.mark = 0.0
        self.living = [Branch(Memory(self.plans), Expected({name: {} for name in LAYOUTS}))]

    @rule(who=who, num_frames=st.integers(1, 2), keep=st.sampled_from(Keep), accept=st.booleans())
    def look(self, who: int, num_frames: int, keep: Keep, accept: bool) -> None:
        self.show(self.branch(who), num_frames, keep, accept=accept and keep is not Keep.NO)

    @rule(who=who, clips=st.integers(1, 6))
    def keep_frames(self, who: int, clips: int) -> None:
        for _ in range(clips):
            self.show(self.branch(who), 1, Keep.YES, accept=True)

    def branch(self, who: int) -> Branch:
        return self.living[who % len(self.living)]

    def show(self, branch: Branch, num_frames: int, keep: Keep, *, accept: bool) -> None:
        try:
            transaction = branch.memory.begin(num_frames, keep)
        except MemoryFullError:
            return
        with transaction:
            self.mark += 1
            self.check_partition()
            for name, layout in LAYOUTS.items():
                rows = torch.full((num_frames * layout.tokens_per_frame, 1, 2), self.mark)
                for layer in range(layout.num_layers):
                    transaction.write(name, layer, rows, -rows)
            if accept:
                transaction.commit()
                branch.expected = self.after(branch.expected, num_frames)

    def after(self, expected: Expected, num_frames: int) -> Expected:
        num_kept = expected.num_kept + num_frames
        tokens = {}
        for name, layout in LAYOUTS.items():
            rows = dict(expected.tokens[name])
            for frame in range(expected.num_kept, num_kept):
                rows |= {(frame, index): self.mark for index in range(layout.tokens_per_frame)}
            tokens[name] = {key: mark for key, mark in rows.items() if self.stays(name, *key, num_kept)}
        return Expected(tokens, num_kept)

    def stays(self, name: str, frame: int, index: int, num_kept: int) -> bool:
        one = Tokens(np.array([frame]), np.array([index]), np.array([0]), np.zeros((1, 0), dtype=np.float32))
        return bool(self.retentions[name].stays(one, num_kept=num_kept)[0])

    @precondition(lambda self: len(self.living) < 5)
    @rule(who=who)
    def fork(self, who: int) -> None:
        self.living.append(self.branch(who).fork())

    @precondition(lambda self: len(self.living) > 1)
    @rule(who=who)
    def end(self, who: int) -> None:
        fork = self.living[1 + who % (len(self.living) - 1)]
        fork.memory.close()
        self.living.remove(fork)

    @precondition(lambda self: len(self.living) < 4)
    @rule(who=who, clips=st.integers(1, 5), watched=st.booleans())
    def think_ahead(self, who: int, clips: int, watched: bool) -> None:
        """Keep frames on a fork and commit it, perhaps while a fork that was born in between looks on."""
        parent = self.branch(who)
        fork = parent.fork()
        self.living.append(fork)
        for _ in range(clips):
            self.show(fork, 1, Keep.YES, accept=True)
        if watched:
            self.fork(self.living.index(parent))
        self.check_contents()
        self.commit(fork)

    @precondition(lambda self: len(self.living) > 1)
    @rule(who=who)
    def commit_fork(self, who: int) -> None:
        self.commit(self.living[1 + who % (len(self.living) - 1)])

    def commit(self, fork: Branch) -> None:
        parent = next((other for other in self.living if other.memory is fork.memory._parent), None)
        try:
            fork.memory.commit_fork()
        except ForkError:
            return
        assert parent is not None
        parent.expected = fork.expected
        self.living.remove(fork)

    @precondition(lambda self: self.mark > 20)
    @rule(who=who)
    def clear(self, who: int) -> None:
        branch = self.branch(who)
        branch.memory.clear()
        branch.expected = replace(branch.expected, tokens={name: {} for name in LAYOUTS}, num_kept=0)

    @rule()
    def save_and_restore(self) -> None:
        root = self.living[0]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "memory.safetensors"
            write_tensors(path, root.memory.contents(), {})
            twin = Memory(self.plans)
            twin.restore(SavedTensors(path))
        for name in LAYOUTS:
            assert self.marks(twin, name) == self.marks(root.memory, name)
        assert twin.num_kept == root.memory.num_kept

    @invariant()
    def check_partition(self) -> None:
        """Every slot is live, held, staged or free exactly once, whoever is asked."""
        for name in LAYOUTS if self.living else ():
            table = self.living[0].memory._pool.state.tables[name]
            use = self.living[0].memory.use()[name]
            assert use.live + use.held + use.staged + use.free == use.num_slots == len(table)
            owned = [branch.memory._live[name][0].own.slot for branch in self.living]
            every = np.concatenate(owned)
            assert len(np.unique(every)) == len(every) == use.live
            assert np.all(table.state[every] == SlotState.LIVE)
            seen = np.concatenate([branch.memory.tokens(name).slot for branch in self.living])
            assert np.all(np.isin(table.state[seen], (SlotState.LIVE, SlotState.HELD)))
            held = {(name, int(slot)) for slot in np.flatnonzero(table.state == SlotState.HELD)}
            assert held <= {place for branch in self.living for place in branch.saw}

    @invariant()
    def check_contents(self) -> None:
        """Each branch remembers what the dictionary does, in every layer."""
        for branch in self.living:
            for name in LAYOUTS:
                assert self.marks(branch.memory, name) == branch.expected.tokens[name]

    @invariant()
    def check_bytes(self) -> None:
        if self.living:
            assert self.living[0].memory.num_bytes == self.bound
            assert sum(use.live_bytes for use in self.living[0].memory.use().values()) <= self.bound

    def marks(self, memory: Memory, name: str) -> dict[tuple[int, int], float]:
        tokens = memory.tokens(name)
        slab = memory._pool.streams[name].slab
        slot = torch.from_numpy(tokens.slot)
        layers = [keys[slot] for keys in slab.keys] + [-values[slot] for values in slab.values]
        for other in layers[1:]:
            assert torch.equal(other, layers[0])
        return dict(
            zip(
                zip(tokens.frame.tolist(), tokens.index.tolist(), strict=True), layers[0][:, 0, 0].tolist(), strict=True
            )
        )


AnyOrder.living = []  # type: ignore[attr-defined]
TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
