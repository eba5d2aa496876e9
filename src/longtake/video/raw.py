"""Frames that a Python program has in memory, as a source."""

import math
import reprlib
from collections.abc import Generator, Iterable, Sized
from functools import partial
from typing import TypeAlias

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from longtake.errors import InputError, SettingError
from longtake.video.folders import NOMINAL_FPS
from longtake.video.frame import PendingFrame
from longtake.video.reading import EVERY_FRAME, Source
from longtake.video.resize import upright_rgb
from longtake.video.sampling import Extent, FrameSampling

Pixels: TypeAlias = np.ndarray | tuple[np.ndarray, float]
"""A frame, or a frame and its time in seconds."""
_DTYPES: dict[tuple[int, ...], tuple[np.dtype, ...]] = {
    (): (np.dtype(np.uint8), np.dtype(np.uint16)),
    (3,): (np.dtype(np.uint8),),
    (4,): (np.dtype(np.uint8),),
}
"""What a pixel may be made of, for each shape of a pixel."""


class RawFrames(Source):
    """Arrays as frames: height x width (grey), x 3 (RGB) or x 4 (RGB and alpha), of 8 bits, or grey of 16.

    Each may come as a pair with its time in seconds, then all must, and times must increase; otherwise they are evenly
    spaced. An iterator can be read once, and a list again and again.
    """

    def __init__(
        self,
        frames: Iterable[Pixels],
        sampling: FrameSampling = EVERY_FRAME,
        *,
        fps: float = NOMINAL_FPS,
        name: str = "frames",
    ) -> None:
        super().__init__(name, sampling)
        if not (math.isfinite(fps) and fps > 0):
            raise SettingError(f"Expected more than 0 frames a second, but got {fps}.")
        self._frames, self._fps = frames, fps

    @property
    def extent(self) -> Extent:
        return Extent(num_frames=len(self._frames) if isinstance(self._frames, Sized) else None, fps=self._fps)

    def all_frames(self) -> Generator[PendingFrame, None, None]:
        last_s = -math.inf
        for place, item in enumerate(self._frames):
            array, timestamp_s = item if isinstance(item, tuple) else (item, place / self._fps)
            last_s = _later_time(timestamp_s, last_s, f"frame {place} of {self.name}")
            _require_pixels(array, f"frame {place} of {self.name}")
            yield PendingFrame(last_s, partial(_as_rgb, array))


def _later_time(given: object, last_s: float, where: str) -> float:
    """A frame's time in seconds, which must be a number and after the last one's."""
    try:
        time_s = math.nan if isinstance(given, str | bytes | bool | np.bool_) else float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        time_s = math.nan
    if not math.isfinite(time_s):
        raise InputError(f"Expected a time in seconds for {where}, but got {reprlib.repr(given)}.")
    if not time_s > last_s:
        raise InputError(f"Expected a time after {last_s:g} s for {where}, but got {time_s:g} s.")
    return time_s


def _require_pixels(array: object, where: str) -> None:
    if not isinstance(array, np.ndarray):
        raise InputError(f"Expected a NumPy array as {where}, but got {type(array).__name__}.")
    if isinstance(array, np.ma.MaskedArray):
        raise InputError(f"Expected all pixels of {where}, but got a masked array; fill it, as picture.filled(0).")
    if array.ndim not in (2, 3) or not array.size or array.dtype not in _DTYPES.get(array.shape[2:], ()):
        raise InputError(
            f"Expected pixels of height x width x 3 in 8 bits as {where}, but got {array.dtype} of shape {array.shape}."
        )


def _as_rgb(array: np.ndarray) -> UInt8[np.ndarray, "height width 3"]:
    """Pixels of our own: a program may fill its array again for the next frame."""
    if array.shape[2:] == (3,):
        return np.array(array, order="C")
    return np.array(upright_rgb(Image.fromarray(np.ascontiguousarray(array))))
