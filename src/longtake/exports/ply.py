"""The cloud in a PLY file: binary, little-endian, `x y z nx ny nz red green blue confidence` for each point."""

from pathlib import Path

import numpy as np

from longtake import __version__
from longtake.exports.cloud import Cloud, CloudSettings, FramePoints, GrowingCloud
from longtake.exports.frame import MappedFrame
from longtake.exports.sink import PreparingSink, SinkState
from longtake.takes.atomic_files import replacing, require_writable, writing
from longtake.takes.header import Unit

CLOUD_NAME = "cloud.ply"
_FLOATS = ("x", "y", "z", "nx", "ny", "nz")
_BYTES = ("red", "green", "blue")
_CONFIDENCE = "confidence"
_PROPERTIES = [f"float {name}" for name in _FLOATS] + [f"uchar {name}" for name in _BYTES] + [f"float {_CONFIDENCE}"]
_POINT = np.dtype([(name, "<f4") for name in _FLOATS] + [(name, "u1") for name in _BYTES] + [(_CONFIDENCE, "<f4")])


class PlySink(PreparingSink):
    """The file is there from the first checkpoint on, whole at every moment."""

    def __init__(
        self,
        path: Path,
        settings: CloudSettings,
        *,
        unit: Unit = Unit.MODEL,
        overwrite: bool = False,
        state: SinkState | None = None,
    ) -> None:
        require_writable(path, overwrite=overwrite or state is not None)
        self._path, self._unit = path, unit
        self.cloud = GrowingCloud(settings, state=state)

    def prepare(self, frame: MappedFrame) -> FramePoints | None:
        return self.cloud.points_of(frame)

    def append(self, prepared: FramePoints | None) -> None:
        self.cloud.add_points(prepared)

    def checkpoint(self) -> SinkState:
        write_ply(self._path, self.cloud.cloud(), unit=self._unit)
        return self.cloud.state()

    def close(self) -> None:
        write_ply(self._path, self.cloud.cloud(), unit=self._unit)


def write_ply(path: Path, cloud: Cloud, *, unit: Unit) -> None:
    """Replace the file as a whole."""
    vertices = np.empty(len(cloud.points), dtype=_POINT)
    vertices["x"], vertices["y"], vertices["z"] = cloud.points.T
    vertices["nx"], vertices["ny"], vertices["nz"] = cloud.normals.T
    vertices["red"], vertices["green"], vertices["blue"] = cloud.colours.T
    vertices[_CONFIDENCE] = cloud.confidence
    with writing(str(path)), replacing(path) as file:
        file.write(_header(cloud, unit).encode())
        file.write(vertices.tobytes())


def _header(cloud: Cloud, unit: Unit) -> str:
    voxel = [] if cloud.voxel is None else [f"comment voxel {cloud.voxel!r}"]
    lines = [
        "ply",
        "format binary_little_endian 1.0",
        f"comment made by longtake {__version__}",
        f"comment unit {unit}",
        *voxel,
        f"element vertex {len(cloud.points)}",
        *(f"property {name}" for name in _PROPERTIES),
        "end_header",
    ]
    return "".join(f"{line}\n" for line in lines)
