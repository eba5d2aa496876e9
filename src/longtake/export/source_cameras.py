"""The cameras of a video in its own pixels, collected frame by frame for files that list them all at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from longtake.export.frame import MappedFrame
from longtake.export.sink import SinkState

CORNER = 0.5
"""From the centre of the first pixel, where we count from, to the image's corner, where COLMAP and nerfstudio do."""

_NUM_COLUMNS = 8 + 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PinholeLens:
    """What cameras share while the lens and the size of the picture stay; pixel (0, 0) is the first one's centre."""

    width: int
    height: int
    fx: float
    fy: float
    cx: float
    cy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCamera:
    """One frame's camera."""

    index: int
    timestamp_s: float
    lens: PinholeLens
    world_from_camera: Float[Tensor, "4 4"]
    """In float64."""


class SourceCameras:
    """All cameras so far, some two hundred bytes each."""

    def __init__(self, state: SinkState | None = None) -> None:
        self._rows: list[Float[np.ndarray, " columns"]] = [] if state is None else list(state.arrays["cameras"])

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def last_index(self) -> int:
        """Of the newest frame; -1 before the first."""
        return int(self._rows[-1][0]) if self._rows else -1

    def add(self, frame: MappedFrame) -> None:
        self._rows.append(_row(frame))

    def all(self) -> list[SourceCamera]:
        return [_camera(row) for row in self._rows]

    def state(self) -> SinkState:
        """What it takes to go on from here."""
        rows = np.stack(self._rows) if self._rows else np.empty((0, _NUM_COLUMNS))
        return SinkState(arrays={"cameras": rows})


def different_lenses(cameras: Sequence[SourceCamera]) -> list[PinholeLens]:
    """Each lens once, in the order they came."""
    return list(dict.fromkeys(camera.lens for camera in cameras))


def _row(frame: MappedFrame) -> Float[np.ndarray, " columns"]:
    (fx, _, cx), (_, fy, cy), _ = frame.placement.intrinsics_to_source(frame.intrinsics.double()).tolist()
    height, width, _ = frame.source_image.shape
    pose = frame.world_from_camera.double().flatten().tolist()
    return np.array([frame.index, frame.timestamp_s, width, height, fx, fy, cx, cy, *pose])


def _camera(row: Float[np.ndarray, " columns"]) -> SourceCamera:
    index, timestamp_s, width, height, fx, fy, cx, cy, *pose = row.tolist()
    return SourceCamera(
        index=int(index),
        timestamp_s=timestamp_s,
        lens=PinholeLens(width=int(width), height=int(height), fx=fx, fy=fy, cx=cx, cy=cy),
        world_from_camera=torch.tensor(pose, dtype=torch.float64).reshape(4, 4),
    )
