"""Which segments of a dialogue are evicted, for want of room or of positions, and its state without them.

Pure functions of the state: `dialogue_memory` revises and forgets what they name, and takes over what they return.
Within its range of positions a dialogue stays thus: the oldest grids leave, what is left of their clips moves back.

    reached   | sink | a  b  c     d  e  f |  g      g would stand beyond the range
    after     | sink | c     d  e  f  g    |         a and b have left, and the clip begins at c
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from jaxtyping import Int64

from longtake.errors import InputError, MemoryFullError
from longtake.language.dialogue_state import ClosedClip, DialogueState, OpenClip
from longtake.language.positions import VideoSpan
from longtake.language.prompt_builder import TokenInputs
from longtake.language.rope_shift import Gap, closed_up
from longtake.memory.policy import Segment, SegmentPolicy

Tokens = Int64[np.ndarray, " tokens"]
_Clip = TypeVar("_Clip", ClosedClip, OpenClip)
# Each time a quarter of the range or more becomes free, so that a key is corrected a few times in its life at most.
_SHARE = 4


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


@dataclass(frozen=True, slots=True)
class Later:
    """What is left of a clip that now begins so many positions later: its grids move back in time by as many."""

    grids: tuple[Segment, ...]
    back: int


@dataclass(frozen=True, slots=True)
class RangeShift:
    """What a dialogue does to stay within its range: what leaves, which keys are revised, and the state after."""

    leaving: list[Segment]
    later: list[Later]
    after: DialogueState


def positions_back(
    moving: Sequence[Later], live: Tokens
) -> tuple[Int64[np.ndarray, " moving"], Int64[np.ndarray, " moving"]]:
    """Those of these tokens that move back in time, in their order, and by how many positions each."""
    back = np.zeros(len(live), dtype=np.int64)
    for later in moving:
        back[np.isin(live, tokens_of(later.grids))] = later.back
    return live[back > 0], back[back > 0]


def range_shift(
    state: DialogueState,
    times_s: Sequence[float],
    live: Tokens,
    *,
    next_token: int,
    reach: int,
    per_second: float,
    policy: SegmentPolicy,
) -> RangeShift | None:
    """For grids of these times to stand within `reach`, of `live` tokens; None where nothing is to move."""
    leaving = leaving_for_range(state, times_s, reach, per_second, policy)
    if leaving is None:
        return None
    staying = remaining(live, leaving)
    after = within_range(state, leaving, times_s[0], staying, next_token=next_token, per_second=per_second)
    return RangeShift(leaving, later_clips(state, leaving, per_second), after)


def leaving_for_range(
    state: DialogueState, times_s: Sequence[float], reach: int, per_second: float, policy: SegmentPolicy
) -> list[Segment] | None:
    """What leaves, if clips must move for grids of these times to stand within reach; None where nothing is to move.

    The oldest leave, as few as free a share of the range. Nothing does where not even that would be enough, since words
    take up the range, or where nothing may leave at all.
    """
    num_beyond = _position(state, times_s, per_second) - reach + 1
    if num_beyond <= 0 or (state.clip is None and not state.closed):
        return None
    num_wanted, segments = max(num_beyond, reach // _SHARE), state.segments
    count = bisect_left(
        range(len(segments) + 1),
        num_wanted,
        key=lambda at: _num_freed(state, segments[at:], times_s[0], per_second),
    )
    if count > len(segments) or (count and not policy.leaving(segments, 1)):
        return None
    return list(segments[:count])


def later_clips(state: DialogueState, leaving: Sequence[Segment], per_second: float) -> list[Later]:
    """What is to be revised, once these leave."""
    gone = {segment.first for segment in leaving}
    left = [segment for segment in state.segments if segment.first not in gone]
    clips: list[ClosedClip | OpenClip] = [*state.closed, *([] if state.clip is None else [state.clip])]
    found = [
        Later(tuple(grids), _back(clip, grids[0].time_s, per_second))
        for clip, grids in zip(clips, by_clip(left, state.closed), strict=False)
        if grids
    ]
    return [later for later in found if later.back]


def within_range(
    state: DialogueState,
    leaving: Sequence[Segment],
    first_s: float,
    staying: Tokens,
    *,
    next_token: int,
    per_second: float,
) -> DialogueState:
    """The state once these have left, and every clip begins at the oldest grid left of it, or at the one coming."""
    state = without(state, leaving, staying, next_token=next_token)
    left = by_clip(state.segments, state.closed)
    closed = tuple(
        _begun_later(clip, grids[0].time_s, per_second) for clip, grids in zip(state.closed, left, strict=False)
    )
    gaps = [
        Gap(before.end - 1, extent(state, before) - extent(state, after))
        for before, after in zip(state.closed, closed, strict=True)
    ]
    state = behind_moved(replace(state, closed=closed), gaps, staying, next_token=next_token)
    if state.clip is None:
        return state
    assert state.fit is not None
    clip = _begun_later(state.clip, left[-1][0].time_s if left[-1] else first_s, per_second)
    span = VideoSpan((clip.last_time,), state.fit.rows, state.fit.columns)
    return replace(state, clip=clip, next_position=clip.base + span.extent)


def _position(state: DialogueState, times_s: Sequence[float], per_second: float) -> int:
    """Where the last of the coming grids would stand."""
    base, start_s = (state.next_position, times_s[0]) if state.clip is None else (state.clip.base, state.clip.start_s)
    return base + int((times_s[-1] - start_s) * per_second)


def _num_freed(state: DialogueState, left: Sequence[Segment], first_s: float, per_second: float) -> int:
    """By how many positions what comes next moves back if these are left."""
    *closed, still_open = by_clip(left, state.closed)
    freed = 0
    for clip, grids in zip(state.closed, closed, strict=True):
        after = extent(state, _begun_later(clip, grids[0].time_s, per_second)) if grids else 0
        freed += extent(state, clip) - after
    if state.clip is not None:
        freed += _back(state.clip, still_open[0].time_s if still_open else first_s, per_second)
    return freed


def _back(clip: ClosedClip | OpenClip, oldest_s: float, per_second: float) -> int:
    """By how many positions a clip begins before a moment."""
    return int((oldest_s - clip.start_s) * per_second)


def _begun_later(clip: _Clip, oldest_s: float, per_second: float) -> _Clip:
    back = _back(clip, oldest_s, per_second)
    start_s = clip.start_s + back / per_second
    return replace(clip, start_s=start_s, last_time=max(0, clip.last_time - back))
