"""Truth goes out through every sink and comes back by parsers written here: pixels land where they should."""

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.spatial import cKDTree

from longtake.exports.cloud import CloudSettings
from longtake.exports.frame import MappedFrame
from longtake.exports.ply import PlySink
from longtake.exports.point_filter import PointFilter
from longtake.exports.poses import KittiSink, TumSink
from longtake.exports.sink import Sink
from longtake.exports.take import DepthKind, PixelGrid, TakeSettings, TakeSink
from longtake.world.tour import View

EXACT_PX, SIXTEEN_BIT_PX = 0.05, 0.2
ALL_PIXELS = PointFilter(drop_percent=0.0, largest_jump=None)

Truth = Callable[[Sequence[MappedFrame]], list[Any]]
Stray = Callable[[Sequence[Any], Sequence[Any]], float]


def rotation(x: float, y: float, z: float, w: float) -> np.ndarray:
    """By the sandwich q v q*, axis by axis."""
    axis = np.array([x, y, z])
    turned = [v + 2 * w * np.cross(axis, v) + 2 * np.cross(axis, np.cross(axis, v)) for v in np.eye(3)]
    return np.stack(turned, axis=1)


def read_tum_poses(path: Path) -> list[np.ndarray]:
    poses = []
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            _, x, y, z, *quaternion = map(float, line.split())
            pose = np.eye(4)
            pose[:3, :3], pose[:3, 3] = rotation(*quaternion), (x, y, z)
            poses.append(pose)
    return poses


def read_kitti_poses(path: Path) -> list[np.ndarray]:
    return [np.vstack([row.reshape(3, 4), [0, 0, 0, 1]]) for row in np.loadtxt(path, ndmin=2)]


def read_take_frames(folder: Path, seen: Callable[..., Any]) -> list[Any]:
    header = json.loads((folder / "take.json").read_text())
    assert header["format"] == "longtake-take"
    records = [json.loads(line) for line in (folder / "frames.jsonl").read_text().splitlines()]
    frames = []
    for record, pose in zip(records, read_tum_poses(folder / "poses.tum"), strict=True):
        path = folder / header["depth"]["files"].format(index=record["index"])
        if path.suffix == ".npz":
            with np.load(path) as file:
                depth = file["depth"]
        else:
            with Image.open(path) as image:
                depth = np.asarray(image) * header["depth"]["step"]
        assert depth.shape == (header["height"], header["width"])
        fx, fy, cx, cy = record["intrinsics"]
        frames.append(seen(pose, np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]]), depth))
    return frames


def read_ply(path: Path) -> dict[str, np.ndarray]:
    """The columns of a binary PLY of one element, by its header's word."""
    with path.open("rb") as file:
        lines = []
        while (line := file.readline().decode().strip()) != "end_header":
            lines.append(line.split())
        data = file.read()
    assert lines[0] == ["ply"]
    assert lines[1] == ["format", "binary_little_endian", "1.0"]
    count = next(int(line[2]) for line in lines if line[0] == "element")
    properties = [line[1:] for line in lines if line[0] == "property"]
    row = struct.Struct("<" + "".join({"float": "f", "uchar": "B"}[kind] for kind, _ in properties))
    assert len(data) == count * row.size
    columns = zip(*row.iter_unpack(data), strict=True) if count else ((),) * len(properties)
    return {name: np.array(column) for (_, name), column in zip(properties, columns, strict=True)}


@pytest.mark.parametrize(("sink", "read"), [(TumSink, read_tum_poses), (KittiSink, read_kitti_poses)])
def test_poses_of_a_trajectory_file_send_pixels_where_they_belong(
    tmp_path: Path,
    frames: list[MappedFrame],
    seen: Callable[..., Any],
    truth: Truth,
    stray: Stray,
    sink: Callable[..., Sink],
    read: Callable[[Path], list[np.ndarray]],
    write_all: Callable[..., None],
) -> None:
    write_all(sink(tmp_path / "poses"), frames)
    true = truth(frames)
    found = [replace(one, world_from_camera=pose) for one, pose in zip(true, read(tmp_path / "poses"), strict=True)]
    assert stray(found, true) < 1e-6
    nudge = np.eye(4)
    nudge[0, 3] = 0.01
    moved = [replace(found[0], world_from_camera=found[0].world_from_camera @ nudge), *found[1:]]
    assert stray(moved, true) > EXACT_PX


