"""How a dialogue stays within its range of positions: the oldest grids leave, what is left of their clips moves back.

    reached   | sink | a  b  c     d  e  f |  g      g would stand beyond the range
    after     | sink | c     d  e  f  g    |         a and b have left, and the clip begins at c

Pure functions on what the session knows; it revises and forgets what they say, and takes over what they return.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from longtake.language.model_config import TextConfig
from longtake.language.positions import VideoSpan
from longtake.language.prompt_builder import ClosedClip, DialogueState, OpenClip
from longtake.language.rope_shift import Gap
from longtake.memory.policy import Segment, SegmentPolicy
from longtake.runtime.eviction import Tokens, behind_moved, by_clip, extent, without

# Each time a quarter of the range or more becomes free, so that a key is corrected a few times in its life at most.
_SHARE = 4
_Clip = TypeVar("_Clip", ClosedClip, OpenClip)


@dataclass(frozen=True, slots=True)
class Later:
    """What is left of a clip that now begins so many positions later: its grids move back in time by as many."""

    grids: tuple[Segment, ...]
    back: int


def leaving_for_range(
    dialogue: DialogueState, times_s: Sequence[float], reach: int, text_config: TextConfig, rule: SegmentPolicy
) -> list[Segment] | None:
    """What leaves, if clips must move for grids of these times to stand within reach; None where nothing is to move.

    The oldest leave, as few as free a share of the range. Nothing does where not even that would be enough, since words
    take up the range, or where nothing may leave at all.
    """
    num_beyond = _position(dialogue, times_s, text_config) - reach + 1
    if num_beyond <= 0 or (dialogue.clip is None and not dialogue.closed):
        return None
    num_wanted, segments = max(num_beyond, reach // _SHARE), dialogue.segments
    count = bisect_left(
        range(len(segments) + 1),
        num_wanted,
        key=lambda at: _num_freed(dialogue, segments[at:], times_s[0], text_config),
    )
    if count > len(segments) or (count and not rule.leaving(segments, 1)):
        return None
    return list(segments[:count])


def later_clips(dialogue: DialogueState, leaving: Sequence[Segment], text_config: TextConfig) -> list[Later]:
    """What is to be revised, once these leave."""
    gone = {segment.first for segment in leaving}
    left = [segment for segment in dialogue.segments if segment.first not in gone]
    clips: list[ClosedClip | OpenClip] = [*dialogue.closed, *([] if dialogue.clip is None else [dialogue.clip])]
    found = [
        Later(tuple(grids), _back(clip, grids[0].time_s, text_config))
        for clip, grids in zip(clips, by_clip(left, dialogue.closed), strict=False)
        if grids
    ]
    return [later for later in found if later.back]


def within_range(
    dialogue: DialogueState,
    leaving: Sequence[Segment],
    first_s: float,
    staying: Tokens,
    *,
    next_token: int,
    text_config: TextConfig,
) -> DialogueState:
    """The talk once these have left, and every clip begins at the oldest grid left of it, or at the one coming."""
    dialogue = without(dialogue, leaving, staying, next_token=next_token)
    left = by_clip(dialogue.segments, dialogue.closed)
    closed = tuple(
        _begun_later(clip, grids[0].time_s, text_config) for clip, grids in zip(dialogue.closed, left, strict=False)
    )
    gaps = [
        Gap(before.end - 1, extent(dialogue, before) - extent(dialogue, after))
        for before, after in zip(dialogue.closed, closed, strict=True)
    ]
    dialogue = behind_moved(replace(dialogue, closed=closed), gaps, staying, next_token=next_token)
    if dialogue.clip is None:
        return dialogue
    assert dialogue.fit is not None
    clip = _begun_later(dialogue.clip, left[-1][0].time_s if left[-1] else first_s, text_config)
    film = VideoSpan((clip.last_time,), dialogue.fit.rows, dialogue.fit.columns)
    return replace(dialogue, clip=clip, next_position=clip.base + film.extent)


def _position(dialogue: DialogueState, times_s: Sequence[float], text_config: TextConfig) -> int:
    """Where the last of the coming grids would stand."""
    base, start_s = (
        (dialogue.next_position, times_s[0]) if dialogue.clip is None else (dialogue.clip.base, dialogue.clip.start_s)
    )
    return base + int((times_s[-1] - start_s) * text_config.tokens_per_second)


def _num_freed(dialogue: DialogueState, left: Sequence[Segment], first_s: float, text_config: TextConfig) -> int:
    """By how many positions what comes next moves back if these are left."""
    *closed, still_open = by_clip(left, dialogue.closed)
    freed = 0
    for clip, grids in zip(dialogue.closed, closed, strict=True):
        after = extent(dialogue, _begun_later(clip, grids[0].time_s, text_config)) if grids else 0
        freed += extent(dialogue, clip) - after
    if dialogue.clip is not None:
        freed += _back(dialogue.clip, still_open[0].time_s if still_open else first_s, text_config)
    return freed


def _back(clip: ClosedClip | OpenClip, oldest_s: float, text_config: TextConfig) -> int:
    """By how many positions a clip begins before a moment."""
    return int((oldest_s - clip.start_s) * text_config.tokens_per_second)


def _begun_later(clip: _Clip, oldest_s: float, text_config: TextConfig) -> _Clip:
    back = _back(clip, oldest_s, text_config)
    start_s = clip.start_s + back / text_config.tokens_per_second
    return replace(clip, start_s=start_s, last_time=max(0, clip.last_time - back))
