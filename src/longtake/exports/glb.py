"""The map as one GLB file: coloured points, a camera for each frame, and their pyramids, blue to red along time.

glTF's world has y up, and its cameras look along -z with y up: both are ours (y down, z forward) turned about x. The
file is binary glTF 2.0:

0           12                20                                     28 + JSON
│ glTF 2 len │ len "JSON"      │ JSON, filled up with spaces to 4    │ len "BIN\\0" │ vertices, each view filled up to 4
"""

import json
import math
import struct
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8

from longtake import __version__
from longtake.errors import SettingError
from longtake.exports.cloud import Cloud, CloudSettings, GrowingCloud
from longtake.exports.frame import MappedFrame
from longtake.exports.sink import Sink
from longtake.exports.source_cameras import PinholeLens, SourceCamera, source_camera
from longtake.takes.atomic_files import replace_file, require_writable
from longtake.takes.header import Unit

MAX_CAMERAS = 500
"""So many cameras a viewer still draws with ease."""

_HALF_TURN_ABOUT_X = torch.diag(torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64))
_NEAR_PLANE = 0.01
_PYRAMID_SHARE = 0.02
"""How far a camera's pyramid reaches, as a share of the scene's diagonal."""
_PYRAMID_EDGES = [0, 1, 0, 2, 0, 3, 0, 4, 1, 2, 2, 3, 3, 4, 4, 1]
"""Pairs of corners, of which 0 is the camera's centre."""
_FLOAT = 5126
_VERTICES = 34962
"""glTF's numbers for a type of components, and for what a view of the buffer is for."""


class GlbSink(Sink):
    """The file is there, whole, when the sink is closed."""

    def __init__(
        self,
        path: Path,
        settings: CloudSettings,
        *,
        unit: Unit = Unit.MODEL,
        max_cameras: int = MAX_CAMERAS,
        overwrite: bool = False,
    ) -> None:
        """Of more cameras than `max_cameras`, every n-th is drawn."""
        if max_cameras < 1:
            raise SettingError(f"Expected a GLB file of 1 camera or more, not of {max_cameras}.")
        require_writable(path, overwrite=overwrite)
        self._path, self._settings, self._unit, self._max_cameras = path, settings, unit, max_cameras
        self.cloud = GrowingCloud(settings)
        self._cameras: list[SourceCamera] = []

    def write(self, frame: MappedFrame) -> None:
        if self._settings.points.takes(frame):
            self._cameras.append(source_camera(frame))
            self.cloud.add(frame)

    def close(self) -> None:
        one_in = max(1, math.ceil(len(self._cameras) / self._max_cameras))
        replace_file(self._path, glb_bytes(self.cloud.cloud(), self._cameras[::one_in], unit=self._unit))


def glb_bytes(cloud: Cloud, cameras: list[SourceCamera], *, unit: Unit) -> bytes:
    """The content of a GLB file."""
    file = GltfFile()
    children: list[int] = []
    if len(cloud.points):
        mesh = file.add_mesh(Primitive.POINTS, _turned(cloud.points), cloud.colours)
        children.append(file.add_node({"name": "points", "mesh": mesh}))
    if cameras:
        children.append(file.add_node({"name": "camera pyramids", "mesh": _add_pyramids(file, cloud, cameras)}))
    children += [file.add_node(_camera_node(file, camera)) for camera in cameras]
    root: dict[str, Any] = {"name": "world"}
    extras = {
        "unit": str(unit),
        "world": "Points and cameras are turned from (x, y, z), y down and z forward, to (x, -y, -z).",
        "pixels": "The intrinsics fx, fy, cx, cy of cameras have pixel (0, 0) at the centre of the first pixel.",
    }
    return file.to_bytes(file.add_node(root | ({"children": children} if children else {})), extras)


class Primitive(IntEnum):
    """How vertices are drawn."""

    POINTS = 0
    LINES = 1


class GltfFile:
    """A glTF document under construction; what is added returns its number, by which other parts refer to it."""

    def __init__(self) -> None:
        self._lists: dict[str, list[Any]] = {
            name: [] for name in ("nodes", "meshes", "cameras", "accessors", "bufferViews")
        }
        self._binary: list[bytes] = []
        self._num_bytes = 0

    def add_mesh(
        self,
        kind: Primitive,
        positions: Float[np.ndarray, "vertices 3"],
        colours: UInt8[np.ndarray, "vertices 3"],
    ) -> int:
        """Coloured points or lines, one vertex at least; colours are what a screen shows (sRGB)."""
        attributes = {
            "POSITION": self._add_positions(positions.astype("<f4")),
            "COLOR_0": self._add_accessor(light_of(colours), {}),
        }
        return self._add("meshes", {"primitives": [{"mode": int(kind), "attributes": attributes}]})

    def add_camera(self, camera: dict[str, Any]) -> int:
        return self._add("cameras", camera)

    def add_node(self, node: dict[str, Any]) -> int:
        return self._add("nodes", node)

    def to_bytes(self, root: int, extras: dict[str, Any]) -> bytes:
        """The whole file, whose scene is one node and what hangs on it."""
        document = {
            "asset": {"version": "2.0", "generator": f"longtake {__version__}", "extras": extras},
            "scene": 0,
            "scenes": [{"nodes": [root]}],
            **{name: entries for name, entries in self._lists.items() if entries},
            **({"buffers": [{"byteLength": self._num_bytes}]} if self._num_bytes else {}),
        }
        text = _filled(json.dumps(document, allow_nan=False).encode(), b" ")
        chunks = struct.pack("<I4s", len(text), b"JSON") + text
        if self._num_bytes:
            chunks += struct.pack("<I4s", self._num_bytes, b"BIN\0") + b"".join(self._binary)
        return struct.pack("<4sII", b"glTF", 2, 12 + len(chunks)) + chunks

    def _add_positions(self, positions: Float[np.ndarray, "vertices 3"]) -> int:
        bounds = {"min": positions.min(axis=0).tolist(), "max": positions.max(axis=0).tolist()}
        return self._add_accessor(positions, bounds)

    def _add_accessor(self, values: Float[np.ndarray, "vertices 3"], more: dict[str, Any]) -> int:
        content = values.tobytes()
        view = {"buffer": 0, "byteOffset": self._num_bytes, "byteLength": len(content), "target": _VERTICES}
        self._binary.append(_filled(content, b"\0"))
        self._num_bytes += len(self._binary[-1])
        accessor = {"bufferView": self._add("bufferViews", view), "componentType": _FLOAT, "count": len(values)}
        return self._add("accessors", {**accessor, "type": "VEC3", **more})

    def _add(self, name: str, entry: dict[str, Any]) -> int:
        self._lists[name].append(entry)
        return len(self._lists[name]) - 1


