"""Clips are cut from what was filmed: they begin anywhere, run both ways, come back, and know what is strange."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.errors import SettingError
from training.cutting import OVERLAP_EVERY, ClipFrames, Cutter

NUM_FILMED = 400
SAMPLED = NUM_FILMED // OVERLAP_EVERY


def there_and_back() -> np.ndarray:
    """Frames see the same as those as long before the middle of the walk as they are after it, and their neighbours."""
    place = np.minimum(np.arange(SAMPLED), SAMPLED - 1 - np.arange(SAMPLED))
    return np.clip(1 - np.abs(place[:, None] - place[None]) / 4, 0, 1).astype(np.float32)


def straight_on() -> np.ndarray:
    return np.eye(SAMPLED, dtype=np.float32)


def cutter(**changes: float) -> Cutter:
    return Cutter(num_filmed=NUM_FILMED, longest_stride=3, **{"returning": 0.0, "strange": 0.0} | changes)


def stretches(frames: ClipFrames, clip: int) -> list[np.ndarray]:
    """Frames of a clip, cut where they jump or change the walk."""
    frame, walk = frames.frame[clip], frames.walk[clip]
    jumps = (np.abs(np.diff(frame)) > 3) | (np.diff(walk) != 0)
    return np.split(frame, np.flatnonzero(jumps) + 1)


def test_plain_clips_begin_anywhere_skip_frames_and_run_both_ways() -> None:
    got = cutter().cut(800, 12, np.random.default_rng(1), [straight_on()] * 3, np.arange)
    strides = [set(np.diff(frames).tolist()) for frames in got.frame]
    assert all(len(of_clip) == 1 for of_clip in strides)
    assert set().union(*strides) == {-3, -2, -1, 1, 2, 3}
    assert set(got.walk[:, 0].tolist()) == {0, 1, 2}
    assert got.is_known.all()
    assert got.frame.min() == 0
    assert got.frame.max() == NUM_FILMED - 1


@settings(deadline=None, max_examples=60)
@given(num_frames=st.integers(4, 200), seed=st.integers(0, 999), returning=st.floats(0, 0.6), strange=st.floats(0, 0.4))
def test_frames_are_always_of_what_was_filmed(num_frames: int, seed: int, returning: float, strange: float) -> None:
    overlaps = [there_and_back(), straight_on()]
    got = cutter(returning=returning, strange=strange).cut(
        4, num_frames, np.random.default_rng(seed), overlaps, np.arange
    )
    assert got.frame.shape == got.walk.shape == got.is_known.shape == (4, num_frames)
    assert got.frame.min() >= 0
    assert got.frame.max() < NUM_FILMED
    assert ((got.walk == got.walk[:, :1]) == got.is_known).all()


def test_returning_clips_see_again_what_they_saw_long_ago() -> None:
    overlap = there_and_back()
    got = cutter(returning=1.0).cut(200, 24, np.random.default_rng(2), [overlap], np.arange)
    returned = 0
    for clip in range(200):
        first, *later = stretches(got, clip)
        for stretch in later:
            returned += 1
            place = np.abs(stretch[:, None] - first[None])
            sampled = np.minimum(stretch // OVERLAP_EVERY, SAMPLED - 1), np.minimum(first // OVERLAP_EVERY, SAMPLED - 1)
            assert overlap[np.ix_(*sampled)].max() > 0
            assert place.max() >= 40
    assert returned > 150
    assert got.is_known.all()


def test_clips_come_back_to_what_is_remembered() -> None:
    overlap, window = there_and_back(), 4

    def remembered(at: int) -> np.ndarray:
        return np.unique([*range(min(2, at)), *range(max(0, at - window), at)])

    got = cutter(returning=1.0).cut(100, 48, np.random.default_rng(7), [overlap], remembered)
    returned = 0
    for clip in range(100):
        at = 0
        for before, stretch in pairwise(stretches(got, clip)):
            at += len(before)
            returned += 1
            sampled = np.minimum(stretch // OVERLAP_EVERY, SAMPLED - 1)
            known = np.minimum(got.frame[clip, remembered(at)] // OVERLAP_EVERY, SAMPLED - 1)
            assert overlap[np.ix_(sampled, known)].max() >= 0.25
    assert returned > 80


def test_what_was_forgotten_is_not_come_back_to() -> None:
    def nothing(at: int) -> np.ndarray:
        return np.arange(0)

    got = cutter(returning=1.0).cut(20, 24, np.random.default_rng(8), [there_and_back()], nothing)
    assert all(len(stretches(got, clip)) == 1 for clip in range(20))


def test_where_nothing_is_seen_again_a_clip_is_one_stretch() -> None:
    got = cutter(returning=1.0).cut(50, 24, np.random.default_rng(3), [straight_on()], np.arange)
    assert all(len(stretches(got, clip)) == 1 for clip in range(50))


def test_strange_clips_begin_at_home_and_know_what_is_strange() -> None:
    got = cutter(strange=1.0).cut(100, 24, np.random.default_rng(4), [there_and_back()] * 5, np.arange)
    assert got.is_known[:, :8].all()
    assert not got.is_known.all(axis=1).any()
    assert {len(set(walks.tolist())) for walks in got.walk} == {2}


def test_the_longest_clips_have_more_stretches_and_none_is_short() -> None:
    got = cutter(returning=1.0).cut(200, 96, np.random.default_rng(5), [there_and_back()], np.arange)
    counts = [len(stretches(got, clip)) for clip in range(200)]
    assert max(counts) >= 4
    assert min(len(stretch) for clip in range(200) for stretch in stretches(got, clip)) >= 4


def test_alone_no_walk_has_a_stranger() -> None:
    assert cutter(strange=1.0).cut(20, 12, np.random.default_rng(6), [there_and_back()], np.arange).is_known.all()


def test_a_clip_longer_than_what_was_filmed_is_refused() -> None:
    with pytest.raises(SettingError, match="clips of 400 frames at most, as filmed, but got 401"):
        cutter().cut(1, 401, np.random.default_rng(0), [straight_on()], np.arange)
