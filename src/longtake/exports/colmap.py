"""A folder that a Gaussian-splat trainer starts on: the source's images and a COLMAP model of cameras and points.

images/000000.jpg ...
sparse/0/cameras.bin, images.bin, points3D.bin (or .txt)
"""

from enum import StrEnum
from pathlib import Path

from longtake.exports.cloud import CloudSettings
from longtake.exports.colmap_model import (
    binary_cameras,
    binary_images,
    binary_points,
    colmap_images,
    text_cameras,
    text_images,
    text_points,
)
from longtake.exports.frame import MappedFrame
from longtake.exports.scene_folder import SceneFolder
from longtake.exports.sink import Sink
from longtake.exports.source_cameras import different_lenses
from longtake.takes.atomic_files import replacing, writing
from longtake.takes.images import ImageFiles

MODEL_FOLDER = "sparse/0"


class ColmapFiles(StrEnum):
    """How a model is written, named by the ending of its files."""

    BINARY = "bin"
    TEXT = "txt"


_OWN = [f"{MODEL_FOLDER}/{name}.{ending}" for ending in ColmapFiles for name in ("points3D", "images", "cameras")]


class ColmapSink(Sink):
    """An image is there when `write` returns; the model, empty from the start, when the sink is closed.

    Frames that give no points by the cloud's settings are left out altogether.
    """

    def __init__(
        self,
        folder: Path,
        settings: CloudSettings,
        *,
        files: ColmapFiles = ColmapFiles.BINARY,
        images: ImageFiles = ImageFiles.JPEG,
        overwrite: bool = False,
    ) -> None:
        """The folder must be new or empty, or such an export that may be overwritten."""
        self._scene = SceneFolder(folder, settings, images, own=_OWN, overwrite=overwrite)
        self.cloud = self._scene.cloud
        self._folder, self._files = folder, files
        self._write_model()  # by which the folder is known as an export, also where it is broken off

    def write(self, frame: MappedFrame) -> None:
        self._scene.add(frame)

    def close(self) -> None:
        self._write_model()

    def _write_model(self) -> None:
        cameras, cloud = self._scene.cameras, self.cloud.cloud()
        lenses = different_lenses(cameras)
        images = colmap_images(cameras, [self._scene.images.name(camera.index) for camera in cameras])
        if self._files is ColmapFiles.BINARY:
            contents = (binary_points(cloud), binary_images(images), binary_cameras(lenses))
        else:
            contents = (text_points(cloud), text_images(images), text_cameras(lenses))
        for name, content in zip(("points3D", "images", "cameras"), contents, strict=True):
            self._replace(name, content)

    def _replace(self, name: str, content: bytes) -> None:
        path = self._folder / MODEL_FOLDER / f"{name}.{self._files}"
        with writing(str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                file.write(content)
