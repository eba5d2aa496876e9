"""Any order of begin, commit, abandon, fork, clear and save: each slot has one owner, each branch its own truth."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from longtake.errors import ForkError, MemoryFullError
from longtake.memory.budget import Needs
from longtake.memory.layout import StreamLayout
from longtake.memory.memory import Memory
from longtake.memory.retention import AnchorsWindowTrail, Keep, Retention
from longtake.memory.saved import SavedTensors, write_tensors
from longtake.memory.slab import SlotState
from longtake.memory.tokens import Tokens

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


class AnyOrder(RuleBasedStateMachine):
    """Drives a memory and a plain dictionary side by side."""

    branches = Bundle("branches")

    @initialize(
        target=branches,
        anchors=st.integers(0, 2),
        window=st.integers(1, 3),
        trail=st.integers(0, 2),
        extra=st.integers(0, 3),
        reserve=st.integers(0, 6),
    )
    def start(self, anchors: int, window: int, trail: int, extra: int, reserve: int) -> Branch:
        history = anchors + window + extra
        self.retentions: dict[str, Retention] = {
            "patches": AnchorsWindowTrail(anchors=anchors, window=window, trail_tokens=trail, history=history),
            "cameras": AnchorsWindowTrail(anchors=anchors, window=window + extra),
        }
        streams = {name: (LAYOUTS[name], self.retentions[name]) for name in LAYOUTS}
        self.plans = Needs(streams=streams, first_clip=2, reserve=reserve).plan()
        self.bound = sum(plan.num_bytes for plan in self.plans.values())
        self.mark = 0.0
        root = Branch(Memory(self.plans), Expected({name: {} for name in LAYOUTS}))
        self.living = [root]
        return root

    @rule(branch=branches, num_frames=st.integers(1, 2), keep=st.sampled_from(Keep), accept=st.booleans())
    def look(self, branch: Branch, num_frames: int, keep: Keep, accept: bool) -> None:
        if branch not in self.living:
            return
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
            if accept and keep is not Keep.NO:
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
        one = Tokens(np.array([frame]), np.array([index]), np.array([0]))
        return bool(self.retentions[name].stays(one, num_kept=num_kept)[0])

    @precondition(lambda self: len(self.living) < 5)
    @rule(target=branches, branch=branches)
    def fork(self, branch: Branch) -> Branch:
        if branch not in self.living:
            return multiple()  # type: ignore[return-value]
        child = Branch(branch.memory.fork(), branch.expected)
        self.living.append(child)
        return child

    @rule(branch=consumes(branches))
    def end(self, branch: Branch) -> None:
        if branch is not self.living[0] and branch in self.living:
            branch.memory.close()
            self.living.remove(branch)

    @rule(branch=branches)
    def commit_fork(self, branch: Branch) -> None:
        if branch is self.living[0] or branch not in self.living:
            return
        parent = next((other for other in self.living if other.memory is branch.memory._parent), None)
        try:
            branch.memory.commit_fork()
        except ForkError:
            return
        assert parent is not None
        parent.expected = branch.expected
        self.living.remove(branch)

    @rule(branch=branches)
    def clear(self, branch: Branch) -> None:
        if branch in self.living:
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
            slab = self.living[0].memory._ground.slabs[name]
            use = self.living[0].memory.use()[name]
            assert use.live + use.held + use.staged + use.free == use.num_slots == slab.num_slots
            owned = [branch.memory._live[name].own.slot for branch in self.living]
            every = np.concatenate(owned)
            assert len(np.unique(every)) == len(every) == use.live
            assert np.all(slab._state[every] == SlotState.LIVE)
            seen = np.concatenate([branch.memory.tokens(name).slot for branch in self.living])
            assert np.all(np.isin(slab._state[seen], (SlotState.LIVE, SlotState.HELD)))
            if len(self.living) == 1:
                assert use.held == 0

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
        slab = memory._ground.slabs[name]
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
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
