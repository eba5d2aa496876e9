"""How a dialogue stays within its range of positions: the oldest grids leave, what is left of their clips moves back.

    reached   | sink | a  b  c     d  e  f |  g      g would stand beyond the range
    after     | sink | c     d  e  f  g    |         a and b have left, and the clip begins at c

Pure functions on what the session knows; it revises and forgets what they say, and takes over what they return.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from longtake.language.closing_up import Gap
from longtake.language.facts import TextFacts
from longtake.language.positions import Film
from longtake.language.prompting import ClosedClip, OpenClip, Talk
from longtake.language.retaining import Retaining, Segment
from longtake.runtime.making_room import Tokens, behind_moved, by_clip, extent, without

# Each time a quarter of the range or more becomes free, so that a key is corrected a few times in its life at most.
_SHARE = 4
_Clip = TypeVar("_Clip", ClosedClip, OpenClip)


@dataclass(frozen=True, slots=True)
class Later:
    """What is left of a clip that now begins so many positions later: its grids move back in time by as many."""

    grids: tuple[Segment, ...]
    back: int


def leaving_for_range(
    talk: Talk, times_s: Sequence[float], reach: int, facts: TextFacts, rule: Retaining
) -> list[Segment] | None:
    """What leaves, if clips must move for grids of these times to stand within reach; None where nothing is to move.

    The oldest leave, as few as free a share of the range. Nothing does where not even that would be enough, since words
    take up the range, or where nothing may leave at all.
    """
    num_beyond = _position(talk, times_s, facts) - reach + 1
    if num_beyond <= 0 or (talk.clip is None and not talk.closed):
        return None
    num_wanted, segments = max(num_beyond, reach // _SHARE), talk.segments
    count = bisect_left(
        range(len(segments) + 1), num_wanted, key=lambda at: _num_freed(talk, segments[at:], times_s[0], facts)
    )
    if count > len(segments) or (count and not rule.leaving(segments, 1)):
        return None
    return list(segments[:count])


def later_clips(talk: Talk, leaving: Sequence[Segment], facts: TextFacts) -> list[Later]:
    """What is to be revised, once these leave."""
    gone = {segment.first for segment in leaving}
    left = [segment for segment in talk.segments if segment.first not in gone]
    clips: list[ClosedClip | OpenClip] = [*talk.closed, *([] if talk.clip is None else [talk.clip])]
    found = [
        Later(tuple(grids), _back(clip, grids[0].time_s, facts))
        for clip, grids in zip(clips, by_clip(left, talk.closed), strict=False)
        if grids
    ]
    return [later for later in found if later.back]


def within_range(
    talk: Talk, leaving: Sequence[Segment], first_s: float, staying: Tokens, *, next_token: int, facts: TextFacts
) -> Talk:
    """The talk once these have left, and every clip begins at the oldest grid left of it, or at the one coming."""
    talk = without(talk, leaving, staying, next_token=next_token)
    left = by_clip(talk.segments, talk.closed)
    closed = tuple(_begun_later(clip, grids[0].time_s, facts) for clip, grids in zip(talk.closed, left, strict=False))
    gaps = [
        Gap(before.end - 1, extent(talk, before) - extent(talk, after))
        for before, after in zip(talk.closed, closed, strict=True)
    ]
    talk = behind_moved(replace(talk, closed=closed), gaps, staying, next_token=next_token)
    if talk.clip is None:
        return talk
    assert talk.fit is not None
    clip = _begun_later(talk.clip, left[-1][0].time_s if left[-1] else first_s, facts)
    film = Film((clip.last_time,), talk.fit.rows, talk.fit.columns)
    return replace(talk, clip=clip, next_position=clip.base + film.extent)


def _position(talk: Talk, times_s: Sequence[float], facts: TextFacts) -> int:
    """Where the last of the coming grids would stand."""
    base, start_s = (talk.next_position, times_s[0]) if talk.clip is None else (talk.clip.base, talk.clip.start_s)
    return base + int((times_s[-1] - start_s) * facts.tokens_per_second)


def _num_freed(talk: Talk, left: Sequence[Segment], first_s: float, facts: TextFacts) -> int:
    """By how many positions what comes next moves back if these are left."""
    *closed, still_open = by_clip(left, talk.closed)
    freed = 0
    for clip, grids in zip(talk.closed, closed, strict=True):
        after = extent(talk, _begun_later(clip, grids[0].time_s, facts)) if grids else 0
        freed += extent(talk, clip) - after
    if talk.clip is not None:
        freed += _back(talk.clip, still_open[0].time_s if still_open else first_s, facts)
    return freed


def _back(clip: ClosedClip | OpenClip, oldest_s: float, facts: TextFacts) -> int:
    """By how many positions a clip begins before a moment."""
    return int((oldest_s - clip.start_s) * facts.tokens_per_second)


def _begun_later(clip: _Clip, oldest_s: float, facts: TextFacts) -> _Clip:
    back = _back(clip, oldest_s, facts)
    start_s = clip.start_s + back / facts.tokens_per_second
    return replace(clip, start_s=start_s, last_time=max(0, clip.last_time - back))
