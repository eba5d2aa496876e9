"""A folder that a Gaussian-splat trainer starts on: the source's images and a COLMAP model of cameras and points.

images/000000.jpg ...
sparse/0/cameras.bin, images.bin, points3D.bin (or .txt)

COLMAP's pixels are counted from the image's corner, so that the first one's centre is at (0.5, 0.5); its poses take the
world before the camera, as a quaternion w x y z and a translation. Its camera axes are ours.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
import torch

from longtake import __version__
from longtake.exports.cloud import Cloud, CloudSettings
from longtake.exports.scene_folder import SceneSink
from longtake.exports.source_cameras import CORNER, PinholeLens, SourceCamera, different_lenses
from longtake.spatial.pose import invert_rigid, quaternion_from_matrix
from longtake.takes.images import ImageFiles

MODEL_FOLDER = "sparse/0"


class ColmapFiles(StrEnum):
    """How a model is written, named by the ending of its files."""

    BINARY = "bin"
    TEXT = "txt"


_OWN = [f"{MODEL_FOLDER}/{name}.{ending}" for ending in ColmapFiles for name in ("points3D", "images", "cameras")]
_PINHOLE = 1
"""Number of the camera model with fx, fy, cx, cy."""
_ERROR = 0.0
_POINT = np.dtype(
    [("id", "<u8"), ("xyz", "<f8", 3), ("rgb", "u1", 3), ("error", "<f8"), ("track_length", "<u8")], align=False
)


class ColmapSink(SceneSink):
    """Images, and a model in COLMAP's text or binary files."""

    def __init__(
        self,
        folder: Path,
        settings: CloudSettings,
        *,
        files: ColmapFiles = ColmapFiles.BINARY,
        images: ImageFiles = ImageFiles.JPEG,
        overwrite: bool = False,
    ) -> None:
        self._files = files
        super().__init__(folder, settings, images, own=_OWN, overwrite=overwrite)

    def _write_lists(self) -> None:
        cloud, lenses = self.cloud.cloud(), different_lenses(self._cameras)
        images = colmap_images(self._cameras, [self._images.name(camera.index) for camera in self._cameras])
        if self._files is ColmapFiles.BINARY:
            contents = (binary_points(cloud), binary_images(images), binary_cameras(lenses))
        else:
            contents = (text_points(cloud), text_images(images), text_cameras(lenses))
        for name, content in zip(("points3D", "images", "cameras"), contents, strict=True):
            self._replace(f"{MODEL_FOLDER}/{name}.{self._files}", content)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColmapImage:
    """One line of a model's images."""

    image_id: int
    quaternion: tuple[float, ...]
    """w x y z, of the rotation from the world to the camera."""
    translation: tuple[float, ...]
    camera_id: int
    name: str


def colmap_images(cameras: Sequence[SourceCamera], names: Sequence[str]) -> list[ColmapImage]:
    """Images are numbered by their frames from 1, cameras from 1 by their order in `different_lenses`."""
    if not cameras:
        return []
    ids = {lens: place for place, lens in enumerate(different_lenses(cameras), start=1)}
    camera_from_world = invert_rigid(torch.stack([camera.world_from_camera for camera in cameras]))
    quaternions = quaternion_from_matrix(camera_from_world[:, :3, :3]).roll(1, dims=-1).tolist()
    translations = camera_from_world[:, :3, 3].tolist()
    return [
        ColmapImage(
            image_id=camera.index + 1,
            quaternion=tuple(quaternion),
            translation=tuple(translation),
            camera_id=ids[camera.lens],
            name=name,
        )
        for camera, name, quaternion, translation in zip(cameras, names, quaternions, translations, strict=True)
    ]


def binary_cameras(lenses: Sequence[PinholeLens]) -> bytes:
    rows = [
        struct.pack("<IiQQ4d", camera_id, _PINHOLE, lens.width, lens.height, *_parameters(lens))
        for camera_id, lens in enumerate(lenses, start=1)
    ]
    return struct.pack("<Q", len(rows)) + b"".join(rows)


def binary_images(images: Sequence[ColmapImage]) -> bytes:
    """The content of `images.bin`, without two-dimensional points."""
    rows = [
        struct.pack("<I7dI", image.image_id, *image.quaternion, *image.translation, image.camera_id)
        + image.name.encode()
        + struct.pack("<BQ", 0, 0)
        for image in images
    ]
    return struct.pack("<Q", len(rows)) + b"".join(rows)


def binary_points(cloud: Cloud) -> bytes:
    """Without tracks."""
    rows = np.zeros(len(cloud.points), dtype=_POINT)
    rows["id"] = np.arange(1, len(rows) + 1)
    rows["xyz"], rows["rgb"], rows["error"] = cloud.points, cloud.colours, _ERROR
    return struct.pack("<Q", len(rows)) + rows.tobytes()


def text_cameras(lenses: Sequence[PinholeLens]) -> bytes:
    rows = (
        _line(camera_id, "PINHOLE", lens.width, lens.height, *_parameters(lens))
        for camera_id, lens in enumerate(lenses, start=1)
    )
    return _text("CAMERA_ID, MODEL, WIDTH, HEIGHT, PARAMS[]", rows)


def text_images(images: Sequence[ColmapImage]) -> bytes:
    """Each line is followed by an empty one, for the two-dimensional points that there are none of."""
    rows = (
        _line(image.image_id, *image.quaternion, *image.translation, image.camera_id, image.name) + "\n"
        for image in images
    )
    return _text("IMAGE_ID, QW, QX, QY, QZ, TX, TY, TZ, CAMERA_ID, NAME, then a line of POINTS2D[]", rows)


def text_points(cloud: Cloud) -> bytes:
    """Without tracks."""
    rows = (
        _line(point_id, *xyz, *rgb, _ERROR)
        for point_id, (xyz, rgb) in enumerate(zip(cloud.points.tolist(), cloud.colours.tolist(), strict=True), start=1)
    )
    return _text("POINT3D_ID, X, Y, Z, R, G, B, ERROR, TRACK[]", rows)


def _parameters(lens: PinholeLens) -> tuple[float, float, float, float]:
    return lens.fx, lens.fy, lens.cx + CORNER, lens.cy + CORNER


def _line(*values: int | float | str) -> str:
    """Values separated by spaces; numbers have the digits that bring them back exactly."""
    return " ".join(map(str, values))


def _text(columns: str, rows: Iterable[str]) -> bytes:
    heading = (f"# made by longtake {__version__}", f"# {columns}")
    return "".join(f"{line}\n" for line in (*heading, *rows)).encode()