def light_of(colours: UInt8[np.ndarray, "vertices 3"]) -> Float[np.ndarray, "vertices 3"]:
    """glTF's vertex colours are linear light: sRGB's transfer curve undone."""
    shown = np.arange(256) / 255
    light = np.where(shown <= 0.04045, shown / 12.92, ((shown + 0.055) / 1.055) ** 2.4).astype("<f4")
    looked_up: Float[np.ndarray, "vertices 3"] = light[colours]
    return looked_up


def _camera_node(file: GltfFile, camera: SourceCamera) -> dict[str, Any]:
    """glTF has no principal point: a viewer looks through the image's middle, and the lens is in the extras."""
    lens = camera.lens
    perspective = {
        "yfov": 2 * math.atan(lens.height / (2 * lens.fy)),
        "aspectRatio": (lens.width / lens.fx) / (lens.height / lens.fy),
        "znear": _NEAR_PLANE,
    }
    extras = {
        "index": camera.index,
        "timestamp_s": camera.timestamp_s,
        "width": lens.width,
        "height": lens.height,
        "intrinsics": [lens.fx, lens.fy, lens.cx, lens.cy],
    }
    matrix = _HALF_TURN_ABOUT_X @ camera.world_from_camera @ _HALF_TURN_ABOUT_X
    return {
        "name": f"frame {camera.index:06d}",
        "camera": file.add_camera({"type": "perspective", "perspective": perspective}),
        "matrix": matrix.T.flatten().tolist(),  # column by column
        "extras": extras,
    }


def _turned(points: Float[np.ndarray, "points 3"]) -> Float[np.ndarray, "points 3"]:
    """Points turned from our world to glTF's."""
    turned: Float[np.ndarray, "points 3"] = points * np.array([1.0, -1.0, -1.0])
    return turned


def _add_pyramids(file: GltfFile, cloud: Cloud, cameras: list[SourceCamera]) -> int:
    depth = _PYRAMID_SHARE * _diagonal(cloud, cameras)
    vertices = np.concatenate([_pyramid(camera, depth)[_PYRAMID_EDGES] for camera in cameras])
    colours = np.repeat(_colours_along(len(cameras)), len(_PYRAMID_EDGES), axis=0)
    return file.add_mesh(Primitive.LINES, _turned(vertices), colours)


def _pyramid(camera: SourceCamera, depth: float) -> Float[np.ndarray, "5 3"]:
    """The camera's centre and the image's four corners, so far before it."""
    rays = torch.tensor([[0.0, 0.0, 0.0], *_corner_rays(camera.lens)], dtype=torch.float64)
    pose = camera.world_from_camera
    corners: Float[np.ndarray, "5 3"] = (depth * rays @ pose[:3, :3].T + pose[:3, 3]).numpy()
    return corners


def _corner_rays(lens: PinholeLens) -> list[list[float]]:
    left, right = ((u - lens.cx) / lens.fx for u in (-0.5, lens.width - 0.5))
    top, bottom = ((v - lens.cy) / lens.fy for v in (-0.5, lens.height - 0.5))
    return [[left, top, 1.0], [right, top, 1.0], [right, bottom, 1.0], [left, bottom, 1.0]]


def _diagonal(cloud: Cloud, cameras: list[SourceCamera]) -> float:
    """The diagonal of a box around all cameras and all points but the outermost; 1 where it is empty."""
    ends = [np.stack([camera.world_from_camera[:3, 3].numpy() for camera in cameras])]
    if len(cloud.points):
        ends.append(np.percentile(cloud.points, [2, 98], axis=0))
    joined = np.concatenate(ends)
    return float(np.linalg.norm(np.ptp(joined, axis=0))) or 1.0


def _colours_along(count: int) -> UInt8[np.ndarray, "count 3"]:
    """So many colours from blue over green to red."""
    place = np.linspace(0, 1, count)
    channels = [np.clip(2 - abs(4 * place - peak), 0, 1) for peak in (4, 2, 0)]
    colours: UInt8[np.ndarray, "count 3"] = np.round(255 * np.stack(channels, axis=1)).astype(np.uint8)
    return colours


def _filled(content: bytes, filler: bytes) -> bytes:
    return content + filler * (-len(content) % 4)
