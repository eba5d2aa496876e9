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
_LARGEST_OF_16_BITS = 65535
# A damaged file is an OSError in most of Pillow, but not in all of it.
_PICTURE_ERRORS = (OSError, ValueError, SyntaxError, Image.DecompressionBombError)


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
    except _PICTURE_ERRORS as error:
        raise InputError(f"Expected a picture at {path}, got none that Pillow can read; check the file.") from error


def upright_rgb(image: Image.Image) -> Image.Image:
    """The picture turned as its EXIF tag says, transparency over white, 16 bits without the lower eight."""
    image = _eight_bits(ImageOps.exif_transpose(image))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, (WHITE,) * 4), image)
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    """Grey of 16 bits as its upper eight, which is what Pillow makes of colours; it would cut off grey at 255."""
    if image.mode == "F":
        raise InputError("Expected a picture of whole numbers, but got fractions of unknown range; save it as 8 bits.")
    if image.mode != "I" and not image.mode.startswith("I;16"):
        return image
    return Image.fromarray((np.asarray(image).clip(0, _LARGEST_OF_16_BITS) >> 8).astype(np.uint8))


def require_whole_patches(size: int, patch: int) -> None:
    """Refuse a size that is not made of patches."""
    if size < patch or size % patch:
        raise InputError(
            f"Expected an image size that is a multiple of {patch}, got {size}; try {max(size // patch, 1) * patch}."
        )


def resize_image(image: Image.Image, fit: Fit = Fit.CROP, *, size: int = 518, patch: int = 14) -> Resized:
    """One upright RGB picture as model pixels, both sides multiples of `patch` and at most `size`."""
    require_whole_patches(size, patch)
    match fit:
        case Fit.CROP:
            return _crop(image, size, patch)
        case Fit.PAD:
            return _pad(image, size, patch)
        case Fit.SQUARE:
            return _square(image, size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessor:
    """Resizes every frame of a video in the same way, so that frames of one size give model pixels of one size."""

    fit: Fit = Fit.CROP
    size: int = 518
    patch: int = 14

    def __post_init__(self) -> None:
        require_whole_patches(self.size, self.patch)

    def __call__(self, image: UInt8[np.ndarray, "height width 3"]) -> Resized:
        """The model pixels of a frame, and where the frame lies in them."""
        return resize_image(Image.fromarray(image), self.fit, size=self.size, patch=self.patch)


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
