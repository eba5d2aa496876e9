"""All streams of one video, moved together: begin a clip, fork for a question, clear for a new sequence.

A memory is a branch over shared slabs. Forks are branches too: they see the memory as it was at their birth, and write
into slots of their own. A slot that a living fork can see is never overwritten; while any fork lives nothing moves.
"""

import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType, TracebackType

import numpy as np
import torch

from longtake.errors import ForkError, MemoryFullError, TransactionError
from longtake.memory.commit import live_after
from longtake.memory.eviction import Eviction
from longtake.memory.retention import Keep, Retention
from longtake.memory.saved import Pieces, SavedTensors
from longtake.memory.serialization import layer_slots_pieces, restore_layer_slots
from longtake.memory.shared_pool import LayerSlots, SharedPool, StreamPlan, StreamUse, layer_slots_name, use_of
from longtake.memory.slab import SlotState
from longtake.memory.stream import LiveSet
from longtake.memory.tokens import Integers, Tokens
from longtake.memory.transaction import Rows, Staged, Transaction
from longtake.memory.view import as_block, view_of


class Memory:
    """What one branch remembers of one video, in every stream."""

    def __init__(self, plans: Mapping[str, StreamPlan], device: torch.device | str = "cpu") -> None:
        pool = SharedPool(plans, torch.device(device))
        self._start(pool, {name: _empty(layer_slots) for name, layer_slots in pool.layer_slots.items()}, births={})

    def _start(self, pool: SharedPool, live: dict[str, LiveSet], births: Mapping[int, int]) -> None:
        self._pool = pool
        self._branch = pool.next_branch()
        self._live = live
        self._births = births
        self._parent: Memory | None = None
        self._parent_version = 0
        self._version = pool.epoch
        self._num_kept = 0
        self._open: Transaction | None = None
        self._closed = False

    @property
    def num_kept(self) -> int:
        """How many frames of the sequence were kept so far."""
        return self._num_kept

    @property
    def plans(self) -> Mapping[str, StreamPlan]:
        return self._pool.plans

    @property
    def num_bytes(self) -> int:
        """Bytes of all keys and values, used or not, and of what policies note: what was declared, allocated once."""
        return sum(plan.num_bytes for plan in self._pool.plans.values())

    @property
    def is_fork(self) -> bool:
        return self._parent is not None

    def tokens(self, stream: str, layer: int = 0) -> Tokens:
        """What this branch remembers of a stream's layer, in attention order; often the same for all layers."""
        layer_slots = stream if stream in self._live else layer_slots_name(stream, layer)
        return Tokens.join(self._live[layer_slots].sections)

    def use(self) -> dict[str, StreamUse]:
        """How the slots are used, over all branches."""
        with self._pool.changed:
            return {name: use_of(slab) for name, slab in self._pool.slabs.items()}

    @property
    def lock(self) -> threading.Condition:
        """Guards all branches. Hold it to do several things as one; `begin` lets go of it while it waits for room."""
        return self._pool.changed

    def begin(
        self,
        num_frames: int,
        keep: Keep,
        *,
        patience_s: float = 0.0,
        forgetting: Mapping[str, Integers] = MappingProxyType({}),
    ) -> Transaction:
        """Stage a clip in every stream. With too few free slots it waits up to `patience_s` for forks to end.

        Frames of `forgetting`, by stream, are forgotten first; only if the clip then finds room, else nothing is.
        """
        with self._pool.changed:
            self._require_usable()
            if num_frames < 1:
                raise TransactionError(f"A clip has at least one frame, but {num_frames} were announced.")
            if self._open is not None:
                raise TransactionError(
                    "This memory has a clip staged already; commit or leave it before the next begins."
                )
            taken = self._take(num_frames, patience_s, forgetting)
            ordinals = tuple(range(self._num_kept, self._num_kept + num_frames))
            staged = {name: self._stage(name, slot, num_frames, keep) for name, slot in taken.items()}
            self._open = Transaction(ordinals, keep, staged, commit=self._commit, abandon=self._abandon)
            return self._open

    def fork(self) -> "Memory":
        """A branch that sees this memory as it is now. Costs nothing; end it with `close` or a `with` block."""
        with self._pool.changed:
            self._require_usable()
            child = Memory.__new__(Memory)
            births = {**self._births, self._branch: self._pool.epoch}
            child._start(self._pool, {name: live.as_birth_of_fork() for name, live in self._live.items()}, births)
            child._parent = self
            child._num_kept = self._num_kept
            child._parent_version = self._version
            self._pool.births[child._branch] = births
            return child

    def commit_fork(self) -> None:
        """End this fork and let its parent remember what the fork does, if the parent has not moved on."""
        with self._pool.changed:
            self._require_usable()
            parent = self._require_unmoved_parent()
            pool = self._pool
            pool.epoch += 1
            del pool.births[self._branch]
            for slab in pool.slabs.values():
                slab.settle(slab.owned_by(self._branch), owner=parent._branch, epoch=pool.epoch)
            for name, live in self._live.items():
                policy = pool.layer_slots[name].plan.policy
                merged, before = live.as_merged_into(parent._live[name]), parent._live[name]
                parent._live[name], left = merged, np.empty(0, dtype=np.int64)
                if isinstance(policy, Retention):
                    parent._live[name], left = merged.after_commit(Tokens.empty(), policy, num_kept=self._num_kept)
                parent._release(name, np.concatenate((np.setdiff1d(before.own.slot, merged.own.slot), left)))
            parent._num_kept = self._num_kept
            parent._version = pool.epoch
            self._closed = True
            parent._pack()
            pool.changed.notify_all()

    def forget(self, stream: str, frames: Integers) -> None:
        """Forget these frames of one stream, whatever its policy says; others take their places, so that views stay
        one run of slots."""
        with self._pool.changed:
            self._require_usable()
            self._require_nothing_staged("forgetting frames")
            self._pool.epoch += 1
            self._live[stream], dropped = self._live[stream].without(frames)
            self._release(stream, dropped)
            self._version = self._pool.epoch
            self._pack()
            self._pool.changed.notify_all()

    def revise_keys(self, stream: str, frames: Integers, revise: Callable[[Rows], Rows]) -> bool:
        """Replace the keys of these frames in every layer by what `revise` makes of them.

        Not while a fork lives, which reads them too: then nothing happens, and the answer is false.
        """
        with self._pool.changed:
            self._require_usable()
            self._require_nothing_staged("revising keys")
            if self._pool.births:
                return False
            own, slab = self._live[stream].own, self._pool.layer_slots[stream].slab
            slot = torch.from_numpy(own.slot[np.isin(own.frame, frames)]).to(slab.device)
            for keys in slab.keys:
                keys[slot] = revise(keys[slot])
            self._pool.epoch += 1
            self._version = self._pool.epoch
            return True

    def clear(self) -> None:
        """Forget everything and start a new sequence."""
        with self._pool.changed:
            self._require_usable()
            self._require_nothing_staged("clearing")
            self._pool.epoch += 1
            for name, live in self._live.items():
                self._release(name, live.own.slot)
                self._live[name] = _empty(self._pool.layer_slots[name])
            self._num_kept = 0
            self._version = self._pool.epoch
            self._pool.changed.notify_all()

    def contents(self) -> dict[str, Pieces]:
        """All that a new memory needs to go on from here, to be written piece by piece."""
        self._require_usable()
        self._require_nothing_staged("saving")
        if self.is_fork:
            raise ForkError("A fork cannot be saved; save the memory it was made from.")
        tensors = {"num_kept": Pieces.of(torch.tensor(self._num_kept))}
        for name, live in self._live.items():
            tensors |= layer_slots_pieces(name, self._pool.layer_slots[name], live)
        return tensors

    def restore(self, saved: SavedTensors) -> None:
        """Remember what `contents` wrote; only in a new memory with the same streams."""
        with self._pool.changed:
            assert self._version == 0, "only a new memory can be restored"
            self._pool.epoch += 1
            for name, layer_slots in self._pool.layer_slots.items():
                self._live[name] = restore_layer_slots(saved, name, layer_slots)
                layer_slots.slab.settle(self._live[name].own.slot, owner=self._branch, epoch=self._pool.epoch)
            self._num_kept = int(saved["num_kept"])
            self._version = self._pool.epoch

    def close(self) -> None:
        """End this branch and give back all it owns; ending twice is fine."""
        with self._pool.changed:
            if self._closed:
                return
            self._closed = True
            if self._open is not None:
                self._open.abandon()
            pool = self._pool
            pool.epoch += 1
            pool.births.pop(self._branch, None)
            for name, live in self._live.items():
                self._release(name, live.own.slot)
            for slab in pool.slabs.values():
                slab.reclaim(pool.births.values())
            pool.changed.notify_all()

    def __enter__(self) -> "Memory":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self, num_frames: int, patience_s: float, forgetting: Mapping[str, Integers]) -> dict[str, Integers]:
        pool = self._pool
        deadline = time.monotonic() + patience_s
        while isinstance(taken := self._take_now(num_frames, forgetting), str):
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not pool.births:
                raise MemoryFullError(self._sentence_on_full(taken, num_frames))
            pool.changed.wait(left_s)
            self._require_usable()
        return taken

    def _take_now(self, num_frames: int, forgetting: Mapping[str, Integers]) -> dict[str, Integers] | str:
        """Slots for a clip, these frames forgotten; or the first stream that has too few even so, nothing forgotten."""
        for name, frames in forgetting.items():
            slab = self._pool.slabs[name]
            dropped = self._live[name].without(frames)[1]
            num_free = slab.count(SlotState.FREE) + slab.num_unseen(dropped, self._pool.births.values())
            if num_free < num_frames * slab.layout.tokens_per_frame:
                return name
        for name, frames in forgetting.items():
            self.forget(name, frames)
        return self._pool.take_all(num_frames, from_top=self.is_fork)

    def _stage(self, name: str, slot: Integers, num_frames: int, keep: Keep) -> Staged:
        layer_slots, device = self._pool.layer_slots[name], self._pool.device
        policy, layout, live = layer_slots.plan.policy, layer_slots.plan.layout, self._live[name]
        if isinstance(policy, Eviction):
            view = view_of(live.all_slots(slot), device)
            return Staged(layer_slots.slab, slot, (as_block(slot, device),), (view,), policy.wants_attention_mass)
        by_pass = slot.reshape(-1, layout.passes)
        own = by_pass[:, :0] if layout.causal else by_pass
        seen = [
            live.seen_slots(
                policy,
                own[:, : number + 1].reshape(-1),
                num_kept=self._num_kept,
                num_coming=num_frames,
                keep=keep,
            )
            for number in range(layout.passes)
        ]
        blocks = tuple(as_block(slots, device) for slots in by_pass.T)
        return Staged(
            layer_slots.slab, slot, blocks, tuple(view_of(slots, device) for slots in seen), wants_attention_mass=False
        )

    def _commit(self, transaction: Transaction) -> None:
        pool = self._pool
        with pool.changed:
            self._require_usable()
            pool.epoch += 1
            self._num_kept += len(transaction.ordinals)
            for staged in transaction.staged.values():
                staged.slab.settle(staged.slot, owner=self._branch, epoch=pool.epoch)
            for name, (live, dropped) in live_after(transaction, pool, self._live, num_kept=self._num_kept).items():
                self._live[name] = live
                self._release(name, dropped)
            self._version = pool.epoch
            self._open = None
            self._pack()
            pool.changed.notify_all()

    def _abandon(self, transaction: Transaction) -> None:
        with self._pool.changed:
            self._pool.give_back({name: staged.slot for name, staged in transaction.staged.items()})
            self._open = None
            self._pool.changed.notify_all()

    def _release(self, name: str, slot: Integers) -> None:
        slab = self._pool.layer_slots[name].slab
        slab.release(slot, epoch=self._pool.epoch, forks=self._pool.births.values())

    def _pack(self) -> None:
        """Bring own tokens together so that views are one run of slots; not while a fork may be reading."""
        if self._pool.births:
            return
        for name, layer_slots in self._pool.layer_slots.items():
            if isinstance(layer_slots.plan.policy, Eviction):
                continue  # layers share a slab, and survivors stay where they are
            slab, live = layer_slots.slab, self._live[name]
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
        if any(self._branch in births for births in self._pool.births.values()):
            raise ForkError("This fork has forks of its own that still live; end them before committing it.")
        if parent._closed or parent._version != self._parent_version:
            raise ForkError(
                "The memory has moved on since this fork was made; fork again and repeat what was asked on it."
            )
        return parent

    def _sentence_on_full(self, name: str, num_frames: int) -> str:
        use = use_of(self._pool.slabs[name])
        needed = num_frames * self._pool.plans[name].layout.tokens_per_frame
        if isinstance(self._pool.plans[name].policy, Eviction):
            needed *= self._pool.plans[name].layout.num_layers
        sentence = f"Stream '{name}' needs {needed} slots for this clip, but {use.free} of {use.num_slots} are free"
        if use.held or self._pool.births:
            forks = len(self._pool.births)
            return f"{sentence} ({use.held} held for {forks} forks); end a fork, wait, or reserve more for forks."
        return f"{sentence}; give the memory a larger budget or choose a policy that forgets."


def _empty(layer_slots: LayerSlots) -> LiveSet:
    policy = layer_slots.plan.policy
    return LiveSet.empty(policy.num_layer_stats if isinstance(policy, Eviction) else 0)
