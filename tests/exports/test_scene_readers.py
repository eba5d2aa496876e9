"""Exported scenes as pycolmap and trimesh read them in an environment of their own.

`make test-extra` fetches both; without them these tests are skipped.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longtake.exports.cloud import CloudSettings
from longtake.exports.colmap import ColmapFiles, ColmapSink
from longtake.exports.frame import MappedFrame
from longtake.exports.glb import GlbSink
from longtake.world.tour import View

LIMIT_PX = 0.05

pytestmark = pytest.mark.extra

READ_COLMAP = """
import json, sys
import numpy, pycolmap
model = pycolmap.Reconstruction(sys.argv[1])
points = [point.xyz for _, point in sorted(model.points3D.items())]
seen = {}
for number, image in sorted(model.images.items()):
    pixels = [image.project_point(xyz) for xyz in points]
    seen[image.name] = [None if pixel is None else pixel.tolist() for pixel in pixels]
print(json.dumps({
    "points": [xyz.tolist() for xyz in points],
    "colours": [point.color.tolist() for _, point in sorted(model.points3D.items())],
    "cameras": [[camera.model.name, camera.width, camera.height] for camera in model.cameras.values()],
    "seen": seen,
}))
"""

READ_GLB = """
import json, sys
import numpy, trimesh
scene = trimesh.load(sys.argv[1])
meshes = {}
for node in scene.graph.nodes_geometry:
    world_from_mesh, name = scene.graph[node]
    mesh = scene.geometry[name]
    meshes[type(mesh).__name__] = {
        "vertices": trimesh.transform_points(mesh.vertices, world_from_mesh).tolist(),
        "colours": numpy.asarray(mesh.colors).tolist() if type(mesh).__name__ == "PointCloud" else None,
    }
camera = scene.graph[scene.camera.name][0]
print(json.dumps({"meshes": meshes, "camera": camera.tolist(), "fov": scene.camera.fov.tolist()}))
"""


@pytest.mark.parametrize("files", list(ColmapFiles))
def test_pycolmap_sees_the_points_where_they_belong(
    tmp_path: Path,
    cut_frames: list[MappedFrame],
    views: list[View],
    files: ColmapFiles,
    write_all: Callable[..., None],
    ask: Callable[..., dict[str, Any]],
) -> None:
    sink = ColmapSink(tmp_path / "colmap", CloudSettings(max_points=2000), files=files)
    write_all(sink, cut_frames)
    cloud = sink.cloud.cloud()
    found = ask(READ_COLMAP, str(tmp_path / "colmap" / "sparse" / "0"), home=tmp_path)
    assert found["cameras"] == [["PINHOLE", 192, 144]]
    assert np.array_equal(found["points"], cloud.points)
    assert np.array_equal(found["colours"], cloud.colours)
    assert list(found["seen"]) == [f"{frame.index:06d}.jpg" for frame in cut_frames]
    for view, seen in zip(views, found["seen"].values(), strict=True):
        world, k = view.world_from_camera.numpy(), view.intrinsics.double().numpy()
        before = (cloud.points - world[:3, 3]) @ world[:3, :3] @ k.T
        ahead = before[:, 2] > 0.1
        want = before[ahead, :2] / before[ahead, 2:] + 0.5
        got = np.array([pixel for pixel, is_ahead in zip(seen, ahead, strict=True) if is_ahead])
        inside = (want > 0).all(axis=1) & (want < [192, 144]).all(axis=1)
        assert inside.sum() > 50
        np.testing.assert_allclose(got[inside], want[inside], rtol=0, atol=LIMIT_PX)


def test_pycolmap_reads_an_empty_model(
    tmp_path: Path, write_all: Callable[..., None], ask: Callable[..., dict[str, Any]]
) -> None:
    write_all(ColmapSink(tmp_path / "colmap", CloudSettings()), [])
    found = ask(READ_COLMAP, str(tmp_path / "colmap" / "sparse" / "0"), home=tmp_path)
    assert found == {"points": [], "colours": [], "cameras": [], "seen": {}}


def test_trimesh_reads_points_pyramids_and_a_camera(
    tmp_path: Path, frames: list[MappedFrame], write_all: Callable[..., None], ask: Callable[..., dict[str, Any]]
) -> None:
    sink = GlbSink(tmp_path / "map.glb", CloudSettings(max_points=2000))
    write_all(sink, frames)
    cloud = sink.cloud.cloud()
    found = ask(READ_GLB, str(tmp_path / "map.glb"), home=tmp_path)
    points, lines = np.array(found["meshes"]["PointCloud"]["vertices"]), found["meshes"]["Path3D"]["vertices"]
    np.testing.assert_allclose(points, cloud.points * [1, -1, -1], atol=1e-6)
    light = np.array(found["meshes"]["PointCloud"]["colours"])[:, :3] / 255
    shown = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    np.testing.assert_allclose(255 * shown, cloud.colours, atol=13)  # trimesh keeps light in eight bits
    centres = np.stack([frame.world_from_camera[:3, 3].numpy() for frame in frames]) * [1, -1, -1]
    near = np.linalg.norm(np.array(lines)[:, None] - centres, axis=-1).min(axis=0)
    np.testing.assert_allclose(near, 0, atol=1e-5)
    turn = np.diag([1.0, -1, -1, 1])
    turned = [turn @ frame.world_from_camera.numpy() @ turn for frame in frames]
    assert min(np.abs(found["camera"] - one).max() for one in turned) < 1e-6  # trimesh keeps one camera of many
    fy = float(frames[0].intrinsics[1, 1])
    assert found["fov"][1] == pytest.approx(np.degrees(2 * np.arctan(24 / fy)))  # trimesh guesses the other angle
