"""What leaves when the memory of a dialogue is full: pure rules, and sessions that watch for hours within a bound."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtake.errors import SettingError
from longtake.language.retaining import (
    NAMES,
    KeepUntilFull,
    RecentFrames,
    Retaining,
    Segment,
    ThinnedPast,
    dialogue_policy_named,
)

RULES = [RecentFrames(), RecentFrames(most=3), ThinnedPast(recent=2), ThinnedPast(recent=2, by_novelty=True)]


def segments(times: Sequence[float], novelty: Sequence[float] | None = None, num_tokens: int = 4) -> list[Segment]:
    return [
        Segment(first=place * num_tokens, num_tokens=num_tokens, time_s=time_s, novelty=new)
        for place, (time_s, new) in enumerate(zip(times, novelty or [1.0] * len(times), strict=True))
    ]


@pytest.mark.parametrize("rule", RULES)
@given(st.integers(0, 12), st.integers(0, 60))
def test_enough_leaves_and_nothing_twice(rule: Retaining, count: int, num_missing: int) -> None:
    given_ = segments([float(second) for second in range(count)])
    leaving = rule.leaving(given_, num_missing)
    freed = sum(segment.num_tokens for segment in leaving)
    assert freed >= min(num_missing, 4 * count)
    assert len({segment.first for segment in leaving}) == len(leaving)
    assert all(segment in given_ for segment in leaving)
    spare = 0 if not isinstance(rule, RecentFrames) or rule.most is None else max(0, count - rule.most)
    assert len(leaving) <= max(spare, -(-num_missing // 4))


def test_oldest_leave_first() -> None:
    given_ = segments([0.0, 1.0, 2.0, 3.0])
    assert RecentFrames().leaving(given_, 5) == given_[:2]
    assert RecentFrames(most=1).leaving(given_, 0) == given_[:3]
    assert KeepUntilFull().leaving(given_, 99) == []


def test_past_is_thinned_evenly_and_the_recent_stay() -> None:
    given_ = segments([float(second) for second in range(10)])
    left = [segment for segment in given_ if segment not in ThinnedPast(recent=2).leaving(given_, 16)]
    assert [segment.time_s for segment in left] == [0.0, 2.0, 4.0, 6.0, 8.0, 9.0]


def test_past_is_thinned_where_nothing_happened() -> None:
    given_ = segments([0.0, 1.0, 2.0, 3.0, 4.0], novelty=[9.0, 0.5, 0.1, 0.3, 0.0])
    leaving = ThinnedPast(recent=1, by_novelty=True).leaving(given_, 8)
    assert [segment.time_s for segment in leaving] == [2.0, 3.0]


def test_rule_that_keeps_nothing_recent_is_refused() -> None:
    with pytest.raises(SettingError, match="1 recent grid or more"):
        RecentFrames(most=0)
    with pytest.raises(SettingError, match="1 recent grid or more"):
        ThinnedPast(recent=0)


def test_policies_have_names() -> None:
    rules = [RecentFrames(), ThinnedPast(recent=3), ThinnedPast(recent=3, by_novelty=True)]
    assert [dialogue_policy_named(name, recent=3) for name in NAMES] == rules
    with pytest.raises(SettingError, match="Expected window, thinned or novel to stay in memory, but got 'all'"):
        dialogue_policy_named("all")
