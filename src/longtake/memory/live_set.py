"""The tokens of one stream, or of one of its layers, that a branch remembers, in an order that keeps slots together.

    borrowed, borrowed, …      retained            (gap)        evict_next
    as the parent had them     stays if the next   a clip is    leaves if the next
    when the fork was born     clip is kept        staged here  clip is kept

A clip known to be kept sees `retained` and itself, any other sees `evict_next` too. With the clip staged in the gap
both are one run of slots. The order depends on what was committed alone, so a rejected clip or a fork leaves it as it
was."""

from dataclasses import dataclass

import numpy as np

from longtake.memory.policy import EvictionDecision, Keep, LockstepPolicy
from longtake.memory.tokens import Flags, Integers, Tokens


@dataclass(frozen=True, slots=True)
class LiveSet:
    """What one branch remembers of layers that forget together."""

    borrowed: tuple[Tokens, ...]
    retained: Tokens
    evict_next: Tokens
    layer_stats: tuple[float, ...] = ()
    """A per-layer policy's statistics of the layer."""

    @classmethod
    def empty(cls, num_layer_stats: int = 0) -> "LiveSet":
        return cls((), Tokens.empty(), Tokens.empty(), (0.0,) * num_layer_stats)

    def __len__(self) -> int:
        return sum(map(len, self.sections))

    @property
    def sections(self) -> tuple[Tokens, ...]:
        return (*self.borrowed, self.retained, self.evict_next)

    @property
    def own(self) -> Tokens:
        """What this branch wrote or owns, in attention order."""
        return Tokens.join((self.retained, self.evict_next))

    def as_birth_of_fork(self) -> "LiveSet":
        """The same tokens, all borrowed."""
        return LiveSet(self.sections, Tokens.empty(), Tokens.empty(), self.layer_stats)

    def as_before_fork(self) -> "LiveSet":
        """Of a fork that wrote nothing: the same as its parent's own, where that borrows nothing itself."""
        retained, evict_next = self.borrowed
        return LiveSet((), retained, evict_next, self.layer_stats)

    def as_merged_into(self, parent: "LiveSet") -> "LiveSet":
        """What this fork remembers, as its parent's own; the parent goes on borrowing what it borrowed itself."""
        still_borrowed, now_own = self.borrowed[: len(parent.borrowed)], self.borrowed[len(parent.borrowed) :]
        return LiveSet(
            still_borrowed, Tokens.join((*now_own, self.retained, self.evict_next)), Tokens.empty(), self.layer_stats
        )

    def seen_slots(
        self, policy: LockstepPolicy, staged: Integers, *, num_kept: int, num_coming: int, keep: Keep
    ) -> list[Integers]:
        """Slots a clip reads, a list for each block of attention; its own sit between retained and evict_next."""
        seen = (
            part.slot_where(policy.sees(part, num_kept=num_kept, num_coming=num_coming, keep=keep))
            for part in self.sections
        )
        *borrowed, retained, evict_next = seen
        return [*borrowed, np.concatenate((retained, staged, evict_next))]

    def all_slots(self, staged: Integers) -> list[Integers]:
        """Slots a clip reads where nothing is hidden from it, a list for each block of attention."""
        *borrowed, retained, evict_next = [part.slot for part in self.sections]
        return [*borrowed, np.concatenate((retained, staged, evict_next))]

    def with_clip(self, staged: Tokens) -> Tokens:
        """All tokens in the order of `all_slots`; only for layers that forget on their own, where
        `evict_next` is empty."""
        return Tokens.join((*self.borrowed, self.retained, staged))

    def after_decision(self, tokens: Tokens, decision: EvictionDecision) -> "tuple[LiveSet, Integers]":
        """The live set once a clip was decided on, survivors in order; and the own slots it gives up.

        The tokens are those of `with_clip`.
        """
        ends = np.cumsum([len(part) for part in self.borrowed], dtype=np.int64)
        parts = zip(tokens.with_stats(decision.token_stats).cut(ends), np.split(decision.stays, ends), strict=True)
        *borrowed, (queue, stays) = parts
        survivors = tuple(part.take(flags) for part, flags in borrowed)
        return LiveSet(survivors, queue.take(stays), Tokens.empty(), decision.layer_stats), queue.slot[~stays]

    def after_commit(self, staged: Tokens, policy: LockstepPolicy, *, num_kept: int) -> "tuple[LiveSet, Integers]":
        """The live set once `num_kept` frames are kept, the last of them staged; and the own slots it gives up."""
        queue = Tokens.join((self.retained, staged, self.evict_next))
        stays = policy.stays(queue, num_kept=num_kept)
        leaves_next = ~policy.sees(queue, num_kept=num_kept, num_coming=1, keep=Keep.YES)
        retained, evict_next = _split_retained(queue, stays=stays, leaves_next=leaves_next)
        borrowed = tuple(part.take(policy.stays(part, num_kept=num_kept)) for part in self.borrowed)
        return LiveSet(borrowed, retained, evict_next, self.layer_stats), queue.slot[~stays]

    def without(self, frames: Integers) -> "tuple[LiveSet, Integers]":
        """The live set without these frames, and the own slots it gives up; those at the back fill the holes."""
        queue = self.own
        stays = ~np.isin(queue.frame, frames)
        leaves_next = np.arange(len(queue)) >= len(self.retained)
        retained, evict_next = _split_retained(queue, stays=stays, leaves_next=leaves_next)
        borrowed = tuple(part.take(~np.isin(part.frame, frames)) for part in self.borrowed)
        return LiveSet(borrowed, retained, evict_next, self.layer_stats), queue.slot[~stays]

    def packed_slots(self, frame: int, num_slots: int) -> Integers:
        """Where own tokens lie when nothing stands in the way: retained from 0, a gap for one frame, then
        evict_next."""
        num_retained, num_own = len(self.retained), len(self.retained) + len(self.evict_next)
        slot = np.arange(num_own)
        slot[num_retained:] += min(frame, num_slots - num_own)
        return slot

    def at(self, slot: Integers) -> "LiveSet":
        """The same own tokens in other slots."""
        num_retained = len(self.retained)
        retained, evict_next = self.retained.at(slot[:num_retained]), self.evict_next.at(slot[num_retained:])
        return LiveSet(self.borrowed, retained, evict_next, self.layer_stats)


def _split_retained(queue: Tokens, *, stays: Flags, leaves_next: Flags) -> tuple[Tokens, Tokens]:
    """Split the queue into retained and evict_next; retained tokens stay in place, those at the back fill the holes."""
    retained = stays & ~leaves_next
    num_retained = int(np.count_nonzero(retained))
    order = np.arange(num_retained)
    order[~retained[:num_retained]] = np.flatnonzero(retained[num_retained:]) + num_retained
    return queue.take(order), queue.take(stays & leaves_next)