@pytest.mark.parametrize(
    ("depth", "limit_px"), [(DepthKind.NPZ, EXACT_PX), (DepthKind.PNG, SIXTEEN_BIT_PX)], ids=["npz", "png"]
)
@pytest.mark.parametrize("walk", ["frames", "cut_frames"])
def test_depth_intrinsics_and_poses_of_a_take_send_pixels_where_they_belong(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    seen: Callable[..., Any],
    truth: Truth,
    stray: Stray,
    walk: str,
    depth: DepthKind,
    limit_px: float,
    write_all: Callable[..., None],
) -> None:
    frames = request.getfixturevalue(walk)
    write_all(TakeSink(tmp_path / "take", TakeSettings(depth=depth)), frames)
    found = read_take_frames(tmp_path / "take", seen)
    error = stray(found, truth(frames))
    print(f"{walk} as {depth}: {error:.2e} px")
    assert error < limit_px


@pytest.mark.parametrize("axis", [0, 1])
def test_half_a_pixel_would_be_seen(
    tmp_path: Path,
    frames: list[MappedFrame],
    seen: Callable[..., Any],
    truth: Truth,
    stray: Stray,
    axis: int,
    write_all: Callable[..., None],
) -> None:
    write_all(TakeSink(tmp_path / "take", TakeSettings()), frames)
    found = read_take_frames(tmp_path / "take", seen)
    half = np.zeros((3, 3))
    half[axis, 2] = 0.5
    assert stray([replace(one, intrinsics=one.intrinsics + half) for one in found], truth(frames)) > SIXTEEN_BIT_PX


def test_header_leads_from_the_networks_pixels_to_the_sources(
    tmp_path: Path,
    cut_frames: list[MappedFrame],
    views: list[View],
    seen: Callable[..., Any],
    write_all: Callable[..., None],
) -> None:
    write_all(TakeSink(tmp_path / "take", TakeSettings()), cut_frames)
    source = json.loads((tmp_path / "take" / "take.json").read_text())["source"]
    assert (source["width"], source["height"]) == (192, 144)
    (scale_x, scale_y), (offset_x, offset_y) = source["scale"], source["offset"]
    for frame, view in zip(read_take_frames(tmp_path / "take", seen), views, strict=True):
        true = view.intrinsics.double().numpy()
        back = frame.intrinsics.copy()
        back[0, 2] = (back[0, 2] + 0.5 - offset_x) / scale_x - 0.5
        back[1, 2] = (back[1, 2] + 0.5 - offset_y) / scale_y - 0.5
        back[0, 0], back[1, 1] = back[0, 0] / scale_x, back[1, 1] / scale_y
        np.testing.assert_allclose(back, true, rtol=1e-12)


def test_take_in_the_sources_pixels_sends_them_where_they_belong(
    tmp_path: Path,
    cut_frames: list[MappedFrame],
    views: list[View],
    seen: Callable[..., Any],
    stray: Stray,
    write_all: Callable[..., None],
) -> None:
    settings = TakeSettings(pixels=PixelGrid.SOURCE, depth=DepthKind.NPZ)
    write_all(TakeSink(tmp_path / "take", settings), cut_frames)
    found = read_take_frames(tmp_path / "take", seen)
    true = [
        seen(view.world_from_camera.numpy(), view.intrinsics.double().numpy(), view.depth.double().numpy())
        for view in views
    ]
    for one, want in zip(found, true, strict=True):
        assert not one.depth[:15].any()
        assert not one.depth[-15:].any()
        assert one.depth[15:-15].all()
        np.testing.assert_allclose(one.intrinsics, want.intrinsics, rtol=1e-12)
    # The network's pixels have their middles at the middle of every third pixel; there the depth is theirs.
    middles = np.zeros(true[0].depth.shape, dtype=bool)
    middles[16:-15:3, 1::3] = True
    picked = [replace(one, depth=np.where(middles, one.depth, np.nan)) for one in found]
    wanted = [replace(one, depth=np.where(middles, one.depth, np.nan)) for one in true]
    assert stray(picked, wanted) < EXACT_PX
    shifted = [
        replace(one, intrinsics=one.intrinsics + np.array([[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]])) for one in picked
    ]
    assert stray(shifted, wanted) > EXACT_PX


