"""One clip's staged writes, in all streams at once: committed as a whole, or gone without a trace."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from jaxtyping import Float32
from torch import Tensor

from longtake.errors import TransactionError
from longtake.memory.books import Books
from longtake.memory.change import Change, change_together
from longtake.memory.policy import Keep
from longtake.memory.shared_pool import PoolState, SharedPool, StagedClip, own_slots
from longtake.memory.slots import Rows, Seen, Slab, View, view_of
from longtake.memory.stream import Live, Outcome, Staged, WrittenClip
from longtake.memory.tokens import Integers, Tokens

AttentionMass = Float32[Tensor, "_"]


class Transaction:
    """The life of one clip. Leaving the `with` block without `commit`, or dropping it, leaves no trace."""

    def __init__(
        self,
        memory: object,
        pool: SharedPool,
        branch: int,
        *,
        ordinals: tuple[int, ...],
        keep: Keep,
        clip: StagedClip,
        staged: Mapping[str, tuple[Staged, ...]],
        past: Mapping[str, Live],
        forgetting: Mapping[str, Integers],
        books: Mapping[str, Books],
    ) -> None:
        self.ordinals = ordinals
        """For each frame, how many frames of its sequence were kept before it."""
        self.keep = keep
        self.staged = staged
        """By stream, the clip's place in every set of layers that forget together."""
        self.books = books
        """Of streams that are staged on the device instead, what is remembered."""
        self._memory = memory  # a fork ends with its object: not before its clip
        self._pool = pool
        self._branch = branch
        self._clip = clip
        self._past = past
        self._forgetting = forgetting
        self._attention_mass: dict[tuple[str, int], AttentionMass] = {}
        self._written: set[tuple[str, int]] = set()
        self._books_after: dict[str, Books] = {}
        pool.end_with(self, branch, clip)

    def __enter__(self) -> "Transaction":
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def write(self, stream: str, layer: int, k: Rows, v: Rows) -> None:
        """Store the clip's keys and values of one layer in its staged slots.

        Where layers are written in several passes, `layer` counts through all layers of the first, then of the next.
        """
        self._require_open()
        group, number, slab_layer = self._pool.streams[stream].find(layer)
        staged = self.staged[stream][group]
        num_expected = len(staged.slot) // len(staged.blocks)
        if len(k) != num_expected:
            raise TransactionError(
                f"Stream '{stream}' has {num_expected} slots staged for this clip, but {len(k)} tokens came; "
                "begin the transaction with the number of frames the model is given."
            )
        slab, block = self._pool.streams[stream].slab, staged.blocks[number]
        if self._clip.rewrites:
            for storage in (slab.keys[slab_layer], slab.values[slab_layer]):
                self._clip.before.note(storage, block, slab.device)
        slab.write(slab_layer, block, k, v)
        self._written.add((stream, layer))

    def note_overwritten(self, stream: str) -> None:
        """Note what is in the clip's slots of a stream, for whoever is about to write them all as `staged` says."""
        self._require_open()
        if not self._clip.rewrites:
            return
        slab = self._pool.streams[stream].slab
        for layer in range(self._pool.streams[stream].num_writes):
            group, number, slab_layer = self._pool.streams[stream].find(layer)
            for storage in (slab.keys[slab_layer], slab.values[slab_layer]):
                self._clip.before.note(storage, self.staged[stream][group].blocks[number], slab.device)

    def mark_written(self, stream: str) -> None:
        """All layers of a stream are written, by whoever has called `note_overwritten`."""
        self._require_open()
        self._written.update((stream, layer) for layer in range(self._pool.streams[stream].num_writes))

    def revise_keys(self, stream: str, frames: Integers, revise: Callable[[Rows], Rows]) -> None:
        """Replace the keys of these remembered frames, in attention order, by what `revise` makes of those of a layer.

        Only in a clip begun as `rewriting`; if that is not kept, they are what they were.
        """
        self._require_open()
        assert self._clip.rewrites, "a fork may be reading these keys"
        own = Tokens.join(part.own for part in self._past[stream])
        slot = own.slot[np.isin(own.frame, frames)]
        self._pool.streams[stream].slab.revise_keys(slot, revise, self._clip.before)

    def slab(self, stream: str) -> Slab:
        """Where the keys and values of a stream lie."""
        return self._pool.streams[stream].slab

    def past(self, stream: str, layer: int = 0) -> Tokens:
        """What is remembered of a stream's layer while the clip is read, in attention order."""
        group, _, _ = self._pool.streams[stream].find(layer)
        return Tokens.join(self._past[stream][group].sections)

    def read(self, stream: str, layer: int) -> Iterator[tuple[Rows, Rows]]:
        """Keys and values the clip may see in one layer, block by block."""
        return self.seen(stream, layer).blocks()

    def seen(self, stream: str, layer: int) -> Seen:
        """All keys and values of one layer, and which of them the clip may see."""
        self._require_open()
        group, number, slab_layer = self._pool.streams[stream].find(layer)
        view, slab = self.staged[stream][group].views[number], self._pool.streams[stream].slab
        return Seen(slab.keys[slab_layer], slab.values[slab_layer], slab.where[slab_layer], view)

    def past_and_tail(self, stream: str, most: int | None = None) -> tuple[View, Integers]:
        """What a clip sees where all layers forget together, in two parts, the latter with its own slots.

        They part where a fork was born, which never changes; but where more than `most` slots came since then, or this
        is no fork, they part where the clip begins.
        """
        self._require_open()
        (live,), slot = self._past[stream], self.staged[stream][0].slot
        if live.borrowed and (most is None or len(live.own) + len(slot) <= most):
            return view_of(
                (part.slot for part in live.borrowed), self._pool.streams[stream].slab.device
            ), np.concatenate((live.own.slot, slot))
        return view_of((part.slot for part in live.sections), self._pool.streams[stream].slab.device), slot

    def wants_attention_mass(self, stream: str, layer: int) -> bool:  # noqa: ARG002
        """Whether the stream's policy must know what each key got of the attention, should the clip be kept."""
        return self.keep is not Keep.NO and self._pool.streams[stream].wants_attention_mass

    def record_attention_mass(self, stream: str, layer: int, attention_mass: AttentionMass) -> None:
        """What each key of the view got of the clip's attention in one layer, in the order of the view."""
        self._attention_mass[stream, layer] = attention_mass

    def record_books(self, stream: str, books: Books) -> None:
        """What is remembered of a stream that is staged on the device, should the clip be kept."""
        self._books_after[stream] = books

    def commit(self, *, num_frames: int | None = None) -> None:
        """Keep the clip, or its first `num_frames`: its tokens become part of the memory, and what the policies evict
        leaves.

        On an error nothing has changed, and the clip is still staged.
        """
        change_together(partial(self.commit_with, num_frames=num_frames))

    def commit_with(self, change: Change, *, num_frames: int | None = None) -> None:
        """The same as a part of a change."""
        self._require_open()
        self._require_complete()
        with self._pool.lock:
            state = self._pool.latest()
            self._require_open()
            committed = self._committed(state, len(self.ordinals) if num_frames is None else num_frames)
            self._pool.publish_with(committed, change)

    def abandon(self) -> None:
        """Drop the clip, unless it was committed."""
        with self._pool.lock:
            self._pool.latest()
            self._pool.unstage(self._branch, self._clip)

    def _committed(self, state: PoolState, num_frames: int) -> PoolState:
        clip, staged = self._clip, self.staged
        if self._forgetting:
            forgotten = self._pool.without(state.unstaged(self._branch), self._branch, self._forgetting)
            state = forgotten.staging(self._branch, clip)
        if num_frames < len(self.ordinals):
            staged = {
                name: tuple(each.first(num_frames, len(self.ordinals)) for each in staged[name]) for name in staged
            }
            slots = {name: np.concatenate([each.slot for each in staged[name]]) for name in staged}
            state = state.unstaged(self._branch).staging(self._branch, replace(clip, slots=slots))
        live, ordinals = state.branches[self._branch].live, self.ordinals[:num_frames]
        outcomes = {name: self._outcome(name, live[name], staged[name], ordinals) for name in staged}
        books = {} if state.forks else self._books_after
        if not books:
            outcomes |= {name: self._outcome_of_books(name, state) for name in self.books}
        committed = state.committed(self._branch, outcomes, num_kept=ordinals[-1] + 1)
        return self._pool.with_packing(committed.keeping(books), self._branch)

    def _outcome_of_books(self, name: str, state: PoolState) -> Outcome:
        """Where a fork was born meanwhile, the host has to know."""
        branch, bookkeeping = state.branches[self._branch], self._pool.streams[name].bookkeeping
        assert state.is_known
        assert branch.staged is not None
        assert bookkeeping is not None
        after = bookkeeping.read(self._books_after[name])
        before = np.concatenate((own_slots(branch.live[name]), branch.staged.slots[name]))
        return Outcome(after, np.setdiff1d(before, own_slots(after)))

    def _outcome(self, name: str, live: Live, staged: tuple[Staged, ...], ordinals: tuple[int, ...]) -> Outcome:
        stream = self._pool.streams[name]
        mass = tuple(self._attention_mass[name, layer] for layer in self._layers_with_mass(name))
        clip = WrittenClip(ordinals=ordinals, staged=staged, attention_mass=mass)
        return stream.after_commit(live, clip)

    def _layers_with_mass(self, name: str) -> range:
        """Layers whose attention the stream's policy must know."""
        stream = self._pool.streams[name]
        return range(stream.num_writes if stream.wants_attention_mass and name not in self.books else 0)

    def _require_complete(self) -> None:
        if self.keep is Keep.NO:
            raise TransactionError(
                "This clip was declared as not kept; begin it as kept or judged afterwards to commit it."
            )
        missing = [
            f"{name} layer {layer}"
            for name, stream in self._pool.streams.items()
            for layer in range(stream.num_writes)
            if (name, layer) not in self._written
        ]
        missing += [
            f"{stream.set_names[layer]} attention"
            for name, stream in self._pool.streams.items()
            for layer in self._layers_with_mass(name)
            if (name, layer) not in self._attention_mass
        ]
        missing += [f"{name} books" for name in self.books if name not in self._books_after]
        if missing:
            raise TransactionError(
                f"The model did not write {missing[0]} ({len(missing)} missing in all); nothing is kept."
            )

    def _require_open(self) -> None:
        if not self._pool.is_staged(self._branch, self._clip):
            raise TransactionError("This transaction has ended; begin a new one.")
