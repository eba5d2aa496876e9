"""Files that were exported, as plyfile and evo read them in an environment of their own.

`make test-extra` fetches both; without them these tests are skipped.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longtake.exports.cloud import CloudSettings
from longtake.exports.frame import MappedFrame
from longtake.exports.ply import PlySink
from longtake.exports.poses import KittiSink, TumSink
from longtake.exports.take import TakeSettings, TakeSink

pytestmark = pytest.mark.extra

READ_PLY = """
import json, sys
from plyfile import PlyData
cloud = PlyData.read(sys.argv[1])
assert not cloud.text and cloud.byte_order == "<"
(vertices,) = cloud.elements
print(json.dumps({
    "comments": cloud.comments,
    "types": {property.name: property.val_dtype for property in vertices.properties},
    "columns": {property.name: vertices[property.name].tolist() for property in vertices.properties},
}))
"""

READ_POSES = """
import json, sys
from evo.tools import file_interface
read = {"tum": file_interface.read_tum_trajectory_file, "kitti": file_interface.read_kitti_poses_file}[sys.argv[1]]
trajectory = read(sys.argv[2])
valid, details = trajectory.check()
print(json.dumps({
    "valid": valid,
    "details": details,
    "poses": [pose.tolist() for pose in trajectory.poses_se3],
    "times": trajectory.timestamps.tolist() if sys.argv[1] == "tum" else None,
}))
"""


def test_plyfile_reads_the_cloud(
    tmp_path: Path, frames: list[MappedFrame], write_all: Callable[..., None], ask: Callable[..., dict[str, Any]]
) -> None:
    sink = PlySink(tmp_path / "cloud.ply", CloudSettings())
    write_all(sink, frames)
    cloud = sink.cloud.cloud()
    found = ask(READ_PLY, str(tmp_path / "cloud.ply"), home=tmp_path)
    columns = {name: np.array(values) for name, values in found["columns"].items()}
    assert found["types"] == dict.fromkeys(["x", "y", "z", "nx", "ny", "nz", "confidence"], "f4") | dict.fromkeys(
        ["red", "green", "blue"], "u1"
    )
    assert "unit model" in found["comments"]
    assert len(cloud.points) > 1000
    for names, values in (("x y z", cloud.points), ("nx ny nz", cloud.normals), ("red green blue", cloud.colours)):
        got = np.stack([columns[name] for name in names.split()], axis=1)
        assert np.array_equal(got, values.astype(np.float32))
    assert np.array_equal(columns["confidence"], cloud.confidence.astype(np.float32))


def test_plyfile_reads_an_empty_cloud(
    tmp_path: Path, write_all: Callable[..., None], ask: Callable[..., dict[str, Any]]
) -> None:
    write_all(PlySink(tmp_path / "cloud.ply", CloudSettings()), [])
    assert ask(READ_PLY, str(tmp_path / "cloud.ply"), home=tmp_path)["columns"]["x"] == []


def test_evo_reads_the_trajectories(
    tmp_path: Path, frames: list[MappedFrame], write_all: Callable[..., None], ask: Callable[..., dict[str, Any]]
) -> None:
    write_all(TumSink(tmp_path / "trajectory.tum"), frames)
    write_all(KittiSink(tmp_path / "poses.txt"), frames)
    write_all(TakeSink(tmp_path / "take", TakeSettings()), frames)
    true = np.stack([frame.world_from_camera.numpy() for frame in frames])
    for kind, path in (("tum", "trajectory.tum"), ("tum", "take/poses.tum"), ("kitti", "poses.txt")):
        found = ask(READ_POSES, kind, str(tmp_path / path), home=tmp_path)
        assert found["valid"], found["details"]
        np.testing.assert_allclose(found["poses"], true, rtol=0, atol=1e-9)
        if kind == "tum":
            assert found["times"] == [frame.timestamp_s for frame in frames]
