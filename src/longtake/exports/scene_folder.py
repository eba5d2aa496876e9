"""A folder that an export has to itself: the source's images, numbered by frame, beside lists of cameras and points."""

import os
import re
import shutil
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from longtake.errors import InputError, SettingError
from longtake.exports.cloud import CloudSettings, GrowingCloud
from longtake.exports.frame import MappedFrame
from longtake.exports.sink import Sink
from longtake.exports.source_cameras import SourceCamera, source_camera
from longtake.takes.atomic_files import replace_file, writing
from longtake.takes.images import ImageFiles, encode_image

_FOLDER_NAME = "images"
_NUMBERED = re.compile(r"\d{6,}\.(jpg|png)")


class SceneSink(Sink):
    """What sinks share whose files list cameras and points beside a folder of images.

    An image is there when `write` returns; the lists, empty from the start, when the sink is closed. Frames that give
    no points by the cloud's settings are left out altogether.
    """

    def __init__(
        self, folder: Path, settings: CloudSettings, images: ImageFiles, *, own: Sequence[str], overwrite: bool
    ) -> None:
        """The folder must be new or empty, or may be overwritten: then one of its `own` lists must be there."""
        if images is ImageFiles.VIDEO:
            raise SettingError("Expected the images of an export as PNG or JPEG, for trainers read no video.")
        make_room(folder, own, overwrite=overwrite)
        self.cloud = GrowingCloud(settings)
        self._points, self._folder = settings.points, folder
        self._cameras: list[SourceCamera] = []
        self._images = SourceImages(folder, images)
        self._write_lists()  # by which the folder is known as an export, also where it is broken off

    def write(self, frame: MappedFrame) -> None:
        if self._points.takes(frame):
            self._images.write(frame.index, frame.source_image, frame.image_file)
            self._cameras.append(source_camera(frame))
            self.cloud.add(frame)

    def close(self) -> None:
        self._write_lists()

    @abstractmethod
    def _write_lists(self) -> None:
        """Replace the files that list cameras and points by those of the frames so far."""

    def _replace(self, name: str, content: bytes) -> None:
        path = self._folder / name
        with writing(str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)


class SourceImages:
    """`images/000000.jpg` and so on below an export's folder, named by the frames' indices."""

    def __init__(self, folder: Path, files: ImageFiles) -> None:
        self._folder, self._files = folder, files
        with writing(str(folder)):
            (folder / _FOLDER_NAME).mkdir(parents=True, exist_ok=True)
            _delete_images(folder)  # they may be other names of a take's own files, which must not be written into

    def name(self, index: int) -> str:
        """Of a frame's file inside the folder of images."""
        return Path(self._files.format(index=index)).name

    def path(self, index: int) -> str:
        """Of a frame's file inside the export's folder."""
        return f"{_FOLDER_NAME}/{self.name(index)}"

    def write(self, index: int, image: UInt8[np.ndarray, "height width 3"], image_file: Path | None = None) -> None:
        """Encode an image; or link the file it came from, of the same kind, so that it keeps every byte."""
        path = self._folder / self.path(index)
        with writing(str(path)):
            try:
                if image_file is not None and image_file.suffix == path.suffix:
                    _link_or_copy(image_file, path)
                else:
                    path.write_bytes(encode_image(Image.fromarray(image), path.suffix))
            except OSError:
                path.unlink(missing_ok=True)
                raise


def make_room(folder: Path, own: Sequence[str], *, overwrite: bool) -> None:
    """Make the folder; it must be new or empty, or with `overwrite` hold an export, whose files are deleted.

    `own` are the files beside the images that an export can have; one of them makes the folder an export.
    """
    with writing(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.iterdir()):
            return
        if not overwrite:
            raise InputError(
                f"{folder} holds files already; name another folder, or replace it with --overwrite (overwrite=True)."
            )
        if not any((folder / name).exists() for name in own):
            raise InputError(f"Expected one of {', '.join(own)} in {folder} to overwrite; name another folder.")
        _delete_images(folder)
        for name in own:
            (folder / name).unlink(missing_ok=True)


def _delete_images(folder: Path) -> None:
    """Files that are not named as images of frames stay."""
    for path in (folder / _FOLDER_NAME).glob("*"):
        if _NUMBERED.fullmatch(path.name):
            path.unlink()


def _link_or_copy(file: Path, path: Path) -> None:
    """A second name for a file; a copy where the file system has no such thing, or is another one."""
    try:
        os.link(file.resolve(), path)
    except OSError:
        shutil.copyfile(file, path)
