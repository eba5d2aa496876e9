"""Depth of a frame on disk: a 16-bit grey PNG in steps of a fixed length, or exact float32 numbers in an NPZ.

Invalid is 0 in both, and what is read: no depth, not finite, negative, or farther than 65535 steps.
"""

import math
import zipfile
import zlib
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt16
from PIL import Image

from longtake.errors import InputError, SettingError
from longtake.takes.fields import JsonObject, require_file
from longtake.takes.images import encode_image, load_image

LARGEST_VALUE = 65535
CONFIDENCE_FILES = "confidence/{index:06d}.npz"
_PNG_FILES = "depth/{index:06d}.png"
_NPZ_FILES = "depth/{index:06d}.npz"
# Digits of measured floats hardly shrink: more effort takes up to four times as long, and saves nothing.
_NPZ_EFFORT = 1
_LEAST_SAVING = 1 / 6
"""Of the bytes of an array, for which it is compressed; where a part of its rows shows less, it is kept as it is."""
_ROWS_PER_SAMPLE = 16
_LARGEST_NPY_HEADER = 4096
# A shape that is a lie makes numpy ask for memory; an encrypted or unknown member is a RuntimeError.
_NPZ_ERRORS = (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    RuntimeError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True, slots=True)
class DepthFiles:
    """Where and how a take keeps depth."""

    step: float | None
    """The length of one step of the 16-bit value, in the take's unit; None keeps float32 numbers instead."""

    def __post_init__(self) -> None:
        if self.step is not None and not (math.isfinite(self.step) and self.step > 0):
            raise SettingError(f"Expected a depth step greater than 0, but got {self.step}; 0.001 is a millimetre.")

    @property
    def pattern(self) -> str:
        return _NPZ_FILES if self.step is None else _PNG_FILES

    def to_json(self) -> dict[str, Any]:
        step = {} if self.step is None else {"step": self.step}
        return {"files": self.pattern, **step, "invalid": 0}

    @classmethod
    def from_json(cls, record: JsonObject) -> "DepthFiles":
        if record.integer("invalid") != 0:
            raise record.refuse("invalid", "0")
        if record.text("files") == _NPZ_FILES:
            return cls(None)
        if record.text("files") != _PNG_FILES:
            raise record.refuse("files", f"'{_PNG_FILES}' or '{_NPZ_FILES}'")
        return cls(record.positive_number("step"))

    def write(self, folder: Path, index: int, depth: Float[np.ndarray, "height width"]) -> int:
        """Write one frame's depth; returns how many pixels were too far for 16 bits and became invalid."""
        path = folder / self.pattern.format(index=index)
        if self.step is None:
            write_array(path, "depth", valid_or_zero(depth))
            return 0
        values = quantise(depth, self.step)
        path.write_bytes(encode_image(Image.fromarray(values), ".png", is_measured=True))
        return int(np.count_nonzero(valid_or_zero(depth) / self.step > LARGEST_VALUE + 0.5))

    def read(self, folder: Path, index: int, size: tuple[int, int]) -> Float[np.ndarray, "height width"]:
        """One frame's depth as float32; `size` is the (height, width) it must have."""
        path = folder / self.pattern.format(index=index)
        if self.step is None:
            return valid_or_zero(read_array(path, "depth", size))
        image = load_image(path, size)
        if not image.mode.startswith("I;16"):
            raise InputError(f"Expected a 16-bit grey PNG in {path}, but got mode {image.mode}; make the take again.")
        return (np.asarray(image) * np.float64(self.step)).astype(np.float32)


def step_for(farthest: float) -> float:
    """The finest step of 1, 2 or 5 times a power of ten with which 16 bits reach this far."""
    if not (math.isfinite(farthest) and farthest > 0):
        raise SettingError(f"Expected a farthest depth greater than 0, but got {farthest}; give it in the take's unit.")
    power = math.floor(math.log10(farthest / LARGEST_VALUE))
    steps = [float(f"{digit}e{power + more}") for more in (-1, 0, 1) for digit in (1, 2, 5)]
    return next(step for step in steps if step * LARGEST_VALUE >= farthest)


def quantise(depth: Float[np.ndarray, "height width"], step: float) -> UInt16[np.ndarray, "height width"]:
    """Whole steps, the nearest; 0 where depth is invalid or too far."""
    steps = np.rint(valid_or_zero(depth).astype(np.float64) / step)
    return np.where(steps <= LARGEST_VALUE, steps, 0).astype(np.uint16)


def valid_or_zero(depth: Float[np.ndarray, "height width"]) -> Float[np.ndarray, "height width"]:
    """Depth where it is finite and positive, else 0."""
    return np.where(np.isfinite(depth) & (depth > 0), depth, 0)


def write_array(path: Path, name: str, values: Float[np.ndarray, "height width"]) -> None:
    """One float32 array in an NPZ, compressed where that is worth it; the same bytes for the same numbers."""
    values, content = values.astype(np.float32, copy=False), BytesIO()
    np.lib.format.write_array(content, values, allow_pickle=False)
    undated = zipfile.ZipInfo(f"{name}.npy")
    kind = zipfile.ZIP_DEFLATED if _shrinks(values) else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(undated, content.getbuffer(), kind, _NPZ_EFFORT)


def _shrinks(values: Float[np.ndarray, "height width"]) -> bool:
    """Whether compression saves enough, judged by some of the rows."""
    rows = values[::_ROWS_PER_SAMPLE].tobytes()
    return len(zlib.compress(rows, _NPZ_EFFORT)) <= (1 - _LEAST_SAVING) * len(rows)


def read_array(path: Path, name: str, size: tuple[int, int]) -> Float[np.ndarray, "height width"]:
    """The array of that name and (height, width), as float32."""
    try:
        values = np.lib.format.read_array(BytesIO(_read_member(path, f"{name}.npy", size)), allow_pickle=False)
    except _NPZ_ERRORS as error:
        raise InputError(f"Expected an NPZ with '{name}' in {path}, but it cannot be read ({error}).") from error
    if values.shape != size or values.dtype.kind != "f":
        raise InputError(
            f"Expected '{name}' in {path} to be floats of shape {size}, but got {values.dtype} of shape {values.shape}."
        )
    return values.astype(np.float32)


def _read_member(path: Path, name: str, size: tuple[int, int]) -> bytes:
    """The whole member, its checksum verified before numpy believes the shape it claims."""
    require_file(path)
    with zipfile.ZipFile(path) as archive:
        num_bytes = archive.getinfo(name).file_size
        if num_bytes > _LARGEST_NPY_HEADER + size[0] * size[1] * np.dtype(np.float64).itemsize:
            raise ValueError(f"{name} has {num_bytes} bytes, too many for {size}")
        return archive.read(name)
