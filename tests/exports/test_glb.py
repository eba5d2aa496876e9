"""GLB files read back by a parser written here, which follows the glTF 2.0 specification."""

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial import cKDTree

from longtake.errors import SettingError
from longtake.exports.cloud import CloudSettings
from longtake.exports.frame import FrameStatus, MappedFrame
from longtake.exports.glb import GlbSink, light_of
from longtake.exports.point_filter import PointFilter
from longtake.world.tour import View

LIMIT_PX = 0.05
ALL_PIXELS = CloudSettings(points=PointFilter(drop_percent=0.0, largest_jump=None), voxel=1e-4)


class Glb:
    """A file's scene, walked through from its root."""

    def __init__(self, path: Path) -> None:
        content = path.read_bytes()
        magic, version, length = struct.unpack_from("<4sII", content)
        assert (magic, version, length) == (b"glTF", 2, len(content))
        chunks, at = [], 12
        while at < length:
            size, kind = struct.unpack_from("<I4s", content, at)
            assert size % 4 == 0
            chunks.append((kind, content[at + 8 : at + 8 + size]))
            at += 8 + size
        assert at == length
        assert [kind for kind, _ in chunks] in ([b"JSON"], [b"JSON", b"BIN\0"])
        self.tree = json.loads(chunks[0][1])
        self.binary = chunks[1][1] if len(chunks) == 2 else b""
        assert sum(buffer["byteLength"] for buffer in self.tree.get("buffers", [])) == len(self.binary)
        (root,) = self.tree["scenes"][self.tree["scene"]]["nodes"]
        self.nodes: list[tuple[dict[str, Any], np.ndarray]] = []
        self._walk(root, np.eye(4))

    def _walk(self, number: int, above: np.ndarray) -> None:
        node = self.tree["nodes"][number]
        here = above @ np.array(node["matrix"]).reshape(4, 4).T if "matrix" in node else above
        assert not {"rotation", "translation", "scale"} & set(node)
        self.nodes.append((node, here))
        for child in node.get("children", []):
            self._walk(child, here)

    def accessor(self, number: int) -> np.ndarray:
        entry = self.tree["accessors"][number]
        view = self.tree["bufferViews"][entry["bufferView"]]
        assert (entry["componentType"], entry["type"]) == (5126, "VEC3"), "float32"
        assert view["byteOffset"] % 4 == 0
        assert view["byteLength"] == entry["count"] * 12
        values = np.frombuffer(self.binary, "<f4", entry["count"] * 3, view["byteOffset"]).reshape(-1, 3)
        if "min" in entry:
            assert entry["min"] == values.min(axis=0).tolist()
            assert entry["max"] == values.max(axis=0).tolist()
        return values.astype(np.float64)

    def mesh(self, mode: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions in glTF's world and colours of the one mesh of a mode."""
        found = []
        for node, world_from_node in self.nodes:
            if "mesh" in node:
                (primitive,) = self.tree["meshes"][node["mesh"]]["primitives"]
                if primitive["mode"] == mode:
                    assert "min" in self.tree["accessors"][primitive["attributes"]["POSITION"]]
                    positions = self.accessor(primitive["attributes"]["POSITION"])
                    placed = positions @ world_from_node[:3, :3].T + world_from_node[:3, 3]
                    found.append((placed, self.accessor(primitive["attributes"]["COLOR_0"])))
        (only,) = found
        return only

    def cameras(self) -> list[tuple[dict[str, Any], np.ndarray]]:
        return [(node, world_from_node) for node, world_from_node in self.nodes if "camera" in node]


def write_glb(sink: GlbSink, path: Path, frames: Sequence[MappedFrame]) -> Glb:
    with sink:
        for frame in frames:
            sink.write(frame)
    return Glb(path)


def lens(node: dict[str, Any]) -> np.ndarray:
    fx, fy, cx, cy = node["extras"]["intrinsics"]
    return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])


