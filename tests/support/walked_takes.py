"""A walk there and back through a house, as takes of two spans whose windows drift: what links between them mend."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from rendered_views import HOUSE, filmed
from torch import Tensor

from longtake.exports.frame import FrameStatus, MappedFrame
from longtake.exports.saved import same_pixels
from longtake.exports.take import DepthKind, TakeSettings
from longtake.pipeline.outputs import Outputs, open_sinks
from longtake.spatial.pose import nearest_rotation
from longtake.spatial.similarity import Similarity
from longtake.takes.images import ImageFiles
from longtake.types import FrameKind
from longtake.world.tour import View

WINDOW = 8
_STEP = 2
_SIDE = 6
"""Pixels of the small picture that a frame looks like."""


def there_and_back(num_there: int) -> list[View]:
    """Each place is seen twice."""
    there = [filmed(HOUSE, 60 + _STEP * number) for number in range(num_there)]
    return [*there, *there[::-1]]


def drifted(views: list[View]) -> list[MappedFrame]:
    """With true depth; every window lies a little beside the one before it, and is a little larger."""
    drift = Similarity(
        torch.tensor(1.02, dtype=torch.float64), _turned(0.03), torch.tensor([0.05, 0.02, -0.03], dtype=torch.float64)
    )
    world, frames = Similarity.of_matrix(torch.eye(4, dtype=torch.float64)), []
    for index, view in enumerate(views):
        if index and index % WINDOW == 0:
            world = world @ drift
        frames.append(_frame(view, index, world))
    return frames


def written(folder: Path, frames: list[MappedFrame]) -> None:
    """As a worker leaves a span."""
    take = TakeSettings(images=ImageFiles.JPEG, depth=DepthKind.NPZ, confidence=True)
    sink = open_sinks(folder, Outputs(take=take, formats=()))
    first_window = frames[0].window
    for index, frame in enumerate(frames):
        sink.write(replace(frame, index=index, window=frame.window - first_window))
    sink.close()
    summary = {"is_complete": True, "seconds": 1.0, "num_windows": 1, "memory_bytes": 1, "peak_resident_bytes": 1}
    (folder / "summary.json").write_text(json.dumps({**summary, "notes": []}))


def _frame(view: View, index: int, world: Similarity) -> MappedFrame:
    image = (view.image.movedim(0, -1) * 255).round().byte().numpy()
    return MappedFrame(
        index=index,
        timestamp_s=index / 10,
        status=FrameStatus.OK,
        world_from_camera=world.of_cameras(view.world_from_camera.double()),
        kind=FrameKind.KEYFRAME,
        window=index // WINDOW,
        intrinsics=view.intrinsics.double(),
        depth=(view.depth.double() * world.scale).float().numpy(),
        confidence=np.ones(image.shape[:2], np.float32),
        image=image,
        source_image=image,
        placement=same_pixels(image.shape[:2]),
        descriptor=_small(view.image),
    )


def _small(image: Tensor) -> np.ndarray:
    pooled = torch.nn.functional.adaptive_avg_pool2d(image[None].float(), _SIDE)
    return (pooled - pooled.mean()).flatten().numpy()


def _turned(radians: float) -> Tensor:
    turn = torch.eye(3, dtype=torch.float64)
    turn[0, 2], turn[2, 0] = radians, -radians
    return nearest_rotation(turn)
