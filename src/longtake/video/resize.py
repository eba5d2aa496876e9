"""Pictures to model pixels: upright, over white, resampled to whole patches, and the way back to the source."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image, ImageOps
from torch import Tensor
from torch.nn import functional

from longtake.errors import InputError
from longtake.spatial.placement import Placement

WHITE = 255


class Fit(StrEnum):
    """How a picture of any shape becomes model pixels."""

    CROP = "crop"
    """Full width; rows beyond a square are cut off, half above and half below."""
    PAD = "pad"
    """The longer side fits; white fills up to a square."""
    SQUARE = "square"
    """Black fills up to a square before resampling."""


@dataclass(frozen=True, slots=True)
class Resized:
    """Model pixels of one picture, and where they came from."""

    pixels: UInt8[Tensor, "3 height width"]
    placement: Placement


def open_image(path: Path) -> Image.Image:
    """The picture in a file, upright and opaque."""
    try:
        with Image.open(path) as image:
            return upright_rgb(image)
    except OSError as error:
        raise InputError(f"Expected a picture at {path}, got none that Pillow can read; check the file.") from error


def upright_rgb(image: Image.Image) -> Image.Image:
    """The picture turned as its EXIF tag says, transparency over white."""
    image = ImageOps.exif_transpose(image)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, (WHITE,) * 4), image)
    return image.convert("RGB")


def resize_image(image: Image.Image, fit: Fit = Fit.CROP, *, size: int = 518, patch: int = 14) -> Resized:
    """One upright RGB picture as model pixels, both sides multiples of `patch` and at most `size`."""
    if size % patch:
        raise InputError(
            f"Expected an image size that is a multiple of {patch}, got {size}; try {size // patch * patch}."
        )
    match fit:
        case Fit.CROP:
            return _crop(image, size, patch)
        case Fit.PAD:
            return _pad(image, size, patch)
        case Fit.SQUARE:
            return _square(image, size)


def match_sizes(pictures: Sequence[Resized]) -> list[Resized]:
    """Every picture centred on white, as high as the highest and as wide as the widest."""
    height = max(picture.pixels.shape[1] for picture in pictures)
    width = max(picture.pixels.shape[2] for picture in pictures)
    return [_center_on_white(picture, height, width) for picture in pictures]


def _crop(image: Image.Image, size: int, patch: int) -> Resized:
    height = _whole_patches(image.height * (size / image.width), patch)
    resized = _resample(image, size, height)
    if height <= size:
        return resized
    top = (height - size) // 2
    return Resized(resized.pixels[:, top : top + size], resized.placement.shifted(0, -top))


def _pad(image: Image.Image, size: int, patch: int) -> Resized:
    if image.width >= image.height:
        width, height = size, _whole_patches(image.height * (size / image.width), patch)
    else:
        width, height = _whole_patches(image.width * (size / image.height), patch), size
    return _center_on_white(_resample(image, width, height), size, size)


def _square(image: Image.Image, size: int) -> Resized:
    side = max(image.size)
    left, top = (side - image.width) // 2, (side - image.height) // 2
    canvas = Image.new("RGB", (side, side))
    canvas.paste(image, (left, top))
    scale = size / side
    placement = Placement(image.width, image.height, scale, scale, left * scale, top * scale)
    return Resized(_resample(canvas, size, size).pixels, placement)


def _whole_patches(pixels: float, patch: int) -> int:
    return max(1, round(pixels / patch)) * patch


def _resample(image: Image.Image, width: int, height: int) -> Resized:
    resized = image.resize((width, height), Image.Resampling.BICUBIC)
    pixels = torch.from_numpy(np.array(resized)).permute(2, 0, 1).contiguous()
    return Resized(pixels, Placement(image.width, image.height, width / image.width, height / image.height))


def _center_on_white(picture: Resized, height: int, width: int) -> Resized:
    rows, columns = height - picture.pixels.shape[1], width - picture.pixels.shape[2]
    left, top = columns // 2, rows // 2
    pixels = functional.pad(picture.pixels, (left, columns - left, top, rows - top), value=WHITE)
    return Resized(pixels, picture.placement.shifted(left, top))
