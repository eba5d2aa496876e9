from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from longtake.errors import SettingError
from longtake.exports.adjust import Adjustment, ExportAdjustments, adjusted_frames, plan_adjustment
from longtake.exports.cameras import KnownCamera
from longtake.exports.frame import MappedFrame
from longtake.exports.scale import KnownDistance, KnownHeight
from longtake.exports.take import DepthKind, TakeSettings, TakeSink
from longtake.spatial.similarity import Similarity
from longtake.takes.header import Unit
from longtake.takes.take import Take, read_take

UNIT_M = 0.25
CAMERA = KnownCamera(focal_x=1.0, focal_y=1.0, center_x=0.0, center_y=0.0)


def distorted(frame: MappedFrame) -> MappedFrame:
    """In another unit, another world, and seen by a wrong camera."""
    angle = torch.tensor([[0.0, -0.3, 0.1], [0.3, 0, 0.2], [-0.1, -0.2, 0]], dtype=torch.float64)
    moved = Similarity(
        torch.tensor(1 / UNIT_M, dtype=torch.float64),
        torch.linalg.matrix_exp(angle),
        torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64),
    )
    wrong = frame.intrinsics.clone()
    wrong[0, 0] *= 1 + 0.02 * (frame.index % 3)
    return replace(
        frame,
        world_from_camera=moved.of_cameras(frame.world_from_camera),
        depth=frame.depth * np.float32(1 / UNIT_M),
        intrinsics=wrong,
    )


@pytest.fixture
def take(frames: list[MappedFrame], tmp_path: Path) -> Take:
    with TakeSink(tmp_path / "take", TakeSettings(images=None, depth=DepthKind.NPZ)) as sink:
        for frame in frames:
            sink.write(distorted(frame))
    return read_take(tmp_path / "take")


def known(frames: Sequence[MappedFrame]) -> tuple[KnownCamera, KnownDistance]:
    (focal_x, _, center_x), (_, focal_y, center_y), _ = frames[0].intrinsics.tolist()
    camera = KnownCamera(focal_x=focal_x, focal_y=focal_y, center_x=center_x, center_y=center_y)
    metres = float((frames[0].world_from_camera - frames[9].world_from_camera)[:3, 3].norm())
    return camera, KnownDistance(first=0, second=9, metres=metres)


def test_what_was_distorted_is_set_right(
    take: Take,
    frames: list[MappedFrame],
    truth: Callable[[Sequence[MappedFrame]], list[Any]],
    stray: Callable[[Sequence[Any], Sequence[Any]], float],
) -> None:
    camera, distance = known(frames)
    adjustment = plan_adjustment(take, ExportAdjustments(camera=camera, length=distance, upright=True))
    got = list(adjusted_frames(take, adjustment))
    assert adjustment.unit is Unit.METRE
    assert adjustment.metres_per_unit == pytest.approx(UNIT_M, rel=1e-6)
    assert stray(truth(got), truth(frames)) < 1e-3
    for one, want in zip(got, frames, strict=True):
        assert np.allclose(one.depth, want.depth, rtol=1e-6)
        assert abs(float(one.world_from_camera[1, 3] - want.world_from_camera[1, 3])) < 0.02


def test_depth_and_poses_grow_together(
    take: Take, frames: list[MappedFrame], truth: Callable[[Sequence[MappedFrame]], list[Any]]
) -> None:
    saved = list(adjusted_frames(take, Adjustment()))
    grown = list(adjusted_frames(take, Adjustment(metres_per_unit=3.0)))
    for one, other in zip(truth(saved), truth(grown), strict=True):
        assert np.allclose(3 * one.points(), other.points(), atol=1e-4)
    assert len(grown) == len(frames)


def test_without_wishes_nothing_is_touched(take: Take) -> None:
    adjustment = plan_adjustment(take, ExportAdjustments())
    assert adjustment == Adjustment()
    assert torch.equal(adjustment.exported_from_saved.matrix, torch.eye(4, dtype=torch.float64))
    first = next(adjusted_frames(take, adjustment))
    assert torch.equal(first.world_from_camera, take.trajectory.world_from_camera[0])
    assert torch.equal(first.intrinsics, take.intrinsics[0])
    assert np.array_equal(first.depth, take.depth(0))


def test_a_fixed_camera_is_the_same_in_every_frame(take: Take, frames: list[MappedFrame]) -> None:
    got = list(adjusted_frames(take, plan_adjustment(take, ExportAdjustments(fixed_camera=True))))
    assert all(torch.equal(frame.intrinsics, got[0].intrinsics) for frame in got)
    assert float(got[0].intrinsics[0, 0]) == pytest.approx(float(frames[0].intrinsics[0, 0]) * 1.02)


def test_a_height_makes_metric_and_leaves_the_world_turned_unless_asked(take: Take) -> None:
    adjustment = plan_adjustment(take, ExportAdjustments(length=KnownHeight(metres=1.5)))
    assert adjustment.floor is None
    assert adjustment.unit is Unit.METRE
    assert torch.equal(adjustment.exported_from_saved.rotation, torch.eye(3, dtype=torch.float64))


def test_a_known_camera_and_an_estimated_one_contradict_each_other() -> None:
    with pytest.raises(SettingError, match="leave out intrinsics or fixed camera"):
        ExportAdjustments(camera=CAMERA, fixed_camera=True)
