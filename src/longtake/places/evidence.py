"""What two views say for and against being of one place: matched points, depths and colours."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from longtake.places.key_view import KeyView
from longtake.places.matching import find_corners, match
from longtake.places.pictures import DepthPicture, blurred, sampled
from longtake.places.registration import Motion, PointPairs, register
from longtake.spatial.similarity import Similarity

_EVERY = 2
"""Pixels of the pictures that are laid over each other, each way."""
_LOG_DEPTH = 0.1
"""By which depths of the same surface may differ."""
_SQUARE = 12
"""Pixels along each side of a square whose grain is compared."""
_PLAIN = 0.01
"""Deviation of brightness up to which a square has no grain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """How well one view lies over another once it was moved; shares are from 0 to 1."""

    new_from_old: Similarity
    """Between the two cameras, each in the unit of its own depth; in double precision, on the host."""
    num_matches: int
    """Points that look alike."""
    num_agreeing: int
    """Those of them that the similarity explains, in both directions."""
    turn_deviation_rad: float
    """By how much its turn may be off by where these points are seen, one standard deviation."""
    overlap: float
    """Share of a view that the other one holds; the lesser of the two directions, as all that follow."""
    depth_agreement: float
    """Of what both hold, the share in which depths agree; what is hidden behind something nearer does not count."""
    colour_agreement: float
    """Correlation of colours where depths agree, about their means."""
    texture_agreement: float
    """Mean correlation of brightness within small squares where depths agree: walls of one kind differ in grain."""

    @property
    def agreeing_share(self) -> float:
        return self.num_agreeing / max(self.num_matches, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two views and the similarity that most points agree on, before one is laid over the other."""

    old: DepthPicture
    new: DepthPicture
    new_from_old: Motion
    num_matches: int
    num_agreeing: int
    turn_deviation_rad: float

    @classmethod
    def of(cls, old: KeyView, new: KeyView) -> "Comparison | None":
        """None where no few points agree on any."""
        old_picture, new_picture = DepthPicture.of(old), DepthPicture.of(new)
        pairs = matched_points(old_picture, new_picture)
        found = register(pairs, old_picture, new_picture, (old.frame_index, new.frame_index))
        if found is None:
            return None
        return cls(
            old=old_picture,
            new=new_picture,
            new_from_old=found.new_from_old,
            num_matches=len(pairs),
            num_agreeing=int(found.agrees.sum()),
            turn_deviation_rad=found.turn_deviation_rad,
        )

    @property
    def agreeing_share(self) -> float:
        return self.num_agreeing / max(self.num_matches, 1)

    def evidence(self) -> Evidence:
        """With depths, colours and textures laid over each other, which takes about as long as all before."""
        forth = _laid_over(self.old, self.new, self.new_from_old)
        back = _laid_over(self.new, self.old, self.new_from_old.inverse())
        return Evidence(
            new_from_old=self.new_from_old.similarity(self.old.unit, self.new.unit),
            num_matches=self.num_matches,
            num_agreeing=self.num_agreeing,
            turn_deviation_rad=self.turn_deviation_rad,
            overlap=min(forth.overlap, back.overlap),
            depth_agreement=min(forth.depth_agreement, back.depth_agreement),
            colour_agreement=min(forth.colour_agreement, back.colour_agreement),
            texture_agreement=min(forth.texture_agreement, back.texture_agreement),
        )


def examine(old: KeyView, new: KeyView) -> Evidence | None:
    """The similarity between two views and what speaks for it; none where no few points agree on any.

    A pure function: the same bits on any number of threads.
    """
    compared = Comparison.of(old, new)
    return None if compared is None else compared.evidence()


def matched_points(old: DepthPicture, new: DepthPicture) -> PointPairs:
    """Corners that look alike and have depth in both pictures."""
    old_corners, new_corners = find_corners(old.colours), find_corners(new.colours)
    places = match(old_corners, new_corners)
    old_pixels, new_pixels = old_corners.pixels[places[:, 0]], new_corners.pixels[places[:, 1]]
    usable = old.has_depth(old_pixels) & new.has_depth(new_pixels)
    old_pixels, new_pixels = old_pixels[usable], new_pixels[usable]
    return PointPairs(
        old=old.lifted(old_pixels),
        new=new.lifted(new_pixels),
        old_pixels=old_pixels,
        new_pixels=new_pixels,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Laid:
    overlap: float
    depth_agreement: float = 0.0
    colour_agreement: float = 0.0
    texture_agreement: float = 0.0


def _laid_over(source: DepthPicture, target: DepthPicture, target_from_source: Motion) -> _Laid:
    """The source's pixels as the target would see them, against what it does see."""
    pixels = source.grid(_EVERY)
    points = target_from_source.of_points(source.lifted(pixels))
    seen = target.projected(points)
    held = (points[:, 2] > 0) & target.holds(seen)
    held[held] = target.has_depth(seen[held])
    pixels, seen, points = pixels[held], seen[held], points[held]
    log_depth = np.log(points[:, 2] / sampled(target.depth[..., None], seen)[:, 0])
    agrees = np.abs(log_depth) < _LOG_DEPTH
    if not agrees.any():
        return _Laid(overlap=float(held.mean()) if len(held) else 0.0)
    num_hidden = int((log_depth >= _LOG_DEPTH).sum())
    pixels, seen = pixels[agrees], seen[agrees]
    return _Laid(
        overlap=float(held.mean()),
        depth_agreement=float(agrees.sum() / (len(agrees) - num_hidden)),
        colour_agreement=_correlation(sampled(source.colours, pixels), sampled(target.colours, seen)),
        texture_agreement=_texture(source, target, pixels, seen),
    )


def _correlation(one: Float64[np.ndarray, "pixels 3"], other: Float64[np.ndarray, "pixels 3"]) -> float:
    one, other = one - one.mean(axis=0), other - other.mean(axis=0)
    lengths = np.sqrt((one * one).sum() * (other * other).sum())
    return float((one * other).sum() / max(float(lengths), 1e-12))


def _texture(
    source: DepthPicture,
    target: DepthPicture,
    pixels: Float64[np.ndarray, "pixels 2"],
    seen: Float64[np.ndarray, "pixels 2"],
) -> float:
    """Over squares of the source that are not plain and of which half can be compared; 0 where there are none."""
    one = sampled(_brightness(source), pixels)[:, 0]
    other = sampled(_brightness(target), seen)[:, 0]
    column, row = (pixels // _SQUARE).astype(int).T
    _, square = np.unique(row * source.size[1] + column, return_inverse=True)
    count = np.bincount(square)

    def mean(values: Float64[np.ndarray, " pixels"]) -> Float64[np.ndarray, " squares"]:
        return np.asarray(np.bincount(square, values) / count)

    variance = mean(one * one) - mean(one) ** 2, mean(other * other) - mean(other) ** 2
    products = mean(one * other) - mean(one) * mean(other)
    chosen = (count >= (_SQUARE // _EVERY) ** 2 / 2) & (variance[0] > _PLAIN**2)
    if not chosen.any():
        return 0.0
    lengths = np.sqrt(np.maximum(variance[0] * variance[1], 1e-12))
    return float((products[chosen] / lengths[chosen]).mean())


def _brightness(picture: DepthPicture) -> Float64[np.ndarray, "height width 1"]:
    return blurred(picture.colours.mean(axis=-1, keepdims=True), 1)
