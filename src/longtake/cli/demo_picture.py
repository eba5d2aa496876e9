"""The picture of `longtake demo`: frames above true and predicted depth, and the way from above beside them."""

import numpy as np
import torch
from jaxtyping import Float, Float64
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from longtake.evaluation.spacing import evenly_spaced
from longtake.evaluation.walk_quality import FilmedWalk, WorldQuality
from longtake.exports.report.strips import depth_picture
from longtake.takes.take import Take

_COLUMNS = 6
_TILE = (168, 131)
_GAP, _HEADING = 6, 22
_PAPER, _INK, _TRUE, _FOUND = (255, 255, 255), (40, 48, 60), (176, 182, 190), (15, 127, 146)
_FINER = 4
"""Lines are drawn so many times larger and made smaller, which smooths them."""
_NEAREST, _FARTHEST = 0.01, 0.99
_ROWS = ("frames of the walk", "true depth", "depth by micro-map, one scale for the walk")


def draw_demo(result: Take, film: FilmedWalk, quality: WorldQuality) -> Image.Image:
    """Three rows of tiles under their headings, and at their right a plan as high as they are."""
    chosen = evenly_spaced(len(film.images), _COLUMNS).tolist()
    predicted = _predicted(result, film)
    shown = film.truth.depth[chosen]
    near, far = (float(shown[shown > 0].quantile(share)) for share in (_NEAREST, _FARTHEST))
    frames = [Image.fromarray((film.images[place] * 255).byte().permute(1, 2, 0).numpy()) for place in chosen]
    depths = [
        [depth_picture(depth[place].numpy(), near, far).convert("RGB") for place in chosen]
        for depth in (film.truth.depth, predicted)
    ]
    row_height, width = _HEADING + _TILE[1] + _GAP, _COLUMNS * (_TILE[0] + _GAP) + _GAP
    height = len(_ROWS) * row_height
    picture = Image.new("RGB", (width + height, height), _PAPER)
    for row, (heading, tiles) in enumerate(zip(_ROWS, (frames, *depths), strict=True)):
        _draw_row(picture, row * row_height, heading, tiles)
    picture.paste(_plan(quality, height), (width, 0))
    return picture


def _predicted(result: Take, film: FilmedWalk) -> Float[Tensor, "frames height width"]:
    """In metres, by the one scale that the score has, in which sky has no part."""
    depth = torch.stack([torch.from_numpy(result.depth(position)) for position in range(len(result))])
    has_depth = (film.truth.depth > 0) & (depth > 0)
    return depth * (film.truth.depth[has_depth] / depth[has_depth].clamp_min(1e-9)).median()


def _draw_row(picture: Image.Image, top: int, heading: str, tiles: list[Image.Image]) -> None:
    ImageDraw.Draw(picture).text((_GAP, top + 3), heading, _INK, _font(14))
    for column, tile in enumerate(tiles):
        picture.paste(tile.resize(_TILE, Image.Resampling.LANCZOS), (_GAP + column * (_TILE[0] + _GAP), top + _HEADING))


def _plan(quality: WorldQuality, side: int) -> Image.Image:
    """The true way, broad and grey, under the estimated one."""
    plan = Image.new("RGB", (side * _FINER, side * _FINER), _PAPER)
    draw, paths = ImageDraw.Draw(plan), quality.paths
    true, found, pixels_per_m = _placed(paths.true.numpy(), paths.found.numpy(), side)
    draw.line(_points(true), _TRUE, 9 * _FINER, "curve")
    draw.line(_points(found), _FOUND, 3 * _FINER, "curve")
    _dot(draw, true[0], _INK)
    small = plan.resize((side, side), Image.Resampling.LANCZOS)
    words = ImageDraw.Draw(small)
    words.text((_GAP, 3), "the way from above:", _INK, _font(14))
    words.text((_GAP + 138, 3), "truth", _TRUE, _font(14))
    words.text((_GAP + 180, 3), "micro-map", _FOUND, _font(14))
    bottom = side - 3 * _GAP
    words.line([(_GAP, bottom), (_GAP + pixels_per_m, bottom)], _INK, 2)
    words.text((_GAP + pixels_per_m + 6, bottom - 9), "1 m", _INK, _font(14))
    return small


def _placed(
    true: Float64[np.ndarray, "frames 2"], found: Float64[np.ndarray, "frames 2"], side: int
) -> tuple[Float64[np.ndarray, "frames 2"], Float64[np.ndarray, "frames 2"], float]:
    """Both paths in pixels of the larger drawing, forward upwards, and how long a metre is in the smaller."""
    both = np.vstack([true, found])
    low, extent = both.min(axis=0), float(np.ptp(both, axis=0).max()) or 1.0
    margin = 2 * _HEADING
    scale = (side - 2 * margin) / extent
    middle = (side - np.ptp(both, axis=0) * scale) / 2
    places = [((way - low) * scale + middle) * _FINER for way in (true, found)]
    for place in places:
        place[:, 1] = side * _FINER - place[:, 1]
    return places[0], places[1], scale


def _points(places: Float64[np.ndarray, "frames 2"]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in places.tolist()]


def _dot(draw: ImageDraw.ImageDraw, place: Float64[np.ndarray, "2"], colour: tuple[int, int, int]) -> None:
    draw.circle(tuple(place.tolist()), 6 * _FINER, _PAPER, colour, 2 * _FINER)


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
