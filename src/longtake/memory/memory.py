"""All streams of one video, moved together: begin a clip, fork for a question, clear for a new sequence.

A memory is a branch over shared slabs. Forks are branches too: they see the memory as it was at their birth, and write
into slots of their own. A slot that a living fork can see is never overwritten; while any fork lives nothing moves.
"""

import time
from collections.abc import Mapping
from types import TracebackType

import numpy as np
import torch

from longtake.errors import ForkError, MemoryFullError, SavedSessionError, TransactionError
from longtake.memory.ground import Ground, StreamPlan, StreamUse, use_of
from longtake.memory.retention import Keep
from longtake.memory.saved import Pieces, SavedTensors
from longtake.memory.stream import LiveSet
from longtake.memory.tokens import Integers, Tokens
from longtake.memory.transaction import Staged, Transaction
from longtake.memory.view import as_block, view_of


class Memory:
    """What one branch remembers of one video, in every stream."""

    def __init__(self, plans: Mapping[str, StreamPlan], device: torch.device | str = "cpu") -> None:
        self._start(Ground(plans, torch.device(device)), {name: LiveSet.empty() for name in plans}, births={})

    def _start(self, ground: Ground, live: dict[str, LiveSet], births: Mapping[int, int]) -> None:
        self._ground = ground
        self._branch = ground.next_branch()
        self._live = live
        self._births = births
        self._parent: Memory | None = None
        self._parent_version = 0
        self._version = ground.epoch
        self._num_kept = 0
        self._open: Transaction | None = None
        self._closed = False

    @property
    def num_kept(self) -> int:
        """How many frames of the sequence were kept so far."""
        return self._num_kept

    @property
    def plans(self) -> Mapping[str, StreamPlan]:
        return self._ground.plans

    @property
    def num_bytes(self) -> int:
        """Bytes of all keys and values, used or not: what was declared, allocated once."""
        return sum(slab.num_bytes for slab in self._ground.slabs.values())

    @property
    def is_fork(self) -> bool:
        return self._parent is not None

    def tokens(self, stream: str) -> Tokens:
        """What this branch remembers of a stream, in attention order."""
        return Tokens.join(self._live[stream].sections)

    def use(self) -> dict[str, StreamUse]:
        """How the slots are used, over all branches."""
        with self._ground.changed:
            return {name: use_of(slab) for name, slab in self._ground.slabs.items()}

    def begin(self, num_frames: int, keep: Keep, *, patience_s: float = 0.0) -> Transaction:
        """Stage a clip in every stream. With too few free slots it waits up to `patience_s` for forks to end."""
        with self._ground.changed:
            self._require_usable()
            if num_frames < 1:
                raise TransactionError(f"A clip has at least one frame, but {num_frames} were announced.")
            if self._open is not None:
                raise TransactionError(
                    "This memory has a clip staged already; commit or leave it before the next begins."
                )
            taken = self._take(num_frames, patience_s)
            ordinals = tuple(range(self._num_kept, self._num_kept + num_frames))
            staged = {name: self._stage(name, slot, num_frames, keep) for name, slot in taken.items()}
            self._open = Transaction(ordinals, keep, staged, commit=self._commit, abandon=self._abandon)
            return self._open

    def fork(self) -> "Memory":
        """A branch that sees this memory as it is now. Costs nothing; end it with `close` or a `with` block."""
        with self._ground.changed:
            self._require_usable()
            child = Memory.__new__(Memory)
            births = {**self._births, self._branch: self._ground.epoch}
            child._start(self._ground, {name: live.as_birth_of_fork() for name, live in self._live.items()}, births)
            child._parent = self
            child._num_kept = self._num_kept
            child._parent_version = self._version
            self._ground.births[child._branch] = births
            return child

    def commit_fork(self) -> None:
        """End this fork and let its parent remember what the fork does, if the parent has not moved on."""
        with self._ground.changed:
            self._require_usable()
            parent = self._require_unmoved_parent()
            ground = self._ground
            ground.epoch += 1
            del ground.births[self._branch]
            for name, live in self._live.items():
                slab = ground.slabs[name]
                merged = live.as_merged_into(parent._live[name])
                slab.settle(slab.owned_by(self._branch), owner=parent._branch, epoch=ground.epoch)
                dropped = np.setdiff1d(slab.owned_by(parent._branch), merged.own.slot)
                retention = ground.plans[name].retention
                parent._live[name], left = merged.after_commit(Tokens.empty(), retention, num_kept=self._num_kept)
                parent._release(name, np.concatenate((dropped, left)))
            parent._num_kept = self._num_kept
            parent._version = ground.epoch
            self._closed = True
            parent._pack()
            ground.changed.notify_all()

    def clear(self) -> None:
        """Forget everything and start a new sequence."""
        with self._ground.changed:
            self._require_usable()
            self._require_nothing_staged("clearing")
            self._ground.epoch += 1
            for name, live in self._live.items():
                self._release(name, live.own.slot)
                self._live[name] = LiveSet.empty()
            self._num_kept = 0
            self._version = self._ground.epoch
            self._ground.changed.notify_all()

    def contents(self) -> dict[str, Pieces]:
        """All that a new memory needs to go on from here, to be written piece by piece."""
        self._require_usable()
        self._require_nothing_staged("saving")
        if self.is_fork:
            raise ForkError("A fork cannot be saved; save the memory it was made from.")
        tensors = {"num_kept": Pieces.of(torch.tensor(self._num_kept))}
        for name, live in self._live.items():
            slab, own = self._ground.slabs[name], live.own
            shape = (len(own), slab.layout.num_heads, slab.layout.head_dim)
            tensors[f"{name}.num_settled"] = Pieces.of(torch.tensor(len(live.settled)))
            tensors[f"{name}.frame"] = Pieces.of(torch.from_numpy(own.frame))
            tensors[f"{name}.index"] = Pieces.of(torch.from_numpy(own.index))
            view = view_of((live.settled.slot, live.doomed.slot), self._ground.device)
            for layer in range(slab.layout.num_layers):
                tensors[f"{name}.{layer}.keys"] = Pieces(slab.layout.dtype, shape, view.read(slab.keys[layer]))
                tensors[f"{name}.{layer}.values"] = Pieces(slab.layout.dtype, shape, view.read(slab.values[layer]))
        return tensors

    def restore(self, saved: SavedTensors) -> None:
        """Remember what `contents` wrote; only in a new memory with the same streams."""
        with self._ground.changed:
            assert self._version == 0, "only a new memory can be restored"
            self._ground.epoch += 1
            for name, slab in self._ground.slabs.items():
                frame, index = saved[f"{name}.frame"].numpy(), saved[f"{name}.index"].numpy()
                num_settled = int(saved[f"{name}.num_settled"])
                queue = Tokens(frame, index, np.arange(len(frame)))
                live = LiveSet((), queue.take(np.arange(num_settled)), queue.take(np.arange(num_settled, len(frame))))
                if len(queue) > slab.num_slots:
                    raise SavedSessionError(
                        f"The saved session holds {len(queue)} tokens of stream '{name}', but there are only "
                        f"{slab.num_slots} slots; resume it with the budget and policy it was saved with."
                    )
                slot = live.packed_slots(slab.layout.tokens_per_frame, slab.num_slots)
                block = torch.from_numpy(slot)
                for layer in range(slab.layout.num_layers):
                    slab.write(
                        layer, block.to(slab.device), saved[f"{name}.{layer}.keys"], saved[f"{name}.{layer}.values"]
                    )
                slab.settle(slot, owner=self._branch, epoch=self._ground.epoch)
                self._live[name] = live.at(slot)
            self._num_kept = int(saved["num_kept"])
            self._version = self._ground.epoch

    def close(self) -> None:
        """End this branch and give back all it owns; ending twice is fine."""
        with self._ground.changed:
            if self._closed:
                return
            self._closed = True
            if self._open is not None:
                self._open.abandon()
            ground = self._ground
            ground.epoch += 1
            ground.births.pop(self._branch, None)
            for name, live in self._live.items():
                self._release(name, live.own.slot)
                ground.slabs[name].reclaim(ground.births.values())
            ground.changed.notify_all()

    def __enter__(self) -> "Memory":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self, num_frames: int, patience_s: float) -> dict[str, Integers]:
        ground = self._ground
        counts = {name: num_frames * plan.layout.tokens_per_frame for name, plan in ground.plans.items()}
        deadline = time.monotonic() + patience_s
        while isinstance(taken := ground.take_all(counts, from_top=self.is_fork), str):
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not ground.births:
                raise MemoryFullError(self._sentence_on_full(taken, counts[taken]))
            ground.changed.wait(left_s)
            self._require_usable()
        return taken

    def _stage(self, name: str, slot: Integers, num_frames: int, keep: Keep) -> Staged:
        ground = self._ground
        seen = self._live[name].seen_slots(
            ground.plans[name].retention, slot, num_kept=self._num_kept, num_coming=num_frames, keep=keep
        )
        return Staged(ground.slabs[name], slot, as_block(slot, ground.device), view_of(seen, ground.device))

    def _commit(self, transaction: Transaction) -> None:
        ground = self._ground
        with ground.changed:
            self._require_usable()
            ground.epoch += 1
            self._num_kept += len(transaction.ordinals)
            for name, staged in transaction.staged.items():
                plan = ground.plans[name]
                new = Tokens.of_frames(transaction.ordinals, plan.layout.tokens_per_frame, staged.slot)
                staged.slab.settle(staged.slot, owner=self._branch, epoch=ground.epoch)
                self._live[name], dropped = self._live[name].after_commit(new, plan.retention, num_kept=self._num_kept)
                self._release(name, dropped)
            self._version = ground.epoch
            self._open = None
            self._pack()
            ground.changed.notify_all()

    def _abandon(self, transaction: Transaction) -> None:
        with self._ground.changed:
            self._ground.give_back({name: staged.slot for name, staged in transaction.staged.items()})
            self._open = None
            self._ground.changed.notify_all()

    def _release(self, name: str, slot: Integers) -> None:
        self._ground.slabs[name].release(slot, epoch=self._ground.epoch, forks=self._ground.births.values())

    def _pack(self) -> None:
        """Bring own tokens together so that views are one run of slots; not while a fork may be reading."""
        if self._ground.births:
            return
        for name, slab in self._ground.slabs.items():
            live = self._live[name]
            target = live.packed_slots(slab.layout.tokens_per_frame, slab.num_slots)
            source = live.own.slot
            moved = source != target
            if moved.any():
                slab.move(source[moved], target[moved])
                self._live[name] = live.at(target)

    def _require_usable(self) -> None:
        if self._closed:
            raise ForkError("This fork has ended; fork the memory again.")

    def _require_nothing_staged(self, doing: str) -> None:
        if self._open is not None:
            raise TransactionError(f"A clip is staged; commit or leave it before {doing}.")

    def _require_unmoved_parent(self) -> "Memory":
        parent = self._parent
        if parent is None:
            raise ForkError("Only a fork can be committed into its parent; this memory has none.")
        self._require_nothing_staged("committing the fork")
        parent._require_nothing_staged("committing the fork")
        if any(self._branch in births for births in self._ground.births.values()):
            raise ForkError("This fork has forks of its own that still live; end them before committing it.")
        if parent._closed or parent._version != self._parent_version:
            raise ForkError(
                "The memory has moved on since this fork was made; fork again and repeat what was asked on it."
            )
        return parent

    def _sentence_on_full(self, name: str, needed: int) -> str:
        use = use_of(self._ground.slabs[name])
        sentence = f"Stream '{name}' needs {needed} slots for this clip, but {use.free} of {use.num_slots} are free"
        if use.held or self._ground.births:
            forks = len(self._ground.births)
            return f"{sentence} ({use.held} held for {forks} forks); end a fork, wait, or reserve more for forks."
        return f"{sentence}; give the memory a larger budget or choose a policy that forgets."
