"""A small world in closed form, takes made of it, and how far a pixel strays on its way to another frame and back."""

import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from longtake.spatial.pose import matrix_from_quaternion, rigid_pose
from longtake.takes.depth_files import DepthFiles
from longtake.takes.frames import TakeFrame
from longtake.takes.header import Content, TakeHeader
from longtake.takes.images import ImageFiles
from longtake.takes.take import Take
from longtake.takes.writer import TakeWriter

WIDTH, HEIGHT = 64, 48
INTRINSICS = torch.tensor([[60.0, 0, 31.0], [0, 58.0, 24.5], [0, 0, 1]], dtype=torch.float64)
WALL_Z = 4.0
BALL_CENTER, BALL_RADIUS = np.array([0.3, 0.1, 2.5]), 0.6


def camera(step: int) -> Tensor:
    """A camera that moves sideways and turns a little."""
    quaternion = torch.tensor([0.01 * step, -0.02 * step, 0.005 * step, 1], dtype=torch.float64)
    return rigid_pose(matrix_from_quaternion(quaternion), torch.tensor([0.1, -0.02, 0.05], dtype=torch.float64) * step)


def see(world_from_camera: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Image and depth of a wall and a ball before it; rays are scaled to z = 1, so that their length is depth."""
    v, u = np.mgrid[:HEIGHT, :WIDTH].astype(np.float64)
    (fx, _, cx), (_, fy, cy), _ = INTRINSICS.tolist()
    pose = world_from_camera.numpy()
    rays = np.stack([(u - cx) / fx, (v - cy) / fy, np.ones_like(u)], axis=-1) @ pose[:3, :3].T
    wall = (WALL_Z - pose[2, 3]) / rays[..., 2]
    to_center = BALL_CENTER - pose[:3, 3]
    a, b = (rays**2).sum(axis=-1), rays @ to_center
    inside = b**2 - a * (to_center @ to_center - BALL_RADIUS**2)
    ball = np.where(inside > 0, (b - np.sqrt(np.maximum(inside, 0))) / a, np.inf)
    depth = np.minimum(wall, ball)
    points = rays * depth[..., None] + pose[:3, 3]
    return (127.5 + 120 * np.sin(4 * points)).astype(np.uint8), depth


@pytest.fixture(scope="session")
def make_frame() -> Callable[..., TakeFrame]:
    """A frame of the small world by its number; thirty a second."""

    def make(step: int, *, with_image: bool = True, with_depth: bool = True) -> TakeFrame:
        image, depth = see(camera(step))
        return TakeFrame(
            index=step,
            timestamp_s=step / 30,
            world_from_camera=camera(step),
            intrinsics=INTRINSICS,
            image=image if with_image else None,
            depth=depth if with_depth else None,
        )

    return make


@pytest.fixture(scope="session")
def make_header() -> Callable[..., TakeHeader]:
    """The header of a take of the small world: PNG images and depth in half millimetres unless told otherwise."""

    def make(
        *,
        images: ImageFiles | None = ImageFiles.PNG,
        depth: DepthFiles | None = DepthFiles(0.0005),  # noqa: B008 (a frozen value)
        fps: float | None = None,
    ) -> TakeHeader:
        return TakeHeader(content=Content.TRUTH, width=WIDTH, height=HEIGHT, images=images, depth=depth, fps=fps)

    return make


@pytest.fixture
def write_small_take(
    tmp_path: Path, make_frame: Callable[..., TakeFrame], make_header: Callable[..., TakeHeader]
) -> Callable[..., Path]:
    """Writes some frames into a folder of that name and returns it."""

    def write(
        num_frames: int = 3,
        *,
        name: str = "walk",
        images: ImageFiles | None = ImageFiles.PNG,
        depth: DepthFiles | None = DepthFiles(0.0005),  # noqa: B008 (a frozen value)
    ) -> Path:
        folder = tmp_path / name
        with TakeWriter(folder, make_header(images=images, depth=depth)) as writer:
            for step in range(num_frames):
                writer.write(make_frame(step, with_image=images is not None, with_depth=depth is not None))
        return folder

    return write


@dataclass(frozen=True)
class RoundTrip:
    """Pixels that went to another frame and back."""

    error_px: np.ndarray
    """Distance between start and end, for the pixels that both frames see."""
    covisible: float
    """Their share of all pixels with depth."""

    @property
    def median_px(self) -> float:
        return float(np.median(self.error_px))


@pytest.fixture(scope="session")
def round_trip() -> Callable[[Take, int, int], RoundTrip]:
    """Sends each pixel by its own depth into another frame, takes the depth found there, and comes back by it."""
    return _round_trip


def _round_trip(take: Take, here: int, there: int) -> RoundTrip:
    depth_here, depth_there = take.depth(here).astype(np.float64), take.depth(there).astype(np.float64)
    v, u = np.nonzero(depth_here)
    (x, y), z = _transfer(take, here, there, np.stack([u, v]), depth_here[v, u])
    found, is_found = _interpolate_depth(depth_there, x, y)
    # A pixel whose depth is another than it brought is hidden there by something else.
    covisible = is_found & (z > 0) & (np.abs(found - z) < 0.02 * z)
    there_px = np.stack([x, y])[:, covisible]
    back_px, _ = _transfer(take, there, here, there_px, found[covisible])
    error_px = np.linalg.norm(back_px - np.stack([u, v])[:, covisible], axis=0)
    return RoundTrip(error_px, float(covisible.mean()))


def _transfer(
    take: Take, here: int, there: int, pixels: np.ndarray, depth: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Where another frame sees pixels [2, n] of this depth, and how deep."""
    poses = take.trajectory.world_from_camera.numpy()
    there_from_here = np.linalg.inv(poses[there]) @ poses[here]
    rays = np.linalg.inv(take.intrinsics[here].numpy()) @ np.stack([*pixels, np.ones_like(pixels[0])])
    points = there_from_here[:3, :3] @ (rays * depth) + there_from_here[:3, 3:]
    projected = take.intrinsics[there].numpy() @ points
    with np.errstate(divide="ignore", invalid="ignore"):
        return projected[:2] / projected[2], points[2]


def _interpolate_depth(depth: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Depth between four valid pixels, and whether there are four; the inverse is linear, as on a plane."""
    height, width = depth.shape
    x, y = np.nan_to_num(x, nan=-1), np.nan_to_num(y, nan=-1)
    is_inside = (x >= 0) & (y >= 0) & (x < width - 1) & (y < height - 1)
    x, y = np.where(is_inside, x, 0), np.where(is_inside, y, 0)
    left, top = x.astype(int), y.astype(int)
    corners = np.stack([depth[top + row, left + column] for row in (0, 1) for column in (0, 1)])
    right_share, bottom_share = x - left, y - top
    shares = [row * column for row in (1 - bottom_share, bottom_share) for column in (1 - right_share, right_share)]
    is_found = is_inside & (corners > 0).all(axis=0)
    inverse = (np.stack(shares) / np.where(corners > 0, corners, 1)).sum(axis=0)
    return np.where(is_found, 1 / inverse, 0), is_found


@contextmanager
def limit_files(num_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(scope="session")
def files_no_longer_than() -> Callable[[int], AbstractContextManager[None]]:
    """As on a full disk, writes beyond so many bytes fail; a write may succeed in part."""
    return limit_files
