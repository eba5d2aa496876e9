"""Walks with a truth and a noisy result, for what compares trajectories, and takes of a bare room, for the rest."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from longtake.evaluation.association import PosePairs
from longtake.evaluation.registration import in_double
from longtake.spatial.pose import matrix_from_quaternion, rigid_pose
from longtake.spatial.similarity import Similarity
from longtake.takes.depth_files import DepthFiles
from longtake.takes.frames import TakeFrame
from longtake.takes.header import Content, TakeHeader, Unit
from longtake.takes.writer import TakeWriter


@pytest.fixture(scope="session")
def make_pairs() -> Callable[..., PosePairs]:
    """Builds a random walk of cameras and a result that strays from it by `noise`."""

    def make(seed: int, *, num_frames: int = 12, noise: float = 0.1) -> PosePairs:
        generator = torch.Generator().manual_seed(seed)
        steps, strays = (torch.randn(num_frames, 7, generator=generator, dtype=torch.float64) for _ in range(2))
        walk = steps.cumsum(dim=0)
        result = walk + noise * strays
        return PosePairs(
            timestamp_s=torch.arange(num_frames, dtype=torch.float64) / 10,
            truth=rigid_pose(matrix_from_quaternion(walk[:, :4]), walk[:, 4:]),
            result=rigid_pose(matrix_from_quaternion(result[:, :4]), result[:, 4:]),
        )

    return make


HALF_ROOM = np.array([2.01, 1.41, 2.61])
"""From the middle of a room to its walls, in metres; not between two voxels. y points down."""


def camera_at(step: int) -> Tensor:
    """A camera that circles in the room, bobbing, and turns about itself meanwhile."""
    angle = 0.35 * step
    turn = torch.tensor([0.05 * math.sin(step), math.sin(angle), 0.03, math.cos(angle)], dtype=torch.float64)
    place = [0.9 * math.cos(angle), 0.25 * math.sin(2 * angle), 1.1 * math.sin(angle)]
    return rigid_pose(matrix_from_quaternion(turn), torch.tensor(place, dtype=torch.float64))


def intrinsics_for(size: tuple[int, int]) -> Tensor:
    """The same view at any (height, width): its edges stay where they are."""
    height, width = size
    return torch.tensor(
        [[0.8 * width, 0, width / 2 - 0.5], [0, 1.1 * height, height / 2 - 0.5], [0, 0, 1]], dtype=torch.float64
    )


def depth_of_room(world_from_camera: Tensor, size: tuple[int, int]) -> np.ndarray:
    """How far the walls are along z; rays have z = 1."""
    v, u = np.mgrid[: size[0], : size[1]].astype(np.float64)
    rays = np.stack([u, v, np.ones_like(u)], axis=-1) @ np.linalg.inv(intrinsics_for(size).numpy()).T
    pose = world_from_camera.numpy()
    rays = rays @ pose[:3, :3].T
    with np.errstate(divide="ignore"):
        return ((np.sign(rays) * HALF_ROOM - pose[:3, 3]) / rays).min(axis=-1)


@dataclass(frozen=True, kw_only=True)
class RoomTake:
    """How to film the room, and what to do to the result."""

    steps: Sequence[int] = range(12)
    fps: float = 10.0
    size: tuple[int, int] = (36, 48)
    unit: Unit = Unit.METRE
    moved: Similarity = field(default_factory=lambda: in_double(Similarity.identity(torch.device("cpu"))))
    change_depth: Callable[[np.ndarray], np.ndarray] | None = lambda depth: depth
    """None leaves depth out."""

    def write(self, folder: Path) -> Path:
        depth = None if self.change_depth is None else DepthFiles(None)
        height, width = self.size
        header = TakeHeader(content=Content.RESULT, width=width, height=height, unit=self.unit, depth=depth)
        with TakeWriter(folder, header) as writer:
            for step in self.steps:
                writer.write(self._frame(step))
        return folder

    def _frame(self, step: int) -> TakeFrame:
        depth = float(self.moved.scale) * depth_of_room(camera_at(step), self.size)
        return TakeFrame(
            index=step,
            timestamp_s=step / self.fps,
            world_from_camera=self.moved.of_cameras(camera_at(step)),
            intrinsics=intrinsics_for(self.size),
            depth=None if self.change_depth is None else self.change_depth(depth),
        )


@pytest.fixture
def film_room(tmp_path: Path) -> Callable[..., Path]:
    """Writes a take of the room into a folder of that name; see `RoomTake` for what can be changed."""

    def film(name: str, **changes: Any) -> Path:
        return RoomTake(**changes).write(tmp_path / name)

    return film


@pytest.fixture(scope="session")
def half_room() -> np.ndarray:
    """Where the room's walls are."""
    return HALF_ROOM


@pytest.fixture(scope="session")
def elsewhere() -> Similarity:
    """Scales by 0.4, turns and shifts."""
    turn = matrix_from_quaternion(torch.tensor([0.3, 0.5, -0.2, 0.8], dtype=torch.float64))
    return Similarity(torch.tensor(0.4, dtype=torch.float64), turn, torch.tensor([1.0, 2, 3], dtype=torch.float64))
