"""A sequence that others rendered, with poses and depth, agrees with itself once it is a take.

Castle-simu of ViSP has 40 frames of a colour camera and depth of a second camera, 5 cm to the right of the first. Both
become takes. Its files say camera_from_object, its depth counts 2⁻¹⁵ m, and its principal point (320, 240) is measured
from the corner of the first pixel: (319.5, 239.5) from the pixel's centre, as takes have it.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from longtake.spatial.pinhole import unproject
from longtake.takes.depth_files import DepthFiles
from longtake.takes.frames import TakeFrame
from longtake.takes.header import Content, TakeHeader
from longtake.takes.images import ImageFiles
from longtake.takes.take import Take, read_take
from longtake.takes.writer import TakeWriter

CASTLE = Path(__file__).parents[2] / ".oracles" / "visp" / "Castle-simu"
NUM_FRAMES = 40
SIZE = (480, 640)
STEP_M = 2.0**-15
INTRINSICS = torch.tensor([[700.0, 0, 319.5], [0, 700.0, 239.5], [0, 0, 1]], dtype=torch.float64)
RIGHT_OF_COLOUR_M = 0.05
TEXTURED = 8
"""Grey levels a pixel, enough to see a shift by."""
PAIRS = [(0, 1), (0, 5), (19, 24), (34, 39), (0, 20), (9, 29), (19, 39), (0, 39)]

pytestmark = [
    pytest.mark.extra,
    pytest.mark.skipif(not CASTLE.is_dir(), reason="Castle-simu is not here; `make test-extra` tries to fetch it"),
]


def raw_depth(position: int) -> np.ndarray:
    """Two 32-bit numbers, height and width, then 16-bit values row by row, all little-endian."""
    data = (CASTLE / "Depth" / f"Depth_{position + 1:04d}.bin").read_bytes()
    assert tuple(np.frombuffer(data[:8], "<u4")) == SIZE
    return np.frombuffer(data[8:], "<u2").reshape(SIZE)


def grey_image(position: int) -> np.ndarray:
    with Image.open(CASTLE / "Images" / f"Image_{position + 1:04d}.pgm") as image:
        return np.asarray(image)


def world_from_colour(position: int) -> torch.Tensor:
    colour_from_object = np.loadtxt(CASTLE / "CameraPose" / f"Camera_{position + 1:03d}.txt")
    return torch.linalg.inv(torch.from_numpy(colour_from_object))


def world_from_depth(position: int) -> torch.Tensor:
    colour_from_depth = torch.eye(4, dtype=torch.float64)
    colour_from_depth[0, 3] = RIGHT_OF_COLOUR_M
    return world_from_colour(position) @ colour_from_depth


def frame_of(position: int, pose: torch.Tensor, **pixels: np.ndarray) -> TakeFrame:
    return TakeFrame(index=position, timestamp_s=position / 30, world_from_camera=pose, intrinsics=INTRINSICS, **pixels)


@pytest.fixture(scope="module")
def depth_take(tmp_path_factory: pytest.TempPathFactory) -> Take:
    folder = tmp_path_factory.mktemp("castle") / "depth"
    header = TakeHeader(content=Content.TRUTH, width=640, height=480, depth=DepthFiles(STEP_M))
    with TakeWriter(folder, header) as writer:
        for position in range(NUM_FRAMES):
            depth = raw_depth(position) * STEP_M
            writer.write(frame_of(position, world_from_depth(position), depth=depth))
    return read_take(folder)


@pytest.fixture(scope="module")
def colour_take(tmp_path_factory: pytest.TempPathFactory) -> Take:
    folder = tmp_path_factory.mktemp("castle") / "colour"
    header = TakeHeader(content=Content.TRUTH, width=640, height=480, images=ImageFiles.PNG)
    with TakeWriter(folder, header) as writer:
        for position in range(NUM_FRAMES):
            image = grey_image(position)[..., None].repeat(3, axis=-1)
            writer.write(frame_of(position, world_from_colour(position), image=image))
    return read_take(folder)


def moved_principal_point(take: Take, by_px: float) -> Take:
    shift = torch.zeros(3, 3, dtype=torch.float64)
    shift[:2, 2] = by_px
    return replace(take, intrinsics=take.intrinsics + shift)


def inverted_poses(take: Take) -> Take:
    poses = torch.linalg.inv(take.trajectory.world_from_camera)
    return replace(take, trajectory=replace(take.trajectory, world_from_camera=poses))


def test_castle_comes_back_from_its_take(depth_take: Take, colour_take: Take) -> None:
    assert len(depth_take) == len(colour_take) == NUM_FRAMES
    for position in range(0, NUM_FRAMES, 13):
        np.testing.assert_array_equal(depth_take.depth(position), raw_depth(position) * np.float32(STEP_M))
        np.testing.assert_array_equal(colour_take.image(position)[..., 0], grey_image(position))
        pose = depth_take.trajectory.world_from_camera[position]
        torch.testing.assert_close(pose, world_from_depth(position), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("here", "there"), PAIRS)
def test_castle_points_land_where_other_frames_see_them(
    depth_take: Take, round_trip: Callable[..., Any], here: int, there: int
) -> None:
    for a, b in ((here, there), (there, here)):
        trip = round_trip(depth_take, a, b)
        print(f"castle {a} -> {b}: median {trip.median_px:.4f} px of {trip.covisible:.0%} of the pixels with depth")
        assert trip.covisible > 0.4
        assert trip.median_px < 0.1


@pytest.mark.parametrize(("here", "there"), [(0, 20), (9, 29), (19, 39), (0, 39)])
def test_castle_shows_a_wrong_convention(
    depth_take: Take, round_trip: Callable[..., Any], here: int, there: int
) -> None:
    right = round_trip(depth_take, here, there)
    half_a_pixel = round_trip(moved_principal_point(depth_take, 0.5), here, there)
    inverted = round_trip(inverted_poses(depth_take), here, there)
    print(f"right {right.median_px:.4f} px, half a pixel off {half_a_pixel.median_px:.4f} px")
    assert half_a_pixel.median_px > 3 * right.median_px
    assert inverted.covisible < 0.1 * right.covisible


def seen_grey(points: torch.Tensor, take: Take, position: int) -> tuple[np.ndarray, np.ndarray]:
    """Grey values where a frame sees points [n, 3] of the world, NaN outside, and the pixels [2, n]."""
    camera_from_world = torch.linalg.inv(take.trajectory.world_from_camera[position])
    projected = take.intrinsics[position] @ (camera_from_world[:3, :3] @ points.T + camera_from_world[:3, 3:])
    pixels = (projected[:2] / projected[2]).numpy()
    return bilinear(take.image(position)[..., 0].astype(np.float64), pixels), pixels


def bilinear(image: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    height, width = image.shape
    x, y = pixels
    is_inside = (x >= 0) & (y >= 0) & (x < width - 1) & (y < height - 1)
    x, y = np.where(is_inside, x, 0), np.where(is_inside, y, 0)
    left, top = x.astype(int), y.astype(int)
    above = image[top, left] * (1 - x + left) + image[top, left + 1] * (x - left)
    below = image[top + 1, left] * (1 - x + left) + image[top + 1, left + 1] * (x - left)
    return np.where(is_inside, above * (1 - y + top) + below * (y - top), np.nan)


def shift_px(depth: Take, colour: Take, here: int, there: int) -> float:
    """How far apart two images show the same textured points: the median of grey difference over grey slope."""
    points = unproject(
        torch.from_numpy(depth.depth(here)).double(), depth.intrinsics[here], depth.trajectory.world_from_camera[here]
    )[torch.from_numpy(depth.depth(here) > 0)]
    grey_here, pixels = seen_grey(points, colour, here)
    grey_there, _ = seen_grey(points, colour, there)
    slope = np.hypot(*np.gradient(colour.image(here)[..., 0].astype(np.float64)))
    slope_here = bilinear(slope, pixels)
    is_textured = slope_here > TEXTURED
    return float(np.nanmedian(np.abs(grey_here - grey_there)[is_textured] / slope_here[is_textured]))


@pytest.mark.parametrize(("here", "there"), [(0, 1), (0, 5), (19, 24), (34, 39), (0, 20)])
def test_castle_points_look_the_same_in_other_frames(
    depth_take: Take, colour_take: Take, here: int, there: int
) -> None:
    """Depth of one camera, images of the other: the two takes share one world."""
    right = shift_px(depth_take, colour_take, here, there)
    half_a_pixel = colour_take.intrinsics.clone()
    half_a_pixel[there, :2, 2] += 0.5
    wrong = shift_px(depth_take, replace(colour_take, intrinsics=half_a_pixel), here, there)
    print(f"castle {here} -> {there}: looks {right:.2f} px off, {wrong:.2f} px with half a pixel added in each axis")
    assert right < 0.3
    assert wrong > 2 * right