def pixels(node: dict[str, Any], world_from_node: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Column, row and depth in our pixels, for a camera that looks along -z with y up."""
    before = (points - world_from_node[:3, 3]) @ world_from_node[:3, :3] * [1, -1, -1]
    seen = before @ lens(node).T
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.column_stack([seen[:, :2] / seen[:, 2:], seen[:, 2]])


def test_pixels_of_the_source_land_where_they_belong(
    tmp_path: Path,
    cut_frames: list[MappedFrame],
    views: list[View],
    seen: Callable[..., Any],
    stray: Callable[..., float],
) -> None:
    path = tmp_path / "map.glb"
    glb = write_glb(GlbSink(path, CloudSettings()), path, cut_frames)
    true = [
        seen(view.world_from_camera.numpy(), view.intrinsics.double().numpy(), view.depth.numpy())
        for view in views[::3]
    ]
    turn, flip = np.diag([1.0, -1, -1, 1]), np.diag([1.0, -1, -1, 1])
    found = [
        replace(one, world_from_camera=turn @ world_from_node @ flip, intrinsics=lens(node))
        for one, (node, world_from_node) in zip(true, glb.cameras()[::3], strict=True)
    ]
    error = stray(found, true)
    print(f"cameras: {error:.2e} px")
    assert error < LIMIT_PX
    half = np.array([[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]])
    assert stray([replace(one, intrinsics=one.intrinsics + half) for one in found], true) > LIMIT_PX


def test_points_are_seen_by_every_camera_where_they_belong(
    tmp_path: Path, cut_frames: list[MappedFrame], truth: Callable[..., list[Any]], views: list[View]
) -> None:
    path = tmp_path / "map.glb"
    glb = write_glb(GlbSink(path, ALL_PIXELS), path, cut_frames[::4])
    points, colours = glb.mesh(mode=0)
    exact = np.concatenate([one.points() for one in truth(cut_frames[::4])])
    distance, nearest = cKDTree(exact * [1, -1, -1]).query(points)
    assert 0.99 * len(exact) < len(points) <= len(exact)
    for view, (node, world_from_node) in zip(views[::4], glb.cameras(), strict=True):
        world = view.world_from_camera.numpy()
        before = (exact[nearest] - world[:3, 3]) @ world[:3, :3] @ view.intrinsics.double().numpy().T
        with np.errstate(divide="ignore", invalid="ignore"):
            want = before[:, :2] / before[:, 2:]
        counts = (before[:, 2] > 0.1) & (np.abs(want - [95.5, 71.5]) < [96, 72]).all(axis=1)
        assert counts.sum() > 500
        off = np.linalg.norm(pixels(node, world_from_node, points)[counts, :2] - want[counts], axis=1)
        assert off.max() < LIMIT_PX
    alone = distance < 1e-6
    told = np.concatenate([frame.image.reshape(-1, 3) for frame in cut_frames[::4]])[nearest][alone]
    shown = np.where(colours <= 0.0031308, 12.92 * colours, 1.055 * colours ** (1 / 2.4) - 0.055)[alone]
    assert np.array_equal(np.round(255 * shown), told)


def test_cameras_look_forward_with_the_ground_below(tmp_path: Path, cut_frames: list[MappedFrame]) -> None:
    path = tmp_path / "map.glb"
    glb = write_glb(GlbSink(path, CloudSettings()), path, cut_frames[:3])
    points, _ = glb.mesh(mode=0)
    for _, world_from_node in glb.cameras():
        assert np.linalg.det(world_from_node[:3, :3]) == pytest.approx(1)
        assert world_from_node[1, 1] > 0.5, "a walk's cameras are held upright, and up is y"
        assert ((points - world_from_node[:3, 3]) @ -world_from_node[:3, 2] > 0).mean() > 0.8


def test_pyramids_end_at_the_corners_of_the_image(tmp_path: Path, cut_frames: list[MappedFrame]) -> None:
    path = tmp_path / "map.glb"
    glb = write_glb(GlbSink(path, CloudSettings()), path, cut_frames)
    lines, colours = glb.mesh(mode=1)
    corners = np.array([[-0.5, -0.5], [191.5, -0.5], [191.5, 143.5], [-0.5, 143.5]])
    each = lines.reshape(10, 16, 3)
    for (node, world_from_node), ends in zip(glb.cameras(), each, strict=True):
        np.testing.assert_allclose(ends[:8:2], np.tile(world_from_node[:3, 3], (4, 1)), atol=1e-5)
        np.testing.assert_allclose(pixels(node, world_from_node, ends[1:8:2])[:, :2], corners, atol=LIMIT_PX)
        np.testing.assert_allclose(pixels(node, world_from_node, ends[8::2])[:, :2], corners, atol=LIMIT_PX)
    assert colours[0].tolist() == [0, 0, 1]
    assert colours[-1].tolist() == [1, 0, 0]


def test_a_viewers_camera_opens_as_wide_as_the_lens(tmp_path: Path, frames: list[MappedFrame]) -> None:
    path = tmp_path / "map.glb"
    glb = write_glb(GlbSink(path, CloudSettings()), path, frames[:1])
    ((node, _),) = glb.cameras()
    perspective = glb.tree["cameras"][node["camera"]]["perspective"]
    fx, fy = frames[0].intrinsics.diagonal().tolist()[:2]
    half_height = np.tan(perspective["yfov"] / 2)
    assert half_height == pytest.approx(24 / fy)
    assert half_height * perspective["aspectRatio"] == pytest.approx(32 / fx)
    assert node["extras"] | {"intrinsics": None} == {
        "index": 0,
        "timestamp_s": 0.0,
        "width": 64,
        "height": 48,
        "intrinsics": None,
    }


def test_of_too_many_cameras_one_in_so_many_is_drawn(tmp_path: Path, frames: list[MappedFrame]) -> None:
    path = tmp_path / "map.glb"
    for most, want in ((1, [0]), (3, [0, 4, 8]), (9, [0, 2, 4, 6, 8]), (10, list(range(10)))):
        glb = write_glb(GlbSink(path, CloudSettings(), max_cameras=most, overwrite=True), path, frames)
        assert [node["extras"]["index"] for node, _ in glb.cameras()] == want
    with pytest.raises(SettingError, match="of 1 camera or more, not of 0"):
        GlbSink(path, CloudSettings(), max_cameras=0)


def test_frames_that_give_no_points_are_left_out(tmp_path: Path, frames: list[MappedFrame]) -> None:
    path = tmp_path / "map.glb"
    lost = replace(frames[1], status=FrameStatus.JUMP)
    glb = write_glb(GlbSink(path, CloudSettings()), path, [frames[0], lost, frames[2]])
    assert [node["name"] for node, _ in glb.cameras()] == ["frame 000000", "frame 000002"]


def test_file_of_nothing_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "map.glb"
    glb = write_glb(GlbSink(path, CloudSettings()), path, [])
    assert [node["name"] for node, _ in glb.nodes] == ["world"]
    assert "buffers" not in glb.tree


def test_lines_of_a_camera_without_points_have_a_length(tmp_path: Path, frames: list[MappedFrame]) -> None:
    path = tmp_path / "map.glb"
    blind = replace(frames[0], depth=np.zeros_like(frames[0].depth))
    lines, _ = write_glb(GlbSink(path, CloudSettings()), path, [blind]).mesh(mode=1)
    assert np.linalg.norm(lines[1] - lines[0]) > 0.01


def test_colours_of_a_screen_become_light() -> None:
    grey = np.array([[0, 128, 255]], dtype=np.uint8)
    np.testing.assert_allclose(light_of(grey), [[0, 0.2158605, 1]], rtol=1e-6)
