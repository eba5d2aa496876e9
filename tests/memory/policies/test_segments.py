"""Which segments of a dialogue leave when its memory is full."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtake.errors import SettingError
from longtake.memory.policies.lockstep import KeepAll, Window
from longtake.memory.policies.thinned import Novel, Thinned
from longtake.memory.policy import Segment, SegmentPolicy

RULES = [Window.for_dialogue(), Window(anchors=0, window=3), Thinned(recent=2), Novel(recent=2)]


def segments(times: Sequence[float], novelty: Sequence[float] | None = None, num_tokens: int = 4) -> list[Segment]:
    return [
        Segment(first=place * num_tokens, num_tokens=num_tokens, time_s=time_s, novelty=new)
        for place, (time_s, new) in enumerate(zip(times, novelty or [1.0] * len(times), strict=True))
    ]


@pytest.mark.parametrize("rule", RULES)
@given(st.integers(0, 12), st.integers(0, 60))
def test_enough_leaves_and_nothing_twice(rule: SegmentPolicy, count: int, num_missing: int) -> None:
    given_ = segments([float(second) for second in range(count)])
    leaving = rule.leaving(given_, num_missing)
    freed = sum(segment.num_tokens for segment in leaving)
    assert freed >= min(num_missing, 4 * count)
    assert len({segment.first for segment in leaving}) == len(leaving)
    assert all(segment in given_ for segment in leaving)
    spare = 0 if not isinstance(rule, Window) or rule.window is None else max(0, count - rule.window)
    assert len(leaving) <= max(spare, -(-num_missing // 4))


def test_oldest_leave_first() -> None:
    given_ = segments([0.0, 1.0, 2.0, 3.0])
    assert Window.for_dialogue().leaving(given_, 5) == given_[:2]
    assert Window(anchors=0, window=1).leaving(given_, 0) == given_[:3]
    assert KeepAll().leaving(given_, 99) == []


def test_anchors_stay_beside_the_newest() -> None:
    given_ = segments([0.0, 1.0, 2.0, 3.0])
    assert Window(anchors=1, window=2).leaving(given_, 0) == given_[1:2]
    assert Window(anchors=1, window=2).leaving(given_, 99) == given_[1:]


def test_past_is_thinned_evenly_and_the_recent_stay() -> None:
    given_ = segments([float(second) for second in range(10)])
    left = [segment for segment in given_ if segment not in Thinned(recent=2).leaving(given_, 16)]
    assert [segment.time_s for segment in left] == [0.0, 2.0, 4.0, 6.0, 8.0, 9.0]


def test_past_is_thinned_where_nothing_happened() -> None:
    given_ = segments([0.0, 1.0, 2.0, 3.0, 4.0], novelty=[9.0, 0.5, 0.1, 0.3, 0.0])
    leaving = Novel(recent=1).leaving(given_, 8)
    assert [segment.time_s for segment in leaving] == [2.0, 3.0]


def test_rule_that_keeps_nothing_recent_is_refused() -> None:
    with pytest.raises(SettingError, match="window >= 1, or None for all that fit, but got 0 and 0"):
        Window(anchors=0, window=0)
    with pytest.raises(SettingError, match="1 recent grid or more"):
        Thinned(recent=0)
