"""Depth of some frames as small coloured pictures, the image beside it where there is one."""

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from longtake.errors import InputError
from longtake.takes.images import ImageFiles
from longtake.takes.take import Take

LARGEST_EDGE = 200
MOST_STRIPS = 12

_NEAR_TO_FAR = ((255, 238, 158), (250, 165, 84), (217, 79, 96), (123, 48, 130), (36, 31, 88))
_WITHOUT_DEPTH = (128, 128, 128)
_QUALITY = 82
_NEAREST_PERCENT, _FARTHEST_PERCENT = 1, 99


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """Pictures of one frame as data URIs."""

    position: int
    depth: str
    image: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Strips:
    """Strips of one take, coloured alike: from `near` to `far`, by the logarithm."""

    strips: tuple[Strip, ...]
    near: float
    far: float
    problems: tuple[str, ...]


def draw_strips(take: Take) -> Strips:
    """Of frames evenly spread over the take; a file that cannot be read is a sentence."""
    problems: list[str] = []
    depths = _depths(take, problems)
    images = _images(take, list(depths), problems)
    near, far = _span(list(depths.values()))
    strips = [
        Strip(position=position, depth=_uri(depth_picture(depth, near, far), "PNG"), image=images.get(position))
        for position, depth in depths.items()
    ]
    return Strips(strips=tuple(strips), near=near, far=far, problems=tuple(problems))


def colours_near_to_far() -> list[str]:
    """The palette from near to far as CSS colours."""
    return ["#{:02x}{:02x}{:02x}".format(*colour) for colour in _NEAR_TO_FAR]


def _depths(take: Take, problems: list[str]) -> dict[int, Float[np.ndarray, "height width"]]:
    """Depth maps by the frames' positions."""
    depths = {}
    for position in np.unique(np.linspace(0, len(take) - 1, MOST_STRIPS).round().astype(int)).tolist():
        try:
            depths[position] = _shrink_by_choice(take.depth(position))
        except InputError as error:
            problems.append(str(error))
            if take.header.depth is None:
                break
    return depths


def _images(take: Take, positions: list[int], problems: list[str]) -> Mapping[int, str]:
    if take.header.images is None or not positions:
        return {}
    if take.header.images is ImageFiles.VIDEO:
        return _video_images(take, positions, problems)
    uris = {}
    for position in positions:
        try:
            uris[position] = _image_uri(take.image(position))
        except InputError as error:
            problems.append(str(error))
    return uris


def _video_images(take: Take, positions: list[int], problems: list[str]) -> Mapping[int, str]:
    """Decoded once from the beginning, which is the only way through a video."""
    uris = {}
    try:
        for position, image in enumerate(islice(take.images(), positions[-1] + 1)):
            if position in positions:
                uris[position] = _image_uri(image)
    except InputError as error:
        problems.append(str(error))
    return uris


def _span(depths: list[Float[np.ndarray, "height width"]]) -> tuple[float, float]:
    """The range in which nearly all depth lies."""
    known = np.concatenate([depth[depth > 0] for depth in depths]) if depths else np.empty(0)
    if not known.size:
        return 1.0, 1.0
    near, far = np.percentile(known.astype(np.float64), (_NEAREST_PERCENT, _FARTHEST_PERCENT))
    return float(near), float(far)


def depth_picture(depth: Float[np.ndarray, "height width"], near: float, far: float) -> Image.Image:
    """Its palette begins with the colour of invalid depth and goes on from near to far, by the logarithm."""
    known = depth > 0
    logarithm = np.log(np.where(known, depth, near).astype(np.float64))
    share = (logarithm - np.log(near)) / max(np.log(far) - np.log(near), 1e-9)
    picture = Image.fromarray(np.where(known, 1 + np.rint(share.clip(0, 1) * 254), 0).astype(np.uint8))
    picture.putpalette(_palette().tobytes())
    return picture


def _palette() -> UInt8[np.ndarray, "256 3"]:
    share, stops = np.linspace(0, 1, 255), np.linspace(0, 1, len(_NEAR_TO_FAR))
    ramp = [np.interp(share, stops, channel) for channel in np.array(_NEAR_TO_FAR).T]
    return np.vstack([_WITHOUT_DEPTH, np.stack(ramp, axis=1).round()]).astype(np.uint8)


def _shrink_by_choice(depth: Float[np.ndarray, "height width"]) -> Float[np.ndarray, "rows columns"]:
    """Shrink by choosing pixels, so that no depths arise between near and far ones."""
    step = -(-max(depth.shape) // LARGEST_EDGE)
    return depth[::step, ::step]


def _image_uri(pixels: UInt8[np.ndarray, "height width 3"]) -> str:
    picture = Image.fromarray(pixels)
    picture.thumbnail((LARGEST_EDGE, LARGEST_EDGE))
    return _uri(picture, "JPEG")


def _uri(picture: Image.Image, kind: str) -> str:
    file = io.BytesIO()
    picture.save(file, kind, quality=_QUALITY)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"
