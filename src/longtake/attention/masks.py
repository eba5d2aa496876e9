"""Which token of a whole clip may see which: a retention policy played through on paper, without any slots."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from longtake.memory.policy import Keep, LockstepPolicy
from longtake.memory.tokens import Tokens

Mask = Bool[Tensor, "queries keys"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """One step of a sequence: how many frames came together, what was known of them, and whether they were kept."""

    num_frames: int
    keep: Keep
    kept: bool


def arrivals(num_scale_frames: int, kept: Sequence[bool], *, judged_later: bool = False) -> tuple[Arrival, ...]:
    """A scale block, then single frames, each kept or not."""

    def known(is_kept: bool) -> Keep:
        if judged_later:
            return Keep.DEFERRED
        return Keep.YES if is_kept else Keep.NO

    return (
        Arrival(num_scale_frames, Keep.YES, kept=True),
        *(Arrival(1, known(is_kept), kept=is_kept) for is_kept in kept),
    )


def clip_ordinals(sequence: Sequence[Arrival]) -> tuple[int, ...]:
    """For each frame, how many frames were kept before it."""
    return tuple(ordinal for _, ordinals in _with_ordinals(sequence) for ordinal in ordinals)


def clip_mask(retention: LockstepPolicy, sequence: Sequence[Arrival], tokens_per_frame: int) -> Mask:
    """What each token of the clip sees under this policy; rows and columns in the clip's order."""
    size = sum(arrival.num_frames for arrival in sequence) * tokens_per_frame
    mask = np.zeros((size, size), dtype=np.bool_)
    remembered = Tokens.empty()
    start = 0
    for arrival, ordinals in _with_ordinals(sequence):
        rows = np.arange(start, start + arrival.num_frames * tokens_per_frame)
        start += len(rows)
        new = Tokens.of_frames(ordinals, tokens_per_frame, rows)
        seen = retention.sees(remembered, num_kept=ordinals[0], num_coming=len(ordinals), keep=arrival.keep)
        mask[np.ix_(rows, remembered.slot[seen])] = True
        mask[np.ix_(rows, rows)] = True
        if arrival.kept:
            remembered = Tokens.join((remembered, new))
            remembered = remembered.take(retention.stays(remembered, num_kept=ordinals[-1] + 1))
    return torch.from_numpy(mask)


def _with_ordinals(sequence: Sequence[Arrival]) -> Iterator[tuple[Arrival, range]]:
    num_kept = 0
    for arrival in sequence:
        yield arrival, range(num_kept, num_kept + arrival.num_frames)
        num_kept += arrival.num_frames if arrival.kept else 0
