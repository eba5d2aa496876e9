import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from selected import rest_in_extra
from torch import Tensor

from longtake.exports.cameras import KnownCamera
from longtake.exports.floor import floor_of
from longtake.exports.frame import MappedFrame
from longtake.exports.scale import KnownHeight, metres_per_unit
from longtake.exports.take import DepthKind, TakeSettings, TakeSink
from longtake.spatial.similarity import Similarity
from longtake.takes.depth_files import DepthFiles
from longtake.takes.frames import TakeFrame
from longtake.takes.header import Content, TakeHeader, Unit
from longtake.takes.take import Take, read_take
from longtake.takes.writer import TakeWriter
from longtake.world.tour import Tour

WIDTH, HEIGHT = 64, 48
Change = Callable[[TakeFrame], TakeFrame]


def turn(seed: int, degrees: float, scale: float = 1.0) -> Similarity:
    """About a random axis, then a random move."""
    rng = np.random.default_rng(seed)
    axis = rng.normal(size=3)
    x, y, z = (axis / np.linalg.norm(axis) * math.radians(degrees)).tolist()
    generator = torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=torch.float64)
    size = torch.tensor(scale, dtype=torch.float64)
    return Similarity(size, torch.linalg.matrix_exp(generator), torch.from_numpy(rng.normal(size=3) * 3))


def walk(folder: Path, seed: int, moved: Similarity, change: Change = lambda frame: frame) -> Take:
    """Ten places along a walk, with their true depth, in a world that was moved."""
    header = TakeHeader(content=Content.RESULT, width=WIDTH, height=HEIGHT, unit=Unit.MODEL, depth=DepthFiles(None))
    with TakeWriter(folder, header) as writer:
        views = Tour(seed=seed, width=WIDTH, height=HEIGHT).views()
        for index, view in enumerate(itertools.islice(views, 0, 60, 6)):
            frame = TakeFrame(
                index=index,
                timestamp_s=view.timestamp_s,
                world_from_camera=moved.of_cameras(view.world_from_camera),
                intrinsics=view.intrinsics,
                depth=view.depth.numpy() * np.float32(float(moved.scale)),
            )
            writer.write(change(frame))
    return read_take(folder)


def true_heights(take: Take, moved: Similarity) -> Tensor:
    """Of the cameras above the true floor, which is where y is 0, in metres."""
    return -moved.inverse().of_points(take.trajectory.world_from_camera[:, :3, 3])[:, 1]


@pytest.mark.parametrize("seed", rest_in_extra(range(6), keep=2))
def test_the_floor_of_a_turned_house_comes_level_and_to_zero(tmp_path: Path, seed: int) -> None:
    moved = turn(seed, 30.0)
    take = walk(tmp_path / "take", seed, moved)
    floor = floor_of(take)
    assert floor is not None
    upright = floor.upright_from_world()
    true_up = upright.rotation @ moved.rotation @ torch.tensor([0.0, -1.0, 0.0], dtype=torch.float64)
    assert math.degrees(math.acos(min(1.0, -float(true_up[1])))) < 1
    heights = -upright.of_cameras(take.trajectory.world_from_camera)[:, 1, 3]
    assert float((heights - true_heights(take, moved)).abs().max()) < 0.02
    assert torch.allclose(heights, floor.heights(take.trajectory.world_from_camera[:, :3, 3]), atol=1e-9)


@pytest.mark.parametrize("scale", [0.05, 7.0])
def test_the_height_of_the_camera_gives_the_scale_of_any_world(tmp_path: Path, scale: float) -> None:
    moved = turn(3, 20.0, scale)
    take = walk(tmp_path / "take", 3, moved)
    metres = float(true_heights(take, moved).quantile(0.5))
    found = metres_per_unit(KnownHeight(metres=metres), take, floor_of(take))
    assert found == pytest.approx(1 / scale, rel=0.02)


def test_the_floor_is_found_through_the_known_camera(tmp_path: Path) -> None:
    """Wrong estimates bend the floor; the camera that filmed it does not."""

    def misjudge(frame: TakeFrame) -> TakeFrame:
        wrong = frame.intrinsics.clone()
        wrong[0, 0], wrong[1, 1] = wrong[0, 0] * 2, wrong[1, 1] * 1.5
        return replace(frame, intrinsics=wrong)

    moved = turn(4, 15.0)
    take = walk(tmp_path / "take", 4, moved, misjudge)
    (focal_x, _, center_x), (_, focal_y, center_y), _ = Tour(seed=4, width=WIDTH, height=HEIGHT).intrinsics().tolist()
    floor = floor_of(take, KnownCamera(focal_x=focal_x, focal_y=focal_y, center_x=center_x, center_y=center_y))
    assert floor is not None
    heights = floor.heights(take.trajectory.world_from_camera[:, :3, 3])
    assert float((heights - true_heights(take, moved)).abs().max()) < 0.02


def test_twice_the_same_floor(tmp_path: Path) -> None:
    take = walk(tmp_path / "take", 5, turn(5, 10.0))
    one, other = floor_of(take), floor_of(take)
    assert one is not None
    assert other is not None
    assert torch.equal(one.normal, other.normal)
    assert one.offset == other.offset


def bent(depth: np.ndarray, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(1, 5, depth.shape).astype(np.float32)


def without_floor(frame: TakeFrame) -> TakeFrame:
    """Only walls, straight ahead."""
    return replace(frame, depth=np.full((HEIGHT, WIDTH), 3, np.float32))


def without_depth(frame: TakeFrame) -> TakeFrame:
    return replace(frame, depth=np.zeros((HEIGHT, WIDTH), np.float32))


def of_noise(frame: TakeFrame) -> TakeFrame:
    assert frame.depth is not None
    return replace(frame, depth=bent(frame.depth, frame.index))


def tumbling(frame: TakeFrame) -> TakeFrame:
    """Every other camera upside down."""
    flip = torch.diag(torch.tensor([-1.0, -1.0, 1.0, 1.0], dtype=torch.float64))
    return replace(frame, world_from_camera=frame.world_from_camera @ flip) if frame.index % 2 else frame


@pytest.mark.parametrize("change", [without_floor, without_depth, of_noise, tumbling])
def test_where_no_floor_is_convincing_there_is_none(tmp_path: Path, change: Change) -> None:
    assert floor_of(walk(tmp_path / "take", 2, turn(2, 0.0), change)) is None


def test_a_take_without_depth_has_no_floor(tmp_path: Path, frames: list[MappedFrame]) -> None:
    with TakeSink(tmp_path / "take", TakeSettings(images=None, depth=None)) as sink:
        sink.write(frames[0])
    assert floor_of(read_take(tmp_path / "take")) is None


def test_16_bits_are_enough(tmp_path: Path, frames: list[MappedFrame]) -> None:
    with TakeSink(tmp_path / "take", TakeSettings(images=None, depth=DepthKind.PNG)) as sink:
        for frame in frames:
            sink.write(frame)
    floor = floor_of(read_take(tmp_path / "take"))
    assert floor is not None
    assert abs(floor.offset) < 0.03
