"""The map as one GLB file: coloured points, a camera for each frame, and their pyramids, blue to red along time.

glTF's world has y up, and its cameras look along -z with y up: both are ours (y down, z forward) turned about x.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8

from longtake.errors import SettingError
from longtake.exports.cloud import Cloud, CloudSettings, GrowingCloud
from longtake.exports.frame import MappedFrame
from longtake.exports.gltf import GltfFile, Primitive
from longtake.exports.sink import Sink
from longtake.exports.source_cameras import PinholeLens, SourceCamera, source_camera
from longtake.takes.atomic_files import replacing, require_writable, writing
from longtake.takes.header import Unit

MAX_CAMERAS = 500
"""So many cameras a viewer still draws with ease."""

_HALF_TURN_ABOUT_X = torch.diag(torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64))
_NEAR_PLANE = 0.01
_PYRAMID_SHARE = 0.02
"""How far a camera's pyramid reaches, as a share of the scene's diagonal."""
_PYRAMID_EDGES = [0, 1, 0, 2, 0, 3, 0, 4, 1, 2, 2, 3, 3, 4, 4, 1]
"""Pairs of corners, of which 0 is the camera's centre."""


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
        """Of more cameras than asked for, one in so many is drawn."""
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
        with writing(str(self._path)), replacing(self._path) as file:
            file.write(glb_bytes(self.cloud.cloud(), self._cameras[::one_in], unit=self._unit))


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
    """From our world to glTF's."""
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
    """Of a box around all cameras and all points but the outermost; 1 where it is empty."""
    ends = [np.stack([camera.world_from_camera[:3, 3].numpy() for camera in cameras])]
    if len(cloud.points):
        ends.append(np.percentile(cloud.points, [2, 98], axis=0))
    joined = np.concatenate(ends)
    return float(np.linalg.norm(np.ptp(joined, axis=0))) or 1.0


def _colours_along(count: int) -> UInt8[np.ndarray, "count 3"]:
    """From blue over green to red."""
    place = np.linspace(0, 1, count)
    channels = [np.clip(2 - abs(4 * place - peak), 0, 1) for peak in (4, 2, 0)]
    colours: UInt8[np.ndarray, "count 3"] = np.round(255 * np.stack(channels, axis=1)).astype(np.uint8)
    return colours
