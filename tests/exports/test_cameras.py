from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from longtake.errors import InputError
from longtake.exports.cameras import KnownCamera, shared_camera
from longtake.exports.frame import MappedFrame
from longtake.exports.take import TakeSettings, TakeSink
from longtake.takes.take import Take, read_take
from longtake.world.tour import View


def camera_of(intrinsics: torch.Tensor, size: tuple[int, int] | None = None) -> KnownCamera:
    (focal_x, _, center_x), (_, focal_y, center_y), _ = intrinsics.double().tolist()
    return KnownCamera(focal_x=focal_x, focal_y=focal_y, center_x=center_x, center_y=center_y, size=size)


def misjudged(frame: MappedFrame, factor: float) -> MappedFrame:
    wrong = frame.intrinsics.clone()
    wrong[0, 0] *= factor
    wrong[1, 1] *= factor
    return replace(frame, intrinsics=wrong)


def take_of(folder: Path, frames: Sequence[MappedFrame]) -> Take:
    with TakeSink(folder, TakeSettings(images=None, depth=None, confidence=False)) as sink:
        for frame in frames:
            sink.write(frame)
    return read_take(folder)


def test_with_the_known_camera_points_land_where_they_are_seen(
    views: list[View],
    cut_frames: list[MappedFrame],
    truth: Callable[[Sequence[MappedFrame]], list[Any]],
    stray: Callable[[Sequence[Any], Sequence[Any]], float],
) -> None:
    """The camera of the walk, given in the video's pixels, replaces wrong estimates in the network's."""
    wrong = [misjudged(frame, 1.3) for frame in cut_frames]
    camera = camera_of(views[0].intrinsics)
    assert stray(truth(wrong), truth(cut_frames)) > 3
    assert stray(truth([camera.of(frame) for frame in wrong]), truth(cut_frames)) < 1e-6


def test_a_camera_for_another_resolution_is_resized(views: list[View], cut_frames: list[MappedFrame]) -> None:
    height, width = cut_frames[0].source_image.shape[:2]
    matrix = views[0].intrinsics.double()
    half = torch.tensor([[0.5, 0, -0.25], [0, 0.5, -0.25], [0, 0, 1]], dtype=torch.float64) @ matrix
    camera = camera_of(half, (width // 2, height // 2))
    assert torch.allclose(camera.intrinsics(width, height), matrix, rtol=0, atol=1e-9)
    assert torch.equal(camera_of(matrix, (width, height)).intrinsics(width, height), matrix)


def test_a_camera_for_pictures_of_another_shape_is_refused() -> None:
    camera = camera_of(torch.tensor([[500.0, 0, 320], [0, 500, 240], [0, 0, 1]]), (640, 480))
    with pytest.raises(InputError, match="1920x1080, but it is for 640x480"):
        camera.intrinsics(1920, 1080)


def test_the_shared_camera_does_not_heed_a_few_wrong_estimates(
    views: list[View], cut_frames: list[MappedFrame], tmp_path: Path
) -> None:
    factors = [1.0, 1.01, 0.99, 3.0, 1.0, 0.2, 1.01, 0.99, 1.0, 1.0]
    frames = [misjudged(frame, factor) for frame, factor in zip(cut_frames, factors, strict=True)]
    camera = shared_camera(take_of(tmp_path / "take", frames))
    height, width = cut_frames[0].source_image.shape[:2]
    assert torch.allclose(camera.intrinsics(width, height), views[0].intrinsics.double(), rtol=0, atol=1e-6)
    assert camera.size == (width, height)