def cloud_stray_px(columns: dict[str, np.ndarray], true: Sequence[Any]) -> float:
    """How far points of a file lie from true ones, as any frame that sees them sees it."""
    points = np.stack([columns[name] for name in "xyz"], axis=1).astype(np.float64)
    exact = np.concatenate([one.points() for one in true])
    _, nearest = cKDTree(exact).query(points)
    worst = 0.0
    for one in true:
        got, want = one.pixels(points), one.pixels(exact[nearest])
        counts = (want[:, 2] > 0.1) & (np.abs(want[:, :2] - [32, 24]) < [32, 24]).all(axis=1)
        worst = max(worst, float(np.linalg.norm((got - want)[counts, :2], axis=1).max()))
    return worst


@pytest.fixture(scope="session")
def fine_cloud(
    tmp_path_factory: pytest.TempPathFactory, frames: list[MappedFrame], write_all: Callable[..., None]
) -> dict[str, np.ndarray]:
    path = tmp_path_factory.mktemp("cloud") / "cloud.ply"
    write_all(PlySink(path, CloudSettings(points=ALL_PIXELS, voxel=1e-4)), frames)
    return read_ply(path)


def test_points_of_a_cloud_are_seen_where_they_belong(
    fine_cloud: dict[str, np.ndarray], frames: list[MappedFrame], truth: Truth
) -> None:
    assert list(fine_cloud) == ["x", "y", "z", "nx", "ny", "nz", "red", "green", "blue", "confidence"]
    num_pixels = sum(frame.depth.size for frame in frames)
    assert 0.99 * num_pixels < len(fine_cloud["x"]) <= num_pixels
    error = cloud_stray_px(fine_cloud, truth(frames))
    print(f"cloud: {error:.2e} px")
    assert error < EXACT_PX


def test_half_a_pixel_would_be_seen_in_a_cloud(
    tmp_path: Path, frames: list[MappedFrame], truth: Truth, write_all: Callable[..., None]
) -> None:
    half = frames[0].intrinsics.new_tensor([[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]])
    shifted = [replace(frame, intrinsics=frame.intrinsics + half) for frame in frames]
    write_all(PlySink(tmp_path / "cloud.ply", CloudSettings(points=ALL_PIXELS, voxel=1e-4)), shifted)
    assert cloud_stray_px(read_ply(tmp_path / "cloud.ply"), truth(frames)) > EXACT_PX


def test_points_have_the_colour_confidence_and_normal_of_their_pixels(
    fine_cloud: dict[str, np.ndarray], frames: list[MappedFrame], views: list[View], truth: Truth
) -> None:
    points = np.stack([fine_cloud[name] for name in "xyz"], axis=1)
    distance, nearest = cKDTree(np.concatenate([one.points() for one in truth(frames)])).query(points)
    alone = distance < 1e-6  # not the mean of two that fell into one voxel
    assert alone.mean() > 0.99
    colours = np.concatenate([frame.image.reshape(-1, 3) for frame in frames])[nearest]
    confidence = np.concatenate([frame.confidence.ravel() for frame in frames])[nearest]
    true_normals = np.concatenate([view.normal.numpy()[1::3, 1::3].reshape(-1, 3) for view in views])[nearest]
    got = np.stack([fine_cloud[name] for name in ("red", "green", "blue")], axis=1)
    assert np.array_equal(got[alone], colours[alone])
    np.testing.assert_allclose(fine_cloud["confidence"][alone], confidence[alone], atol=1e-4)
    normals = np.stack([fine_cloud[name] for name in ("nx", "ny", "nz")], axis=1)
    known = np.linalg.norm(normals, axis=1) > 0.5
    assert known.mean() > 0.7
    np.testing.assert_allclose(np.linalg.norm(normals[known], axis=1), 1, atol=1e-6)
    assert ((normals * true_normals).sum(axis=1)[known] > 0.95).mean() > 0.9
