"""Pixels are kept or dropped as a slow second version says."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from longtake.errors import SettingError
from longtake.exports.frame import FrameStatus, MappedFrame
from longtake.exports.masks import MaskFolder
from longtake.exports.point_filter import PointFilter
from longtake.spatial.placement import Placement
from longtake.types import FrameKind, Tracking, TrackingReason, TrackingState

ALL_PIXELS = PointFilter(drop_percent=0.0, largest_jump=None)


def with_pixels(frame: MappedFrame, depth: np.ndarray, confidence: np.ndarray) -> MappedFrame:
    height, width = depth.shape
    image = np.zeros((height, width, 3), np.uint8)
    placed = Placement(width, height, 1.0, 1.0)
    return replace(frame, depth=depth, confidence=confidence, image=image, source_image=image, placement=placed)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 999), drop_percent=st.floats(0, 99.9), levels=st.integers(1, 30))
def test_the_least_confident_share_is_dropped(
    frames: list[MappedFrame], seed: int, drop_percent: float, levels: int
) -> None:
    rng = np.random.default_rng(seed)
    confidence = rng.integers(levels, size=(5, 7)).astype(np.float32)
    frame = with_pixels(frames[0], np.where(rng.random((5, 7)) < 0.8, 2.0, 0.0), confidence)
    kept = PointFilter(drop_percent=drop_percent, largest_jump=None).kept(frame)
    usable = confidence[frame.depth > 0].tolist()
    if not usable:
        assert not kept.any()
        return
    assert not kept[frame.depth == 0].any()
    dropped = sorted(confidence[(frame.depth > 0) & ~kept].tolist())
    assert len(dropped) <= drop_percent / 100 * len(usable)
    assert dropped == sorted(usable)[: len(dropped)]
    more = sorted(usable)[len(dropped)]  # to drop one more means to drop all that are as confident
    assert sum(sure <= more for sure in usable) > drop_percent / 100 * (len(usable) - 1)
    assert kept.any()


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 999), largest_jump=st.floats(0.01, 1))
def test_pixels_at_a_jump_are_dropped_on_both_sides(frames: list[MappedFrame], seed: int, largest_jump: float) -> None:
    rng = np.random.default_rng(seed)
    depth = rng.choice([1.0, 1.04, 1.2, 2.0, 0.0], size=(6, 5))
    kept = PointFilter(drop_percent=0.0, largest_jump=largest_jump).kept(with_pixels(frames[0], depth, np.ones((6, 5))))
    for (row, column), here in np.ndenumerate(depth):
        beside = [(row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)]
        around = [depth[place] for place in beside if 0 <= place[0] < 6 and 0 <= place[1] < 5 and depth[place] > 0]
        jumps = any(abs(there - here) > largest_jump * min(there, here) for there in around)
        assert kept[row, column] == (here > 0 and not jumps)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_pixels_without_a_depth_are_dropped(frames: list[MappedFrame], bad: float) -> None:
    depth = np.full((4, 4), 2.0)
    depth[1, 2] = bad
    kept = PointFilter(drop_percent=0.0).kept(with_pixels(frames[0], depth, np.ones((4, 4))))
    assert np.array_equal(kept, depth == 2)


def test_pixels_without_a_confidence_are_dropped(frames: list[MappedFrame]) -> None:
    confidence = np.ones((4, 4))
    confidence[0, 0] = math.nan
    confidence[1, 1] = math.inf
    kept = PointFilter(drop_percent=50.0).kept(with_pixels(frames[0], np.ones((4, 4)), confidence))
    assert np.array_equal(kept, ~np.isnan(confidence))


def test_what_was_put_around_the_source_gives_no_points(frames: list[MappedFrame]) -> None:
    padded = replace(frames[0], placement=Placement(120, 60, 0.5, 0.5, 2.0, 9.0))
    want = np.zeros((48, 64), dtype=bool)
    want[9:39, 2:62] = True
    assert np.array_equal(ALL_PIXELS.kept(padded), want)


def test_mask_and_sky_both_count(frames: list[MappedFrame], tmp_path: Path) -> None:
    left = np.zeros((48, 64), np.uint8)
    left[:, :32] = 255
    Image.fromarray(left).save(tmp_path / "0.png")

    class UpperHalf:
        def score(self, image: np.ndarray) -> np.ndarray:
            return np.repeat([[1.0], [0.0]], 2, axis=1)

    kept = replace(ALL_PIXELS, masks=MaskFolder(tmp_path), sky=UpperHalf()).kept(frames[0])
    assert kept[40:, :32].all()
    assert not kept[:8].any()
    assert not kept[:, 32:].any()


def test_frames_are_taken_by_status_kind_and_number(frames: list[MappedFrame]) -> None:
    taken = {status: PointFilter().takes(replace(frames[0], status=status)) for status in FrameStatus}
    assert [status.value for status, is_taken in taken.items() if is_taken] == ["ok", "weak"]
    assert PointFilter(statuses=(FrameStatus.CUT,)).takes(replace(frames[0], status=FrameStatus.CUT))
    states = {state: Tracking(state=state, sub_map=None) for state in TrackingState}
    tracked = {state: PointFilter().takes(replace(frames[0], tracking=one)) for state, one in states.items()}
    assert [state for state, is_taken in tracked.items() if not is_taken] == [TrackingState.LOST]
    dark = Tracking(state=TrackingState.WEAK, reason=TrackingReason.DARKNESS, sub_map=0)
    assert not PointFilter().takes(replace(frames[0], tracking=dark))
    third = [frame.index for frame in frames if PointFilter(every=3).takes(frame)]
    assert third == [0, 3, 6, 9]
    kinds = [kind.value for kind in FrameKind if PointFilter(keyframes_only=True).takes(replace(frames[0], kind=kind))]
    assert kinds == ["scale", "keyframe"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"drop_percent": -1.0}, "from 0 to less than 100 % of pixels, not -1.0 %"),
        ({"drop_percent": 100.0}, "not 100.0 %"),
        ({"drop_percent": math.nan}, "not nan %"),
        ({"largest_jump": 0.0}, "greater than 0, or none, not 0.0"),
        ({"largest_jump": math.inf}, "not inf"),
        ({"every": 0}, "one frame in 1 or more, not in 0"),
    ],
)
def test_filter_without_meaning_is_refused(changes: dict[str, float], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        PointFilter(**changes)  # type: ignore[arg-type]
