"""Metric scale of a result, from one length that somebody measured."""

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from longtake.errors import InputError, SettingError
from longtake.exports.floor import Floor
from longtake.exports.pixels import seen_by_network
from longtake.exports.saved import position_of, source_placement
from longtake.takes.picture_files import open_picture
from longtake.takes.take import Take

_METRES = {"m": 1.0, "cm": 0.01, "mm": 0.001}
_LENGTH = r"([0-9.eE+-]+)(m|cm|mm)"
_LEAST_PIXELS = 16
_LARGEST_STRETCH = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDistance:
    """The distance between the camera centres of two frames, by their indices."""

    first: int
    second: int
    metres: float

    def __str__(self) -> str:
        return f"distance:{self.first},{self.second}={_number(self.metres)}m"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownHeight:
    """The median height of the camera above the floor."""

    metres: float

    def __str__(self) -> str:
        return f"height:{_number(self.metres)}m"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDepth:
    """A depth map of one frame, by its index: a 16-bit PNG of the whole picture at any resolution, 0 where unknown."""

    index: int
    path: Path
    step: float
    """Metres of one step of the 16-bit value."""

    def __str__(self) -> str:
        return f"depth:{self.index}={self.path}@{_number(self.step)}"


KnownLength = KnownDistance | KnownHeight | KnownDepth
"""As text, each is what `parse_scale` takes."""


def parse_scale(text: str) -> KnownLength:
    """From `distance:0,57=2.4m`, `height:1.5m` or `depth:12=depth.png@0.001`."""
    if match := re.fullmatch(rf"distance:(\d+),(\d+)={_LENGTH}", text):
        return KnownDistance(first=int(match[1]), second=int(match[2]), metres=_metres(text, match[3], match[4]))
    if match := re.fullmatch(rf"height:{_LENGTH}", text):
        return KnownHeight(metres=_metres(text, match[1], match[2]))
    if match := re.fullmatch(r"depth:(\d+)=(.+)@([0-9.eE+-]+)", text):
        return KnownDepth(index=int(match[1]), path=Path(match[2]), step=_metres(text, match[3], "m"))
    raise SettingError(
        "Expected what is known as distance:0,57=2.4m (between two frames), height:1.5m (of the camera) or "
        f"depth:12=depth.png@0.001 (a frame's depth and the metres of a step), but got '{text}'."
    )


def metres_per_unit(known: KnownLength, take: Take, floor: Floor | None) -> float:
    """By what poses and depth must be multiplied; the floor is needed for a camera's height alone."""
    if isinstance(known, KnownDistance):
        return _from_distance(known, take)
    if isinstance(known, KnownHeight):
        return _from_height(known, take, floor)
    return _from_depth(known, take)


def _from_distance(known: KnownDistance, take: Take) -> float:
    centres = take.trajectory.world_from_camera[:, :3, 3]
    distance = float((centres[position_of(take, known.first)] - centres[position_of(take, known.second)]).norm())
    if not distance > 0:
        raise InputError(
            f"Expected the camera to have moved between frames {known.first} and {known.second}, but it is at one "
            "place; name two frames far apart."
        )
    return known.metres / distance


def _from_height(known: KnownHeight, take: Take, floor: Floor | None) -> float:
    if floor is None:
        raise InputError(
            f"Expected a floor in {take.folder} to measure the camera's height from, but none was found; give a "
            "distance between two frames, or a depth map."
        )
    return known.metres / float(floor.heights(take.trajectory.world_from_camera[:, :3, 3]).quantile(0.5))


def _from_depth(known: KnownDepth, take: Take) -> float:
    position = position_of(take, known.index)
    depth = take.depth(position).astype(np.float64)
    metres = _depth_in_metres(known, take, position)
    both = (depth > 0) & (metres > 0)
    if both.sum() < _LEAST_PIXELS:
        raise InputError(
            f"Expected at least {_LEAST_PIXELS} pixels that have depth in both frame {known.index} and {known.path}, "
            f"but there are {int(both.sum())}."
        )
    return float(np.median(metres[both] / depth[both]))


def _depth_in_metres(known: KnownDepth, take: Take, position: int) -> Float[np.ndarray, "height width"]:
    placement = source_placement(take, position)
    values = _read_16_bit(known.path)
    rows, columns = values.shape
    stretch = columns * placement.source_height / (rows * placement.source_width)
    if abs(stretch - 1) > _LARGEST_STRETCH + 1 / min(rows, columns):
        raise InputError(
            f"Expected depth of the whole picture, {placement.source_width}x{placement.source_height} or of that "
            f"shape, in {known.path}, but got {columns}x{rows}."
        )
    return seen_by_network(values, placement, take.header.size) * known.step


def _read_16_bit(path: Path) -> Float[np.ndarray, "rows columns"]:
    with open_picture(path, "depth as a 16-bit PNG") as image:
        if not image.mode.startswith("I"):
            raise InputError(f"Expected depth as a 16-bit grey PNG in {path}, but got mode {image.mode}.")
        return np.asarray(image).astype(np.float64)


def _number(metres: float) -> str:
    """Without the rounding error of centimetres turned into metres."""
    return f"{metres:.12g}"


def _metres(text: str, number: str, unit: str) -> float:
    try:
        metres = float(number) * _METRES[unit]
    except ValueError:
        metres = math.nan
    if not (math.isfinite(metres) and metres > 0):
        raise SettingError(f"Expected a length greater than 0 in '{text}', but got '{number}'.")
    return metres
