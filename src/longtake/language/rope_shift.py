"""Rotary positions when turns or whole clips are evicted: what is after them closes up, and how far each token moved.

    written   | sink | turn 0 | turn 1 | words | turn 2 |
    later     | sink | turn 1 | words | turn 2 |            all after turn 0 have moved back by its extent

Positions are then those of a conversation that never had what left. Keys stay as they were written: what reads them
turns them once, by all that their tokens have moved (`key_rotation`), so that nothing is ever corrected twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from longtake.memory.policy import Segment

Tokens = Int64[np.ndarray, " tokens"]


@dataclass(frozen=True, slots=True)
class ShiftedRun:
    """Tokens from the conversation's `first` on, up to the next run, have moved back by so many positions."""

    first: int
    back: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Positions on which nothing stands any more; what comes after token `first` moves back by them."""

    first: int
    extent: int


def moved_back_by(runs: Sequence[ShiftedRun], token: Tokens) -> Tokens:
    """How far each of these tokens of the conversation has moved back; not at all before the first run."""
    steps = np.array([0, *(run.back for run in runs)], dtype=np.int64)
    return steps[np.searchsorted([run.first for run in runs], token, side="right")]


def closed_up(
    runs: Sequence[ShiftedRun], leaving: Sequence[Segment | Gap], staying: Tokens, *, next_token: int
) -> tuple[ShiftedRun, ...]:
    """The runs of tokens that stay when others leave; what comes from `next_token` on has not moved."""
    if not any(segment.extent for segment in leaving):
        return tuple(runs)
    token = np.sort(staying)
    back = moved_back_by(runs, token)
    for segment in leaving:
        back[token > segment.first] += segment.extent
    token, back = np.append(token, next_token), np.append(back, 0)
    return tuple(ShiftedRun(int(token[place]), int(back[place])) for place in np.flatnonzero(np.diff(back, prepend=0)))
