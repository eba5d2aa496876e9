"""Policies drawn as rulers, one sign a frame: # whole, + its first tokens, - nothing."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtake.errors import SettingError
from longtake.memory.policies.lockstep import ContextRetention, KeepAll
from longtake.memory.policy import Keep, LockstepPolicy
from longtake.memory.tokens import Flags, Tokens

TOKENS = 4
TRAIL = 2
RULE = ContextRetention(anchors=2, window=3, trail=TRAIL, history=None)


def all_tokens(num_frames: int, tokens_per_frame: int = TOKENS) -> Tokens:
    return Tokens.of_frames(range(num_frames), tokens_per_frame, np.arange(num_frames * tokens_per_frame))


def ruler(flags: Flags, num_frames: int, trail: int = TRAIL) -> str:
    signs = {
        (True,) * TOKENS: "#",
        (True,) * trail + (False,) * (TOKENS - trail): "+",
        (False,) * TOKENS: "-",
    }
    return "".join(signs[tuple(frame)] for frame in flags.reshape(num_frames, TOKENS).tolist())


@pytest.mark.parametrize(
    ("rule", "num_kept", "drawn"),
    [
        (RULE, 1, "#"),
        (RULE, 5, "#####"),
        (RULE, 6, "##+###"),
        (RULE, 9, "##++++###"),
        (replace(RULE, anchors=0), 7, "++++###"),
        (replace(RULE, anchors=4), 7, "#######"),
        (replace(RULE, anchors=4), 9, "####++###"),
        (replace(RULE, window=1), 5, "##++#"),
        (replace(RULE, history=7), 7, "##++###"),
        (replace(RULE, history=7), 8, "##-++###"),
        (replace(RULE, history=7), 10, "##---++###"),
        (replace(RULE, history=5), 9, "##----###"),
        (replace(RULE, trail=0), 9, "##----###"),
        (replace(RULE, trail=0, history=8), 9, "##----###"),
        (replace(RULE, trail=99), 9, "#########"),
        (replace(RULE, trail=99, history=7), 9, "##--#####"),
    ],
)
def test_what_stays_is_the_published_ruler(rule: ContextRetention, num_kept: int, drawn: str) -> None:
    assert ruler(rule.stays(all_tokens(num_kept), num_kept=num_kept), num_kept) == drawn


def test_camera_only_trail_keeps_the_first_token_of_an_evicted_frame() -> None:
    rule = replace(RULE, trail=1)
    assert ruler(rule.stays(all_tokens(8), num_kept=8), 8, trail=1) == "##+++###"


@pytest.mark.parametrize(
    ("keep", "num_coming", "drawn"),
    [
        (Keep.YES, 1, "##+++##"),  # with itself a window of three
        (Keep.YES, 2, "##++++#"),
        (Keep.YES, 3, "##+++++"),
        (Keep.YES, 9, "##+++++"),
        (Keep.NO, 1, "##++###"),  # a window of three and itself
        (Keep.DEFERRED, 1, "##++###"),
    ],
)
def test_only_a_clip_known_to_be_kept_is_blind_to_what_it_evicts(keep: Keep, num_coming: int, drawn: str) -> None:
    remembered = all_tokens(7).take(RULE.stays(all_tokens(7), num_kept=7))
    seen = RULE.sees(remembered, num_kept=7, num_coming=num_coming, keep=keep)
    whole = np.zeros(7 * TOKENS, dtype=np.bool_)
    whole[remembered.slot[seen]] = True
    assert ruler(whole, 7) == drawn


def test_keep_all_forgets_nothing() -> None:
    assert KeepAll().stays(all_tokens(3), num_kept=1000).all()
    assert KeepAll().sees(all_tokens(3), num_kept=3, num_coming=50, keep=Keep.YES).all()
    assert KeepAll().most_tokens(5, num_kept=7) == 35
    assert KeepAll().full_after is None


@pytest.mark.parametrize("rule", [RULE, KeepAll()], ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("keep", Keep)
def test_nothing_remembered_is_nothing_seen(rule: LockstepPolicy, keep: Keep) -> None:
    assert len(rule.sees(Tokens.empty(), num_kept=0, num_coming=1, keep=keep)) == 0


@st.composite
def rules(draw: st.DrawFn) -> ContextRetention:
    anchors, window = draw(st.integers(0, 4)), draw(st.integers(1, 5))
    extra = draw(st.none() | st.integers(0, 6))
    history = None if extra is None else anchors + window + extra
    trail_tokens = draw(st.integers(0, TOKENS + 1))
    return ContextRetention(anchors=anchors, window=window, trail=trail_tokens, history=history)


@given(rules(), st.integers(0, 30), st.integers(1, 6))
def test_what_left_never_comes_back(rule: ContextRetention, num_kept: int, more: int) -> None:
    tokens = all_tokens(num_kept)
    now, then = (rule.stays(tokens, num_kept=count) for count in (num_kept, num_kept + more))
    assert not np.any(then & ~now)


@given(rules(), st.integers(0, 30), st.integers(1, 6))
def test_kept_clip_sees_exactly_what_stays_after_it(rule: ContextRetention, num_kept: int, num_coming: int) -> None:
    tokens = all_tokens(num_kept)
    remembered = tokens.take(rule.stays(tokens, num_kept=num_kept))
    seen = rule.sees(remembered, num_kept=num_kept, num_coming=num_coming, keep=Keep.YES)
    after = num_kept + num_coming
    stays = all_tokens(after).take(rule.stays(all_tokens(after), num_kept=after))
    assert remembered.slot[seen].tolist() == [slot for slot in stays.slot.tolist() if slot < len(tokens)]
    assert rule.sees(remembered, num_kept=num_kept, num_coming=num_coming, keep=Keep.NO).all()


@given(rules(), st.integers(0, 30), st.integers(1, TOKENS))
def test_most_tokens_is_a_bound_that_is_reached(rule: ContextRetention, num_kept: int, tokens_per_frame: int) -> None:
    sizes = [
        np.count_nonzero(rule.stays(all_tokens(count, tokens_per_frame), num_kept=count))
        for count in range(num_kept + 1)
    ]
    assert rule.most_tokens(tokens_per_frame, num_kept=num_kept) == max(sizes)


@given(rules())
def test_memory_is_full_after_the_frames_it_says_and_not_one_before(rule: ContextRetention) -> None:
    sizes = [np.count_nonzero(rule.stays(all_tokens(count), num_kept=count)) for count in range(24)]
    if rule.full_after is None:
        assert all(later > earlier for earlier, later in pairwise(sizes))
    else:
        assert set(sizes[rule.full_after :]) == {max(sizes)}
        assert sizes[rule.full_after - 1] < max(sizes)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"anchors": -1}, "anchors >= 0, window >= 1 and trail tokens >= 0, but got -1, 3 and 2"),
        ({"window": 0}, "but got 2, 0 and 2"),
        ({"trail": -1}, "but got 2, 3 and -1"),
        ({"history": 4}, "history of 4 frames cannot hold 2 anchors and a window of 3; give at least 5"),
    ],
)
def test_rule_that_cannot_be_is_refused_with_a_sentence(change: dict[str, int], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        replace(RULE, **change)


def test_smallest_rules_are_allowed() -> None:
    smallest = ContextRetention(anchors=0, window=1, history=1, trail=0)
    assert ruler(smallest.stays(all_tokens(3), num_kept=3), 3) == "--#"
    assert ContextRetention(anchors=2, window=3, trail=1, history=5).full_after == 5
