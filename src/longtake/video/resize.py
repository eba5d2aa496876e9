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
from longtake.takes.picture_files import open_picture, require_pixels

WHITE = 255
_LARGEST_STRETCH = 0.04
"""By which whole patches may change the shape of a frame; 4:3, as micro-map was trained on, changes by 3.6 %."""
_LARGEST_OF_16_BITS = 65535


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
    with open_picture(path) as image:
        return upright_rgb(image)


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
    """Refuse a size that is not made of patches, or for whose square there is no room."""
    require_pixels(size, size, "the square that a network may see")
    if size < patch or size % patch:
        raise InputError(
            f"Expected an image size that is a multiple of {patch}, got {size}; try {max(size // patch, 1) * patch}."
        )


def resize_image(image: Image.Image, fit: Fit = Fit.CROP, *, size: int = 518, patch: int = 14) -> Resized:
    """One upright RGB picture as model pixels, both sides multiples of `patch` and at most `size`.

    As published networks have it, which is bit for bit: a picture is stretched to whole patches.
    """
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
    """Resizes every frame of a video in the same way, so that frames of one size give model pixels of one size.

    A frame that would be stretched to whole patches is brought into their shape before: cut at two sides for `crop`,
    filled up with white for `pad`. Where a network was trained on several sizes, that of the shape nearest to the
    frame's is taken in place of one with the longer side `size`; squares have theirs always.
    """

    fit: Fit = Fit.CROP
    size: int = 518
    patch: int = 14
    sizes: tuple[tuple[int, int], ...] = ()
    """Heights and widths."""

    def __post_init__(self) -> None:
        for side in (self.size, *(side for size in self.sizes for side in size)):
            require_whole_patches(side, self.patch)

    def __call__(self, image: UInt8[np.ndarray, "height width 3"]) -> Resized:
        """The model pixels of a frame, and where the frame lies in them."""
        frame = Image.fromarray(image)
        width, height = self._unstretched_size(frame)
        left, top = (frame.width - width) // 2, (frame.height - height) // 2
        resized = self._resized(frame, _window(frame, left, top, width, height))
        at = resized.placement
        offset_x, offset_y = at.offset_x - left * at.scale_x, at.offset_y - top * at.scale_y
        placement = Placement(frame.width, frame.height, at.scale_x, at.scale_y, offset_x, offset_y)
        return Resized(resized.pixels, placement)

    def _resized(self, frame: Image.Image, window: Image.Image) -> Resized:
        if self._has_choice:
            return _resample(window, *self._chosen_sides(frame))
        return resize_image(window, self.fit, size=self.size, patch=self.patch)

    @property
    def _has_choice(self) -> bool:
        return bool(self.sizes) and self.fit is not Fit.SQUARE

    def _chosen_sides(self, frame: Image.Image) -> tuple[int, int]:
        """Width and height among `sizes` of which the frame, cut or filled up, has the largest share."""
        height, width = max(self.sizes, key=lambda size: _shared(frame.width * size[0], frame.height * size[1]))
        return width, height

    def _unstretched_size(self, frame: Image.Image) -> tuple[int, int]:
        """Width and height of a frame in the shape of its whole patches; its own where they are nearly that."""
        if self._has_choice:
            width, height = self._chosen_sides(frame)
        else:
            width, height = _whole_sides(frame, self.fit, self.size, self.patch)
        if self.fit is Fit.SQUARE or abs(width * frame.height / (height * frame.width) - 1) <= _LARGEST_STRETCH:
            return frame.size
        choose = max if self.fit is Fit.PAD else min
        return (
            choose(frame.width, max(1, round(frame.height * width / height))),
            choose(frame.height, max(1, round(frame.width * height / width))),
        )


def _shared(one: int, other: int) -> float:
    """The smaller over the larger."""
    return min(one, other) / max(one, other)


def match_sizes(pictures: Sequence[Resized]) -> list[Resized]:
    """Every picture centred on white, as high as the highest and as wide as the widest."""
    height = max(picture.pixels.shape[1] for picture in pictures)
    width = max(picture.pixels.shape[2] for picture in pictures)
    return [_center_on_white(picture, height, width) for picture in pictures]


def _crop(image: Image.Image, size: int, patch: int) -> Resized:
    width, height = _whole_sides(image, Fit.CROP, size, patch)
    require_pixels(width, height, f"a picture of {image.width}x{image.height} that is made {width} wide")
    resized = _resample(image, width, height)
    if height <= size:
        return resized
    top = (height - size) // 2
    return Resized(resized.pixels[:, top : top + size], resized.placement.shifted(0, -top))


def _pad(image: Image.Image, size: int, patch: int) -> Resized:
    width, height = _whole_sides(image, Fit.PAD, size, patch)
    return _center_on_white(_resample(image, width, height), size, size)


def _square(image: Image.Image, size: int) -> Resized:
    side = max(image.size)
    require_pixels(side, side, f"a picture of {image.width}x{image.height}, filled up to a square")
    left, top = (side - image.width) // 2, (side - image.height) // 2
    canvas = Image.new("RGB", (side, side))
    canvas.paste(image, (left, top))
    scale = size / side
    placement = Placement(image.width, image.height, scale, scale, left * scale, top * scale)
    return Resized(_resample(canvas, size, size).pixels, placement)


def _window(image: Image.Image, left: int, top: int, width: int, height: int) -> Image.Image:
    """A part of a picture; white where it reaches beyond."""
    if (left, top, width, height) == (0, 0, *image.size):
        return image
    require_pixels(width, height, f"a picture of {image.width}x{image.height} in whole patches")
    window = Image.new("RGB", (width, height), (WHITE,) * 3)
    window.paste(image, (-left, -top))
    return window


def _whole_sides(image: Image.Image, fit: Fit, size: int, patch: int) -> tuple[int, int]:
    """Width and height in whole patches: of the full width for `crop`, of the longer side for `pad`."""
    if fit is Fit.CROP or image.width >= image.height:
        return size, _whole_patches(image.height * (size / image.width), patch)
    return _whole_patches(image.width * (size / image.height), patch), size


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
