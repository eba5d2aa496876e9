"""`transforms.json` read back by the rules of nerfstudio's reader: fields of the file first, then those of a frame."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scipy.spatial import cKDTree

from longtake.exports.cloud import CloudSettings
from longtake.exports.frame import FrameStatus, MappedFrame
from longtake.exports.nerfstudio import NerfstudioSink
from longtake.exports.point_filter import PointFilter
from longtake.takes.images import ImageFiles
from longtake.world.tour import View

LIMIT_PX = 0.05
ALL_PIXELS = CloudSettings(points=PointFilter(drop_percent=0.0, largest_jump=None), voxel=1e-4)
PLY_POINT = np.dtype([("xyz", "<f4", 3), ("normal", "<f4", 3), ("rgb", "u1", 3), ("confidence", "<f4")])


def write_nerfstudio(folder: Path, settings: CloudSettings, frames: Sequence[MappedFrame]) -> dict[str, Any]:
    with NerfstudioSink(folder, settings, images=ImageFiles.PNG) as sink:
        for frame in frames:
            sink.write(frame)
    document: dict[str, Any] = json.loads((folder / "transforms.json").read_text())
    return document


def lens(document: dict[str, Any], frame: dict[str, Any]) -> np.ndarray:
    """The matrix to nerfstudio's pixels, whose first one reaches from 0 to 1."""
    fx, fy, cx, cy = (document[name] if name in document else frame[name] for name in ("fl_x", "fl_y", "cx", "cy"))
    return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])


def pixels(document: dict[str, Any], frame: dict[str, Any], points: np.ndarray) -> np.ndarray:
    """Column, row and depth, for a camera that looks along -z with y up."""
    x, y, z = (np.linalg.inv(frame["transform_matrix"]) @ np.column_stack([points, np.ones(len(points))]).T)[:3]
    seen = np.column_stack([x, -y, -z]) @ lens(document, frame).T
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.column_stack([seen[:, :2] / seen[:, 2:], seen[:, 2]])


def read_points(folder: Path, document: dict[str, Any]) -> np.ndarray:
    content = (folder / document["ply_file_path"]).read_bytes()
    return np.frombuffer(content.split(b"end_header\n", 1)[1], dtype=PLY_POINT)


def with_own_lens(frame: MappedFrame) -> MappedFrame:
    """As if each frame had zoomed a little."""
    zoom = 1 + 0.02 * frame.index
    return replace(frame, intrinsics=frame.intrinsics * frame.intrinsics.new_tensor([[zoom], [zoom], [1.0]]))


def test_pixels_of_the_source_land_where_they_belong(
    tmp_path: Path,
    cut_frames: list[MappedFrame],
    views: list[View],
    seen: Callable[..., Any],
    stray: Callable[..., float],
) -> None:
    document = write_nerfstudio(tmp_path, CloudSettings(), cut_frames)
    assert "applied_transform" not in document
    assert (document["w"], document["h"]) == (192, 144)
    true = [
        seen(view.world_from_camera.numpy(), view.intrinsics.double().numpy(), view.depth.numpy())
        for view in views[::3]
    ]
    as_read = [
        replace(
            one,
            world_from_camera=np.array(frame["transform_matrix"]) @ np.diag([1.0, -1, -1, 1]),
            intrinsics=lens(document, frame),
        )
        for one, frame in zip(true, document["frames"][::3], strict=True)
    ]
    half = np.array([[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]])
    error = stray([replace(one, intrinsics=one.intrinsics - half) for one in as_read], true)
    print(f"transforms.json: {error:.2e} px")
    assert error < LIMIT_PX
    assert stray(as_read, true) > LIMIT_PX, "half a pixel would be seen"


def test_points_are_seen_by_every_camera_where_they_belong(
    tmp_path: Path, cut_frames: list[MappedFrame], truth: Callable[..., list[Any]]
) -> None:
    chosen = [with_own_lens(frame) for frame in cut_frames[::4]]
    document = write_nerfstudio(tmp_path, ALL_PIXELS, chosen)
    exact = np.concatenate([one.points() for one in truth(chosen)])
    points = read_points(tmp_path, document)["xyz"].astype(np.float64)
    assert 0.99 * len(exact) < len(points) <= len(exact)
    _, nearest = cKDTree(exact).query(points)
    for mapped, frame in zip(chosen, document["frames"], strict=True):
        # The network's pixels are three of the source's wide, and fifteen of its rows are cut off above.
        k = mapped.intrinsics.numpy()
        k = np.array([[3 * k[0, 0], 0, 3 * k[0, 2] + 1], [0, 3 * k[1, 1], 3 * k[1, 2] + 1 + 15], [0, 0, 1]])
        world = mapped.world_from_camera.numpy()
        before = (exact[nearest] - world[:3, 3]) @ world[:3, :3] @ k.T
        with np.errstate(divide="ignore", invalid="ignore"):
            want = before[:, :2] / before[:, 2:]
        counts = (before[:, 2] > 0.1) & (np.abs(want - [95.5, 71.5]) < [96, 72]).all(axis=1)
        assert counts.sum() > 500
        off = pixels(document, frame, points)[counts, :2] - want[counts]
        np.testing.assert_allclose(off, 0.5, rtol=0, atol=LIMIT_PX)


def test_points_have_the_colour_of_the_picture_where_its_camera_sees_them(
    tmp_path: Path, cut_frames: list[MappedFrame]
) -> None:
    document = write_nerfstudio(tmp_path, ALL_PIXELS, cut_frames[5:6])
    points = read_points(tmp_path, document)
    (frame,) = document["frames"]
    with Image.open(tmp_path / frame["file_path"]) as image:
        picture = np.asarray(image)
    columns, rows, _ = np.floor(pixels(document, frame, points["xyz"].astype(np.float64))).astype(int).T
    assert (picture[rows, columns] == points["rgb"]).all(axis=1).mean() > 0.995


def test_lens_is_told_once_or_in_every_frame(tmp_path: Path, cut_frames: list[MappedFrame]) -> None:
    once = write_nerfstudio(tmp_path / "once", CloudSettings(), cut_frames[:3])
    assert once["camera_model"] == "OPENCV"
    assert not any("fl_x" in frame for frame in once["frames"])
    each = write_nerfstudio(tmp_path / "each", CloudSettings(), [with_own_lens(frame) for frame in cut_frames[:3]])
    names = {"w", "h", "fl_x", "fl_y", "cx", "cy"}
    assert not names & set(each), "nerfstudio would take these for all frames"
    assert all(names < set(frame) for frame in each["frames"])
    assert each["frames"][2]["fl_x"] == once["fl_x"] * 1.04


def test_frames_that_give_no_points_are_left_out(tmp_path: Path, cut_frames: list[MappedFrame]) -> None:
    lost = replace(cut_frames[1], status=FrameStatus.CUT)
    document = write_nerfstudio(tmp_path, CloudSettings(), [cut_frames[0], lost, cut_frames[2]])
    paths = [frame["file_path"] for frame in document["frames"]]
    assert paths == ["images/000000.png", "images/000002.png"]
    assert sorted(path.name for path in (tmp_path / "images").iterdir()) == ["000000.png", "000002.png"]


def test_file_without_frames_is_whole(tmp_path: Path) -> None:
    document = write_nerfstudio(tmp_path, CloudSettings(), [])
    assert document["frames"] == []
    assert len(read_points(tmp_path, document)) == 0
