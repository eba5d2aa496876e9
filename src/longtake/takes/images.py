"""Images of a take: a PNG or JPEG for each frame, or one MP4 that can be read up to where its writer was killed."""

from collections.abc import Iterator
from enum import StrEnum
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import Protocol, runtime_checkable

import av
import numpy as np
from av.video.reformatter import ColorRange, Colorspace, Interpolation
from jaxtyping import UInt8
from PIL import Image

from longtake.errors import InputError, SettingError

WRITE_ERRORS = (OSError, av.FFmpegError)
"""What writing can raise when the disk does not take it."""

_JPEG_QUALITY = 95
_PNG_EFFORT = 6
"""Of 9, as is usual."""
_TICKS_PER_S = 90_000
_LARGEST_GAP_TICKS = 6 * 3600 * _TICKS_PER_S
"""An MP4 has 31 bits for the time between two frames."""
_TIME_BASE = Fraction(1, _TICKS_PER_S)
_NOMINAL_FPS = 30
# Nothing waits for later frames and one thread codes them, so that each frame reaches the disk when the next one is
# written, and the same frames make the same file.
_ENCODER = {
    "preset": "veryfast",
    "tune": "zerolatency",
    "crf": "12",
    "threads": "1",
    "g": "30",
    "chroma_sample_location": "center",  # where the converter puts colours; a reader assumes the left otherwise
}
# A fragment for each frame while the file grows; closing it adds the index of an ordinary MP4.
_CONTAINER = {"movflags": "hybrid_fragmented+frag_every_frame", "flush_packets": "1"}
# The converter's defaults repeat colours over two pixels and darken by two levels.
_COLOURS = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT


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


class VideoWriter:
    """H.264 in an MP4 whose clock starts with the first frame; frames need not be evenly spaced."""

    def __init__(self, path: Path, size: tuple[int, int], fps: float | None) -> None:
        height, width = size
        self._first_s: float | None = None
        self._last_tick = -1
        self._container = av.open(str(path), "w", format="mp4", options=_CONTAINER)
        # The rate is a hint to the encoder, which refuses extremes; each frame has its own time.
        rate = Fraction(min(max(fps or _NOMINAL_FPS, 1), 1000)).limit_denominator(1001)
        self._stream = self._container.add_stream("libx264", rate=rate, options=_ENCODER)
        self._stream.width, self._stream.height, self._stream.pix_fmt = width, height, "yuv420p"
        self._stream.time_base = self._stream.codec_context.time_base = _TIME_BASE
        self._stream.codec_context.colorspace = Colorspace.ITU601
        self._stream.codec_context.color_range = ColorRange.MPEG

    def write(self, index: int, timestamp_s: float, image: UInt8[np.ndarray, "height width 3"]) -> None:
        if self._first_s is None:
            self._first_s = timestamp_s
        tick = round((timestamp_s - self._first_s) * _TICKS_PER_S)
        if not 0 < tick - self._last_tick <= _LARGEST_GAP_TICKS:
            raise InputError(
                f"Expected frame {index} from 1/{_TICKS_PER_S} s to 6 hours after the one before, but it came at "
                f"{timestamp_s} s; write the images as PNG instead."
            )
        self._last_tick = tick
        rgb = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
        frame = rgb.reformat(
            format="yuv420p",
            interpolation=_COLOURS,
            dst_colorspace=Colorspace.ITU601,
            dst_color_range=ColorRange.MPEG,
        )
        frame.pts, frame.time_base = tick, _TIME_BASE
        self._container.mux(self._stream.encode(frame))

    def close(self) -> None:
        try:
            self._container.mux(self._stream.encode(None))
        finally:
            self._container.close()


def encode_image(image: Image.Image, suffix: str, *, png_effort: int = _PNG_EFFORT) -> bytes:
    """The content of a `.png` or `.jpg`, in memory: Pillow takes a file that the disk took just a part of for whole."""
    content = BytesIO()
    if suffix == ".png":
        image.save(content, "PNG", compress_level=png_effort)
    else:
        image.save(content, "JPEG", quality=_JPEG_QUALITY, subsampling=0)
    return content.getvalue()


def load_image(path: Path, size: tuple[int, int]) -> Image.Image:
    """An image file of this (height, width); whatever is wrong with it is one sentence."""
    try:
        with Image.open(path) as image:
            _require_size((image.height, image.width), size, path)
            image.load()
            return image
    except FileNotFoundError as error:
        raise InputError(f"Expected {path}, which the take lists, but it is missing; make the take again.") from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(f"Expected an image in {path}, but it cannot be read ({error}).") from error


def read_image(path: Path, size: tuple[int, int]) -> UInt8[np.ndarray, "height width 3"]:
    """The file's image in red, green and blue; `size` is the (height, width) it must have."""
    return np.asarray(load_image(path, size).convert("RGB"))


def read_video(path: Path, size: tuple[int, int]) -> Iterator[UInt8[np.ndarray, "height width 3"]]:
    """The video's images in order, one in memory at a time."""
    try:
        with av.open(str(path)) as container:
            for frame in container.decode(video=0):
                _require_size((frame.height, frame.width), size, path)
                yield frame.to_ndarray(format="rgb24", interpolation=_COLOURS)
    except (av.FFmpegError, OSError, IndexError) as error:
        raise InputError(f"Expected a video in {path}, but it cannot be read ({error}).") from error


def _require_size(found: tuple[int, int], expected: tuple[int, int], path: Path) -> None:
    if found != expected:
        raise InputError(
            f"Expected {expected[1]}x{expected[0]} pixels in {path}, as the take's header says, but got "
            f"{found[1]}x{found[0]}; make the take again."
        )
