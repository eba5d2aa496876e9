"""Whether a picture was taken with the focal length of a take: where it sees points of known places tells.

A network that looks at one picture guesses the lens it is used to, whatever the zoom. Points that lie before an old
camera, and pixels of the new one that see them, fix the new camera and its focal length together: seen through another
lens, points away from the middle and points of other depths do not lie where a motion of the camera alone puts them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from longtake.places.evidence import matched_points
from longtake.places.key_view import KeyView
from longtake.places.pictures import DepthPicture
from longtake.places.registration import PIXEL_SHARE, PointPairs, Registration, points_by_step, register

_FIRST_RATIOS = (0.6, 0.8, 1.0, 1.25, 1.6, 2.0)
"""With which points are sought that agree on a motion, before the ratio is left to them."""
_NUM_STEPS = 15
_FEWEST_POINTS = 40
_LEAST_DEVIATION = 0.01
"""Of a logarithm: what the depth of a place may be wrong by is not seen in its points."""
_MOST_DEVIATION = 0.1
"""Beyond it a place does not tell."""
_MOST_LOG_RATIO = 0.3
"""Between two steps; a fit that leaps is none."""
_DAMPING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class FocalRatio:
    """How many times as long as a take's a picture's focal length is."""

    log: float
    deviation: float
    """Of the logarithm, one standard deviation."""

    @property
    def ratio(self) -> float:
        return math.exp(self.log)


def focal_ratio(places: Sequence[KeyView], view: KeyView) -> FocalRatio | None:
    """By what places of a take show of the same points, with `view.intrinsics` as 1; None where they do not tell."""
    found = [one for place in places if (one := _by_place(place, view)) is not None]
    if not found:
        return None
    weights = np.array([one.deviation**-2 for one in found])
    log = float((weights * [one.log for one in found]).sum() / weights.sum())
    apart = np.array([(one.log - log) / one.deviation for one in found])
    worse = max(1.0, float(np.sqrt((apart * apart).mean())))
    return FocalRatio(log=log, deviation=worse / math.sqrt(float(weights.sum())))


def _by_place(place: KeyView, view: KeyView) -> FocalRatio | None:
    old, seed = DepthPicture.of(place), (place.frame_index, view.frame_index)
    pairs = matched_points(old, DepthPicture.of(view))
    tried = [_registered(pairs, old, view, ratio, seed) for ratio in _FIRST_RATIOS]
    ratio, found = max(zip(_FIRST_RATIOS, tried, strict=True), key=lambda one: _num_agreeing(one[1]))
    if found is None or _num_agreeing(found) < _FEWEST_POINTS:
        return None
    return _fitted(found, pairs, DepthPicture.of(view), ratio)


def _registered(
    pairs: PointPairs, old: DepthPicture, view: KeyView, ratio: float, seed: tuple[int, int]
) -> Registration | None:
    new = DepthPicture.of(replace(view, intrinsics=_zoomed(view.intrinsics, ratio)))
    return register(replace(pairs, new=new.lifted(pairs.new_pixels)), old, new, seed)


def _num_agreeing(found: Registration | None) -> int:
    return 0 if found is None else int(found.agrees.sum())


def _fitted(found: Registration, pairs: PointPairs, new: DepthPicture, ratio: float) -> FocalRatio | None:
    """Where the new camera stands and its focal length, by pixels alone: its own depth, a guess, is not asked.

    Gauss and Newton, with the loss of Cauchy; seven unknowns: a turn, a shift, and the logarithm of the ratio.
    """
    motion, log = found.new_from_old, math.log(ratio)
    motion = replace(motion, scale=np.ones(()), translation=motion.translation / motion.scale)
    old, seen = pairs.old[found.agrees], pairs.new_pixels[found.agrees]
    pixel = PIXEL_SHARE * max(new.size)
    matrix = np.eye(7)
    for _ in range(_NUM_STEPS):
        points, focal = motion.of_points(old), math.exp(log) * new.focal
        z = np.maximum(points[:, 2], 1e-6)
        away = points[:, :2] / z[:, None] * focal + new.centre - seen
        weight = 1 / (1 + (away * away).sum(axis=1) / pixel**2) / pixel**2
        moving, matrix, vector = points_by_step(points)[:, :, :6], _DAMPING * np.eye(7), np.zeros(7)
        for axis in (0, 1):
            slope = (points[:, axis] / z)[:, None] * moving[:, 2]
            change = (moving[:, axis] - slope) * (focal[axis] / z)[:, None]
            change = np.concatenate([change, (points[:, axis] / z * focal[axis])[:, None]], axis=1)
            matrix += np.einsum("pi,pj->ij", weight[:, None] * change, change)
            vector += np.einsum("pi,p->i", weight[:, None] * change, away[:, axis])
        step = -np.linalg.solve(matrix, vector)
        if not np.isfinite(step).all() or abs(step[6]) > _MOST_LOG_RATIO:
            return None
        motion, log = motion.moved(np.append(step[:6], 0.0)), log + float(step[6])
    deviation = math.hypot(_LEAST_DEVIATION, math.sqrt(float(np.linalg.inv(matrix)[6, 6])))
    return FocalRatio(log=log, deviation=deviation) if deviation <= _MOST_DEVIATION else None


def _zoomed(intrinsics: Float64[Tensor, "3 3"], ratio: float) -> Float64[Tensor, "3 3"]:
    return intrinsics * torch.tensor([[ratio, 1, 1], [1, ratio, 1], [1, 1, 1]], dtype=intrinsics.dtype)
