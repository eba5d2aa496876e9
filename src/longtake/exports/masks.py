"""Masks that people drew: which pixels of a frame may become points."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, UInt8

from longtake.errors import InputError
from longtake.exports.frame import MappedFrame
from longtake.exports.pixels import seen_by_network
from longtake.takes.picture_files import open_picture

_ENDINGS = (".png", ".jpg", ".jpeg")
_LEAST_WHITE = 128
_LARGEST_STRETCH = 0.02


@dataclass(frozen=True, slots=True)
class MaskFolder:
    """A folder of pictures, white where points are wanted and black where not.

    A mask is named after its frame's picture where the source is a folder of pictures, else after its frame's index,
    such as `000012.png` or `12.png`. It covers the whole picture, at any resolution. A frame without a mask is taken
    whole.
    """

    folder: Path

    def __post_init__(self) -> None:
        if not self.folder.is_dir():
            raise InputError(f"Expected a folder of masks at {self.folder}, but there is none; check the path.")
        if not any(path.suffix.lower() in _ENDINGS for path in self.folder.iterdir()):
            raise InputError(f"Expected masks as PNG or JPEG files in {self.folder}, but there are none.")

    def find(self, frame: MappedFrame) -> Path | None:
        """The file of a frame's mask, None where there is none."""
        paths = [self.folder / (name + ending) for name in _names_of(frame) for ending in _ENDINGS]
        return next((path for path in paths if path.is_file()), None)

    def wanted(self, frame: MappedFrame) -> Bool[np.ndarray, "height width"]:
        """Which pixels of a frame are wanted, in the network's pixels."""
        path = self.find(frame)
        if path is None:
            return np.ones(frame.depth.shape, dtype=bool)
        mask = _read_mask(path)
        _require_shape_of_source(mask, frame, path)
        return seen_by_network(mask, frame.placement, frame.depth.shape) >= _LEAST_WHITE


def _names_of(frame: MappedFrame) -> list[str]:
    """What a mask may be called. Pictures that are numbered themselves may count otherwise, so their numbers stand."""
    by_index = [f"{frame.index:06d}", str(frame.index)]
    if frame.source_name is None:
        return by_index
    return [frame.source_name] if frame.source_name.isdecimal() else [frame.source_name, *by_index]


def _read_mask(path: Path) -> UInt8[np.ndarray, "rows columns"]:
    with open_picture(path, "a mask") as image:
        return np.asarray(image.convert("L"))


def _require_shape_of_source(mask: UInt8[np.ndarray, "rows columns"], frame: MappedFrame, path: Path) -> None:
    rows, columns = mask.shape
    width, height = frame.placement.source_width, frame.placement.source_height
    if abs(columns * height / (rows * width) - 1) > _LARGEST_STRETCH + 1 / min(rows, columns):
        raise InputError(
            f"Expected a mask of the same shape as the picture, {width}x{height}, in {path}, but got {columns}x{rows}."
        )
