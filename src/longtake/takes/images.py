"""Images of a take: a PNG or JPEG for each frame, or one MP4 (`video_file`)."""

import zlib
from enum import StrEnum
from io import BytesIO
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from longtake.errors import InputError, SettingError
from longtake.takes.picture_files import open_picture

_JPEG_QUALITY = 95
_PNG_EFFORT = 6
"""Of 9, as is usual."""


class ImageFiles(StrEnum):
    """Where a take keeps its images."""

    VIDEO = "video.mp4"
    PNG = "images/{index:06d}.png"
    JPEG = "images/{index:06d}.jpg"


@runtime_checkable
class ImageWriter(Protocol):
    """Takes images one by one."""

    def write(self, index: int, timestamp_s: float, image: UInt8[np.ndarray, "height width 3"]) -> None: ...

    def close(self) -> None: ...


def require_writable_size(files: ImageFiles, size: tuple[int, int]) -> None:
    """Refuse a video of odd width or height, whose colours, kept for every 2x2 pixels, would not fit."""
    height, width = size
    if files is ImageFiles.VIDEO and (height % 2 or width % 2):
        raise SettingError(
            f"Expected an even width and height for an MP4, but got {width}x{height}; write the images as PNG instead."
        )


def open_image_writer(folder: Path, files: ImageFiles, size: tuple[int, int], fps: float | None) -> ImageWriter:
    """A writer into a take's folder; `size` is (height, width)."""
    if files is ImageFiles.VIDEO:
        from longtake.takes.video_file import VideoWriter

        return VideoWriter(folder / files, size, fps)
    return ImageFolderWriter(folder, files)


class ImageFolderWriter:
    """A file for each frame."""

    def __init__(self, folder: Path, files: ImageFiles) -> None:
        self._folder, self._files = folder, files

    def write(self, index: int, timestamp_s: float, image: UInt8[np.ndarray, "height width 3"]) -> None:  # noqa: ARG002
        path = self._folder / self._files.format(index=index)
        path.write_bytes(encode_image(Image.fromarray(image), path.suffix))

    def close(self) -> None:
        """Every file is complete already."""


def encode_image(image: Image.Image, suffix: str, *, is_measured: bool = False, quality: int = _JPEG_QUALITY) -> bytes:
    """The content of a `.png` or `.jpg`, in memory: Pillow takes a file that the disk took just a part of for whole.

    The last digits of what `is_measured` repeat nowhere, so a PNG of it is not searched for repetitions: it takes half
    the time or less, and becomes from a tenth smaller to a tenth larger.
    """
    content = BytesIO()
    if suffix == ".png":
        image.save(content, "PNG", compress_level=_PNG_EFFORT, **({"compress_type": zlib.Z_RLE} if is_measured else {}))
    else:
        image.save(content, "JPEG", quality=quality, subsampling=0)
    return content.getvalue()


def load_image(path: Path, size: tuple[int, int]) -> Image.Image:
    """An image file of this (height, width); whatever is wrong with it is one sentence."""
    if not path.exists():
        raise InputError(f"Expected {path}, which the take lists, but it is missing; make the take again.")
    with open_picture(path, "an image") as image:
        require_size((image.height, image.width), size, path)
        image.load()
        return image


def read_image(path: Path, size: tuple[int, int]) -> UInt8[np.ndarray, "height width 3"]:
    """The file's image in red, green and blue; `size` is the (height, width) it must have."""
    return np.asarray(load_image(path, size).convert("RGB"))


def require_size(found: tuple[int, int], expected: tuple[int, int], path: Path) -> None:
    """Refuse an image of another (height, width) than its take's."""
    if found != expected:
        raise InputError(
            f"Expected {expected[1]}x{expected[0]} pixels in {path}, as the take's header says, but got "
            f"{found[1]}x{found[0]}; make the take again."
        )
