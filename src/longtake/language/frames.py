"""Frames to the rows of numbers that a vision tower takes, bit for bit as the published processor makes them.

A frame is resized as uint8 to whole tokens of 2 x 2 patches; two frames share a temporal grid. A row is one patch of
two frames (channel, frame, y, x), and the four patches of one token are neighbours: rows run over T, H/2, W/2, 2, 2.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 (as everyone calls it)
from jaxtyping import Float32, UInt8
from torch import Tensor

from longtake.errors import InputError, SettingError

_LARGEST_ASPECT = 200
_LARGEST_PIXELS = 2**24
"""That a limit of pixels a frame may allow; published models stay below."""
_LONGEST_GRID = 64
"""Frames that a configuration may ask for at a time; published models take 2."""


@dataclass(frozen=True, slots=True)
class FrameSize:
    """In pixels."""

    height: int
    width: int

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureFormat:
    """How a checkpoint wants its pictures; the defaults are those of the published Qwen2.5-VL."""

    patch: int = 14
    merge: int = 2
    """Patches of a token along each side."""
    temporal_patch: int = 2
    """Frames of a temporal grid."""
    min_pixels: int = 3136
    max_pixels: int = 12_845_056
    mean: tuple[float, float, float] = (0.48145466, 0.4578275, 0.40821073)
    std: tuple[float, float, float] = (0.26862954, 0.26130258, 0.27577711)

    def __post_init__(self) -> None:
        if not self.factor**2 <= self.max_pixels or not 0 < self.min_pixels <= self.max_pixels:
            raise SettingError(
                f"Pixels of a frame must have limits with 0 < least <= most and room for one token of "
                f"{self.factor}x{self.factor}, but {self.min_pixels} and {self.max_pixels} came; raise the higher one."
            )
        if not 1 <= self.temporal_patch <= _LONGEST_GRID:
            raise SettingError(
                f"Expected grids of 1 to {_LONGEST_GRID} frames, but {self.temporal_patch} came as temporal patch."
            )
        if not all(map(math.isfinite, self.mean + self.std)) or min(self.std) <= 0:
            raise SettingError(
                f"Expected finite colours and a spread greater than 0, but got a mean of {self.mean} and a standard "
                f"deviation of {self.std}."
            )
        if self.max_pixels > _LARGEST_PIXELS:
            raise SettingError(
                f"Expected a limit of at most {_LARGEST_PIXELS} pixels a frame, but {self.max_pixels} came; lower it."
            )

    @property
    def factor(self) -> int:
        """A token's side in pixels."""
        return self.patch * self.merge

    def fit(self, height: int, width: int) -> "FrameFit":
        """What a stream whose first frame has this size keeps to."""
        resized = smart_resize(height, width, self.factor, min_pixels=self.min_pixels, max_pixels=self.max_pixels)
        return FrameFit(source=FrameSize(height, width), resized=resized, picture_format=self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameFit:
    """Settled by a stream's first frame and kept: a size that changed between chunks would break its memory."""

    source: FrameSize
    resized: FrameSize
    picture_format: PictureFormat

    @property
    def rows(self) -> int:
        """Tokens from top to bottom."""
        return self.resized.height // self.picture_format.factor

    @property
    def columns(self) -> int:
        """Tokens from left to right."""
        return self.resized.width // self.picture_format.factor


@dataclass(frozen=True, slots=True, eq=False)
class PixelRows:
    """One row for each patch."""

    values: Float32[Tensor, "patches values"]
    grid: tuple[int, int, int]
    """Temporal grids, and patches of each from top to bottom and from left to right."""


def smart_resize(height: int, width: int, factor: int, *, min_pixels: int, max_pixels: int) -> FrameSize:
    """The size nearest to a frame's own in whole tokens, within limits of pixels a frame (Qwen2-VL, Qwen2.5-VL)."""
    _check_sides(height, width)
    return _within_limits(height, width, factor, (min_pixels, max_pixels), weight=1, rounded_weight=1)


def smart_resize_clip(
    num_frames: int, height: int, width: int, factor: int, *, min_pixels: int, max_pixels: int
) -> FrameSize:
    """The same within limits of pixels a clip (Qwen3-VL)."""
    if num_frames < 2:
        raise InputError(f"A clip of this model needs two frames at least, but {num_frames} came; show another.")
    _check_sides(height, width)
    if min(height, width) < factor:
        enlarged = factor / min(height, width)
        height, width = int(height * enlarged), int(width * enlarged)
    even = num_frames + num_frames % 2
    return _within_limits(height, width, factor, (min_pixels, max_pixels), weight=num_frames, rounded_weight=even)


def resize(frames: UInt8[Tensor, "frames 3 _ _"], size: FrameSize) -> UInt8[Tensor, "frames 3 height width"]:
    """Bicubic with antialias on bytes, which only the CPU does as the published processor."""
    return F.interpolate(frames.cpu(), size=(size.height, size.width), mode="bicubic", antialias=True)


def pixel_rows(frames: UInt8[Tensor, "frames 3 _ _"], fit: FrameFit, *, pad: bool = False) -> PixelRows:
    """Rows of these frames, on the CPU; with `pad` a last frame without partners is repeated."""
    _check_size(frames, fit)
    shape = fit.picture_format
    resized = resize(_whole_grids(frames, shape.temporal_patch, pad=pad), fit.resized)
    split = _normalise(resized, shape).unflatten(3, (fit.columns, shape.merge, shape.patch))
    split = split.unflatten(2, (fit.rows, shape.merge, shape.patch)).unflatten(0, (-1, shape.temporal_patch))
    grid, two, channel, row, row_in_token, y, column, column_in_token, x = range(9)
    patches = split.permute(grid, row, column, row_in_token, column_in_token, channel, two, y, x)
    return PixelRows(patches.flatten(0, 4).flatten(1), (len(split), fit.rows * shape.merge, fit.columns * shape.merge))


def _check_sides(height: int, width: int) -> None:
    if min(height, width) < 1:
        raise InputError(f"A frame needs one pixel at least, but its size is {width}x{height}; give another.")
    if max(height, width) > _LARGEST_ASPECT * min(height, width):
        raise InputError(
            f"A frame may be at most {_LARGEST_ASPECT} times as long as it is narrow, but its size is "
            f"{width}x{height}; crop it."
        )


def _within_limits(
    height: int, width: int, factor: int, limits: tuple[int, int], *, weight: int, rounded_weight: int
) -> FrameSize:
    """Sides as multiples of `factor`; pixels count `weight` times, for rounded sides `rounded_weight` times."""
    least, most = limits
    rounded = FrameSize(round(height / factor) * factor, round(width / factor) * factor)
    pixels = rounded_weight * rounded.height * rounded.width
    if pixels > most:
        shrink = math.sqrt(weight * height * width / most)
        return FrameSize(
            max(factor, math.floor(height / shrink / factor) * factor),
            max(factor, math.floor(width / shrink / factor) * factor),
        )
    if pixels < least:
        grow = math.sqrt(least / (weight * height * width))
        return FrameSize(math.ceil(height * grow / factor) * factor, math.ceil(width * grow / factor) * factor)
    return rounded


def _check_size(frames: UInt8[Tensor, "frames 3 _ _"], fit: FrameFit) -> None:
    came = FrameSize(*frames.shape[-2:])
    if came != fit.source:
        raise InputError(
            f"Every frame of a stream must be {fit.source} as its first one, but a frame of {came} came; "
            "resize it, or begin a new stream."
        )


def _whole_grids(
    frames: UInt8[Tensor, "frames 3 _ _"], temporal_patch: int, *, pad: bool
) -> UInt8[Tensor, "padded 3 _ _"]:
    if not len(frames):
        raise InputError("A clip needs one frame at least, but it has none; show a frame first.")
    missing = -len(frames) % temporal_patch
    if missing and not pad:
        raise InputError(
            f"Frames enter the model {temporal_patch} at a time, but {len(frames)} came; "
            "hold the last one until the next comes, or ask for padding."
        )
    return torch.cat([frames, frames[-1:].expand(missing, -1, -1, -1)])


def _normalise(
    frames: UInt8[Tensor, "frames 3 height width"], shape: PictureFormat
) -> Float32[Tensor, "frames 3 height width"]:
    mean = torch.tensor(shape.mean)[:, None, None] * 255
    std = torch.tensor(shape.std)[:, None, None] * 255
    return (frames.float() - mean) / std
