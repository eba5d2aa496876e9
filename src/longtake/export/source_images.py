"""The source's pictures in a folder of numbered files, and the folder that an export has to itself."""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from longtake.errors import InputError, SettingError
from longtake.takes.atomic_files import sync_path, writing
from longtake.takes.images import ImageFiles, encode_image

_FOLDER_NAME = "images"
_NUMBERED = re.compile(r"\d{6,}\.(jpg|png)")


class SourceImages:
    """`images/000000.jpg` and so on below an export's folder, named by the frames' indices."""

    def __init__(self, folder: Path, files: ImageFiles, *, after: int = -1) -> None:
        """Goes on after the image of a frame: later ones, which a broken run left, are deleted."""
        self._folder, self._files = folder, files
        self._unsynced: list[Path] = []
        with writing(str(folder)):
            (folder / _FOLDER_NAME).mkdir(parents=True, exist_ok=True)
            delete_images(folder, after=after)
        if after >= 0 and not (folder / self.path(after)).is_file():
            raise InputError(f"Expected {folder / self.path(after)} to go on after, but it is missing; start again.")

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
        self._unsynced.append(path)

    def sync(self) -> None:
        """Return when all images are on the disk."""
        with writing(str(self._folder)):
            for path in self._unsynced:
                sync_path(path)
            sync_path(self._folder / _FOLDER_NAME)
        self._unsynced.clear()


def require_pictures(files: ImageFiles) -> None:
    """Refuse a video."""
    if files is ImageFiles.VIDEO:
        raise SettingError("Expected the images of an export as PNG or JPEG, for trainers read no video.")


def _link_or_copy(file: Path, path: Path) -> None:
    """A second name for a file; a copy where the file system has no such thing, or is another one."""
    try:
        os.link(file.resolve(), path)
    except OSError:
        shutil.copyfile(file, path)


def delete_images(folder: Path, *, after: int) -> None:
    """Delete the images of all frames after one; files that are named otherwise stay."""
    for path in (folder / _FOLDER_NAME).glob("*"):
        if _NUMBERED.fullmatch(path.name) and int(path.stem) > after:
            path.unlink()


def make_room(folder: Path, own: Sequence[str], *, overwrite: bool) -> None:
    """Make the folder; it must be new or empty, or with `overwrite` hold an export, whose files are deleted.

    `own` are the files beside the images that an export can have; one of them makes the folder an export.
    """
    with writing(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.iterdir()):
            return
        if not overwrite:
            raise InputError(f"{folder} holds files already; name another folder, or ask for it to be overwritten.")
        if not any((folder / name).exists() for name in own):
            raise InputError(f"Expected one of {', '.join(own)} in {folder} to overwrite; name another folder.")
        delete_images(folder, after=-1)
        for name in own:
            (folder / name).unlink(missing_ok=True)
