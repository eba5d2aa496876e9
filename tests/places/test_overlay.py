"""What lies on the glass is found, and left out; walls and sky are not."""

from pathlib import Path

import numpy as np
import torch

from longtake.memory.saved import Pieces, TensorFile
from longtake.places.overlay import Overlay, left_out
from longtake.places.saved_tracker import tracker_of, tracker_tensors
from longtake.places.tracking import Tracker, TrackingRule
from longtake.types import FrameKind, Geometry, TrackingReason, TrackingState

SIZE = (42, 56)
LOGO = np.zeros(SIZE, dtype=bool)
LOGO[30:36, 40:52] = True
BARS = np.zeros(SIZE, dtype=bool)
BARS[:5] = BARS[-5:] = True


def pictures(num_frames: int, *, has_overlay: bool) -> list[np.ndarray]:
    """Grain that moves beneath a plain sky."""
    rng = np.random.default_rng(1)
    letters = rng.integers(0, 2, (3, 6)).repeat(2, axis=0).repeat(2, axis=1) * 200 + 30
    shown = []
    for _ in range(num_frames):
        picture = rng.integers(40, 220, (3, *SIZE), dtype=np.uint8)
        picture[:, 8:14] = 200
        if has_overlay:
            picture[:, BARS] = 0
            picture[:, 30:36, 40:52] = letters
        shown.append(picture)
    return shown


def seen(shown: list[np.ndarray]) -> Overlay:
    overlay = Overlay()
    for picture in shown:
        overlay = overlay.seeing(picture)
    return overlay


def test_logo_and_bars_are_found_once_the_scene_has_moved_long_enough() -> None:
    assert seen(pictures(60, has_overlay=True)).covered is None
    covered = seen(pictures(64, has_overlay=True)).covered
    assert covered is not None
    assert covered[BARS].all()
    assert covered[LOGO].mean() > 0.95
    assert not covered[~(LOGO | BARS)].any()


def test_a_plain_sky_and_a_camera_that_stands_still_are_no_overlays() -> None:
    assert seen(pictures(90, has_overlay=False)).covered is None
    assert seen(pictures(1, has_overlay=True) * 90).covered is None


def test_an_overlay_that_goes_is_forgotten() -> None:
    shown = [*pictures(70, has_overlay=True), *pictures(20, has_overlay=False)]
    assert seen(shown).covered is None


def test_what_is_covered_has_no_confidence_whatever_the_size_of_the_result() -> None:
    overlay = seen(pictures(64, has_overlay=True))
    height, width = 2 * SIZE[0], 2 * SIZE[1]
    geometry = Geometry(
        frame_index=(0,),
        timestamp_s=(0.0,),
        kind=(FrameKind.KEYFRAME,),
        window=(0,),
        provisional=(False,),
        pose_encoding=torch.zeros(1, 9),
        world_from_camera=torch.eye(4)[None],
        intrinsics=torch.eye(3)[None],
        depth=torch.ones(1, height, width),
        depth_confidence=torch.full((1, height, width), 2.0),
    )
    confidence = left_out(geometry, [overlay.covered]).depth_confidence[0]
    assert overlay.covered is not None
    assert torch.equal(
        confidence == 0, torch.from_numpy(overlay.covered).repeat_interleave(2, 0).repeat_interleave(2, 1)
    )
    assert left_out(geometry, [Overlay().covered]) is geometry


def test_frames_under_an_overlay_are_ok_and_say_so_and_what_lies_beneath_decides(tmp_path: Path) -> None:
    """A cut beneath large bars and a logo, which stay; and a saved tracker holds all of it."""
    tracker = Tracker(rule=TrackingRule())
    for picture in pictures(64, has_overlay=True):
        tracker = tracker.seeing(torch.from_numpy(picture))
    assert (tracker.state, tracker.reason) == (TrackingState.OK, TrackingReason.OVERLAY)
    tensors = tracker_tensors(tracker)
    TensorFile({name: Pieces.of(tensor) for name, tensor in tensors.items()}, {}).save(tmp_path / "tracker")
    back = tracker_of(tensors, tracker.rule)
    assert back.overlay.share == tracker.overlay.share > 0.2
    elsewhere = np.full((3, *SIZE), 255, dtype=np.uint8)
    elsewhere[:, 20:, ::2] = 180
    covered = tracker.overlay.covered
    assert covered is not None
    elsewhere[:, covered] = pictures(1, has_overlay=True)[0][:, covered]
    assert back.seeing(torch.from_numpy(elsewhere)).state is TrackingState.LOST
    dark = np.zeros((3, *SIZE), dtype=np.uint8)
    dark[:, covered] = pictures(1, has_overlay=True)[0][:, covered]
    assert back.seeing(torch.from_numpy(dark)).reason is TrackingReason.DARKNESS
