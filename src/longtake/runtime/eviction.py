"""Which segments of a dialogue are evicted for want of room, and its state without them.

Pure functions of the state: `dialogue_memory` forgets what they name, and takes over what they return.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Int64

from longtake.errors import InputError, MemoryFullError
from longtake.language.dialogue_state import ClosedClip, DialogueState
from longtake.language.positions import VideoSpan
from longtake.language.prompt_builder import TokenInputs
from longtake.language.rope_shift import Gap, closed_up
from longtake.memory.policy import Segment, SegmentPolicy

Tokens = Int64[np.ndarray, " tokens"]


def leaving_for(segments: Sequence[Segment], num_missing: int, num_places: int, policy: SegmentPolicy) -> list[Segment]:
    """What is evicted so that so many more tokens find room among `num_places`; refused where that is too little."""
    leaving = policy.leaving(segments, max(0, num_missing))
    if num_missing > sum(segment.num_tokens for segment in leaving):
        raise MemoryFullError(
            f"The memory has room for {num_places} tokens beside those for answers, and the next frames need "
            f"{num_missing} more than are left; give it a larger budget, smaller frames, or let old ones leave."
        )
    return leaving


def beside_questions(num_tokens: int, time_s: float, patience_s: float) -> MemoryFullError:
    """The error for frames that would find room, were it not for what questions under way still read."""
    return MemoryFullError(
        f"Frames from {time_s:g} s on need {num_tokens} places, but those of frames that left are held for questions "
        f"under way, and {patience_s:g} s of patience were not enough; wait for the questions to end, or call `see` "
        "with a larger `patience_s`; beside open forks, `reserve_tokens` keeps room."
    )


def require_positions(inputs: TokenInputs, max_positions: int) -> None:
    """Refuse tokens that would stand where the network knows no position."""
    last = int(inputs.rows.max())
    if last >= max_positions:
        raise InputError(
            f"The model knows {max_positions} positions, but a token would stand at {last}; let frames "
            "leave the memory, let questions under way end so that the clip can be moved back, or reset the session."
        )


def tokens_of(segments: Sequence[Segment]) -> Tokens:
    """Which tokens of the conversation these are."""
    runs = [np.arange(segment.first, segment.first + segment.num_tokens) for segment in segments]
    return np.concatenate([np.empty(0, dtype=np.int64), *runs])


def remaining(live: Tokens, leaving: Sequence[Segment]) -> Int64[np.ndarray, " left"]:
    """Those of these tokens that are of no segment that leaves."""
    return live[~np.isin(live, tokens_of(leaving))] if leaving else live


def without(state: DialogueState, leaving: Sequence[Segment], staying: Tokens, *, next_token: int) -> DialogueState:
    """The state once these are evicted: what stays, remembered words among it, closes up where turns or clips were."""
    gone = {segment.first for segment in leaving}
    segments = tuple(segment for segment in state.segments if segment.first not in gone)
    left = by_clip(segments, state.closed)
    empty = [
        Gap(clip.end - 1, extent(state, clip)) for clip, grids in zip(state.closed, left, strict=False) if not grids
    ]
    after = replace(
        state,
        segments=segments,
        num_forgotten=state.num_forgotten + len(leaving),
        closed=tuple(clip for clip, grids in zip(state.closed, left, strict=False) if grids),
    )
    return behind_moved(after, [*leaving, *empty], staying, next_token=next_token)


def behind_moved(
    state: DialogueState, gaps: Sequence[Segment | Gap], staying: Tokens, *, next_token: int
) -> DialogueState:
    """The state once all that stands behind each of these has moved back by its extent, as a whole."""
    back = sum(gap.extent for gap in gaps)
    return replace(
        state,
        next_position=state.next_position - back,
        clip=None if state.clip is None else replace(state.clip, base=state.clip.base - back),
        moved=closed_up(state.moved, gaps, staying, next_token=next_token),
    )


def by_clip(segments: Sequence[Segment], closed: Sequence[ClosedClip]) -> list[list[Segment]]:
    """The grids of each closed clip, and last those after all of them."""
    if not closed:
        return [list(segments)]
    ends = [clip.end for clip in closed]
    grids: list[list[Segment]] = [[] for _ in range(len(ends) + 1)]
    for segment in segments:
        grids[bisect_right(ends, segment.first)].append(segment)
    return grids


def extent(state: DialogueState, clip: ClosedClip) -> int:
    """How many positions a clip takes up."""
    assert state.fit is not None
    return VideoSpan((clip.last_time,), state.fit.rows, state.fit.columns).extent


def placed(inputs: TokenInputs, after: DialogueState, *, next_token: int) -> TokenInputs:
    """Tokens as the conversation's from `next_token` on, moved back as far as `after`, the state after them, was."""
    back = inputs.state.next_position - after.next_position
    coming = [replace(segment, first=segment.first + next_token) for segment in inputs.segments]
    return replace(inputs, rows=inputs.rows - back, state=replace(after, segments=(*after.segments, *coming)))
