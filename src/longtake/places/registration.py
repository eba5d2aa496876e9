"""The similarity between two views by points that look alike in both: robust sampling, then least squares.

Three pairs of points with depth fix a similarity (Umeyama). Of many such samples, that with the most pairs which agree
is refined on them: where each point is seen in the other picture, both ways, and how far away it is there. What is
seen says more about a camera than depth does, which networks guess.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64

from longtake.places.pictures import DepthPicture
from longtake.spatial.similarity import Similarity

_NUM_SAMPLES = 512
_NEAR_SHARE = 0.02
"""Of the longer side: how far from its partner a point may be seen."""
_NEAR_LOG_DEPTH = 0.15
PIXEL_SHARE = 0.008
_LOG_DEPTH = 0.1
"""What a pixel and a depth are trusted by: residuals are divided by them."""
_LARGEST_SCALE = 2.5
"""Between depths over their medians: how much nearer everything may be in one view of a place."""
_NUM_STEPS = 12
_WIDE_STEPS = 3
"""First steps, in which more pairs count, for a sample is rough."""
_FEWEST_PAIRS = 6
_ROUNDED = 1 - 1e-9
"""What rounding may take off a bound."""
_DAMPING = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class PointPairs:
    """Points that look alike, one by one."""

    old: Float64[np.ndarray, "pairs 3"]
    new: Float64[np.ndarray, "pairs 3"]
    """Before each camera."""
    old_pixels: Float64[np.ndarray, "pairs 2"]
    new_pixels: Float64[np.ndarray, "pairs 2"]

    def __len__(self) -> int:
        return len(self.old)


@dataclass(frozen=True, slots=True)
class Motion:
    """A similarity in numpy, or several: new = scale · rotation old + translation."""

    scale: Float64[np.ndarray, "*batch"]
    rotation: Float64[np.ndarray, "*batch 3 3"]
    translation: Float64[np.ndarray, "*batch 3"]

    def of_points(self, points: Float64[np.ndarray, "points 3"]) -> Float64[np.ndarray, "*batch points 3"]:
        turned = np.einsum("...ij,pj->...pi", self.rotation, points)
        return np.asarray(self.scale[..., None, None] * turned + self.translation[..., None, :])

    def __getitem__(self, chosen: int | Bool[np.ndarray, " motions"]) -> "Motion":
        return Motion(np.asarray(self.scale[chosen]), self.rotation[chosen], self.translation[chosen])

    def inverse(self) -> "Motion":
        back = np.swapaxes(self.rotation, -1, -2)
        moved = np.einsum("...ij,...j->...i", back, self.translation)
        return Motion(np.asarray(1 / self.scale), back, -moved / self.scale[..., None])

    def moved(self, step: Float64[np.ndarray, "7"]) -> "Motion":
        """After a small turn, shift and growth."""
        turn, growth = _turn(step[:3]), np.exp(step[6])
        return Motion(
            np.asarray(growth * self.scale),
            np.einsum("ij,jk->ik", turn, self.rotation),
            growth * np.einsum("ij,j->i", turn, self.translation) + step[3:6],
        )

    def similarity(self, old_unit: float, new_unit: float) -> Similarity:
        """In the units of the two views, whose depths were divided by these numbers."""
        return Similarity(
            torch.tensor(float(self.scale) * new_unit / old_unit, dtype=torch.float64),
            torch.from_numpy(np.ascontiguousarray(self.rotation)),
            torch.from_numpy(np.ascontiguousarray(self.translation)) * new_unit,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """Where the old view lies before the new one, and which pairs say so."""

    new_from_old: Motion
    agrees: Bool[np.ndarray, " pairs"]
    turn_deviation_rad: float
    """By how much the turn may be off about its least certain axis, in one standard deviation, by where points are
    seen: few of them, close together or on one wall, are as well explained by a step to the side."""


def register(pairs: PointPairs, old: DepthPicture, new: DepthPicture, seed: tuple[int, int]) -> Registration | None:
    """The similarity that most pairs agree on; none where there are too few of them."""
    if len(pairs) < _FEWEST_PAIRS:
        return None
    samples = _samples(pairs, np.random.default_rng(seed))
    votes = _votes(samples, pairs, new)
    best = int(votes.argmax()) if len(votes) else 0
    if not len(votes) or votes[best] < _FEWEST_PAIRS:
        return None
    motion = samples[best]
    for number in range(_NUM_STEPS):
        equations = _equations(motion, pairs, old, new, wide=2.0 if number < _WIDE_STEPS else 1.0)
        if equations is None:
            return None
        motion = motion.moved(-np.linalg.solve(equations.matrix, equations.vector))
    if not 1 / _LARGEST_SCALE < float(motion.scale) < _LARGEST_SCALE:
        return None
    at_last = _equations(motion, pairs, old, new, wide=1.0)
    if at_last is None:
        return None
    back = PointPairs(old=pairs.new, new=pairs.old, old_pixels=pairs.new_pixels, new_pixels=pairs.old_pixels)
    agrees = _agree(motion, pairs, new, wide=1.0) & _agree(motion.inverse(), back, old, wide=1.0)
    return Registration(new_from_old=motion, agrees=agrees, turn_deviation_rad=at_last.turn_deviation_rad)


def _samples(pairs: PointPairs, rng: np.random.Generator) -> Motion:
    """The best fits of three pairs each (Umeyama, PAMI 1991), in their order; those that grow too much are left out."""
    chosen = rng.integers(len(pairs), size=(_NUM_SAMPLES, 3))
    old, new = pairs.old[chosen], pairs.new[chosen]
    old_mean, new_mean = old.mean(axis=1), new.mean(axis=1)
    from_old, from_new = old - old_mean[:, None], new - new_mean[:, None]
    spread = np.maximum((from_old * from_old).sum(axis=(1, 2)), 1e-12)
    # no fit is larger than this root: most of those that shrink too much are known before they are computed
    can_be = np.sqrt((from_new * from_new).sum(axis=(1, 2)) / spread) > _ROUNDED / _LARGEST_SCALE
    from_old, from_new, spread = from_old[can_be], from_new[can_be], spread[can_be]
    left, values, right = np.linalg.svd(np.einsum("nki,nkj->nij", from_new, from_old))
    signs = np.ones_like(values)
    signs[:, 2] = np.sign(_determinant(left) * _determinant(right))
    scale = (values * signs).sum(axis=1) / spread
    is_sane = (scale < _LARGEST_SCALE) & (scale > 1 / _LARGEST_SCALE)
    rotation = np.einsum("nij,nj,njk->nik", left[is_sane], signs[is_sane], right[is_sane])
    scale, old_mean, new_mean = scale[is_sane], old_mean[can_be][is_sane], new_mean[can_be][is_sane]
    return Motion(scale, rotation, new_mean - scale[:, None] * np.einsum("nij,nj->ni", rotation, old_mean))


def _determinant(matrix: Float64[np.ndarray, "n 3 3"]) -> Float64[np.ndarray, " n"]:
    """Of few rows, much faster than by factors."""
    a, b, c = matrix[:, 0].T, matrix[:, 1].T, matrix[:, 2].T
    return np.asarray(
        a[0] * (b[1] * c[2] - b[2] * c[1]) - a[1] * (b[0] * c[2] - b[2] * c[0]) + a[2] * (b[0] * c[1] - b[1] * c[0])
    )


def _votes(samples: Motion, pairs: PointPairs, new: DepthPicture) -> Int64[np.ndarray, " samples"]:
    """How many pairs agree with each, as `_agree` says; depths are asked only of what is near."""
    near = _NEAR_SHARE * max(new.size)
    x, y, z = (_coordinate(samples, axis, pairs.old) for axis in range(3))
    in_front = np.maximum(z, 1e-9)
    aside = x / in_front * new.focal[0] + new.centre[0] - pairs.new_pixels[:, 0]
    above = y / in_front * new.focal[1] + new.centre[1] - pairs.new_pixels[:, 1]
    which, pair = np.nonzero((z > 0) & (aside * aside + above * above < near * near))
    agrees = np.abs(np.log(z[which, pair] / pairs.new[pair, 2])) < _NEAR_LOG_DEPTH
    return np.bincount(which[agrees], minlength=len(z))


def _coordinate(
    samples: Motion, axis: int, points: Float64[np.ndarray, "points 3"]
) -> Float64[np.ndarray, "samples points"]:
    """One of those that `Motion.of_points` gives, summed in the same order."""
    row, (x, y, z) = samples.rotation[:, axis, :, None], points.T
    turned = (row[:, 0] * x + row[:, 2] * z) + row[:, 1] * y
    return np.asarray(samples.scale[:, None] * turned + samples.translation[:, axis, None])


def _agree(motion: Motion, pairs: PointPairs, new: DepthPicture, *, wide: float) -> Bool[np.ndarray, "*batch pairs"]:
    """Whether old points are seen where their partners are, and as far away."""
    points = motion.of_points(pairs.old)
    away = new.projected(points) - pairs.new_pixels
    in_front = points[..., 2] > 0
    log_depth = np.log(np.where(in_front, points[..., 2], 1.0) / pairs.new[:, 2])
    near = wide * _NEAR_SHARE * max(new.size)
    is_near = (away * away).sum(axis=-1) < near * near
    return np.asarray(in_front & is_near & (np.abs(log_depth) < wide * _NEAR_LOG_DEPTH))


def _equations(
    motion: Motion, pairs: PointPairs, old: DepthPicture, new: DepthPicture, *, wide: float
) -> "_Equations | None":
    """Of a step of Gauss and Newton, pairs weighted by how well they agree; none where too few do."""
    back = motion.inverse()
    forth = _Residuals.of(motion.of_points(pairs.old), new, pairs.new_pixels, pairs.new[:, 2], wide)
    backward = _Residuals.of(back.of_points(pairs.new), old, pairs.old_pixels, pairs.old[:, 2], wide)
    if min(forth.num_agreeing, backward.num_agreeing) < _FEWEST_PAIRS:
        return None
    by_step = np.einsum("ij,pjk->pik", -back.scale * back.rotation, points_by_step(pairs.new[backward.agrees]))
    one, other = forth.equations(points_by_step(forth.points), new), backward.equations(by_step, old)
    return _Equations(one.matrix + other.matrix + _DAMPING * np.eye(7), one.vector + other.vector)


@dataclass(frozen=True, slots=True)
class _Equations:
    """Normal equations of one direction, or of both."""

    matrix: Float64[np.ndarray, "7 7"]
    vector: Float64[np.ndarray, "7"]

    @property
    def turn_deviation_rad(self) -> float:
        """Of both directions, which say the same twice."""
        covariance = 2 * np.linalg.inv(self.matrix)
        return float(np.sqrt(np.linalg.eigvalsh(covariance[:3, :3])[-1]))


@dataclass(frozen=True, slots=True)
class _Residuals:
    """Of points before a camera that should be seen at some pixels and depths: those that agree."""

    agrees: Bool[np.ndarray, " pairs"]
    points: Float64[np.ndarray, "agreeing 3"]
    away: Float64[np.ndarray, "agreeing 2"]
    """In pixels."""
    log_depth: Float64[np.ndarray, " agreeing"]

    @classmethod
    def of(
        cls,
        points: Float64[np.ndarray, "pairs 3"],
        picture: DepthPicture,
        pixels: Float64[np.ndarray, "pairs 2"],
        depth: Float64[np.ndarray, " pairs"],
        wide: float,
    ) -> "_Residuals":
        away = picture.projected(points) - pixels
        log_depth = np.log(np.maximum(points[:, 2], 1e-6) / depth)
        distance = np.sqrt((away * away).sum(axis=1))
        agrees = (points[:, 2] > 0) & (distance < wide * _NEAR_SHARE * max(picture.size))
        agrees &= np.abs(log_depth) < wide * _NEAR_LOG_DEPTH
        return cls(agrees, points[agrees], away[agrees], log_depth[agrees])

    @property
    def num_agreeing(self) -> int:
        return len(self.points)

    def equations(self, by_step: Float64[np.ndarray, "agreeing 3 7"], picture: DepthPicture) -> _Equations:
        """By how these points move by a step."""
        z = np.maximum(self.points[:, 2], 1e-6)
        distance = np.sqrt((self.away * self.away).sum(axis=1))
        pixel = PIXEL_SHARE * max(picture.size)
        seen = 1 / (1 + (distance / pixel) ** 2) / pixel**2
        far = 1 / (1 + (self.log_depth / _LOG_DEPTH) ** 2) / _LOG_DEPTH**2
        matrix, vector = np.zeros((7, 7)), np.zeros(7)
        for axis in (0, 1):
            slope = (self.points[:, axis] / z)[:, None] * by_step[:, 2]
            change = (by_step[:, axis] - slope) * (picture.focal[axis] / z)[:, None]
            weighted = seen[:, None] * change
            matrix += np.einsum("pi,pj->ij", weighted, change)
            vector += np.einsum("pi,p->i", weighted, self.away[:, axis])
        change = by_step[:, 2] / z[:, None]
        weighted = far[:, None] * change
        matrix += np.einsum("pi,pj->ij", weighted, change)
        vector += np.einsum("pi,p->i", weighted, self.log_depth)
        return _Equations(matrix, vector)


def points_by_step(points: Float64[np.ndarray, "points 3"]) -> Float64[np.ndarray, "points 3 7"]:
    """How points move by a turn, a shift and a growth."""
    found = np.zeros((len(points), 3, 7))
    x, y, z = points.T
    found[:, 0, 1], found[:, 0, 2], found[:, 1, 2] = z, -y, x
    found[:, 1, 0], found[:, 2, 0], found[:, 2, 1] = -z, y, -x
    found[:, :, 3:6] = np.eye(3)
    found[:, :, 6] = points
    return found


def _turn(vector: Float64[np.ndarray, "3"]) -> Float64[np.ndarray, "3 3"]:
    """The rotation about a vector by its length (Rodrigues)."""
    angle = float(np.sqrt((vector * vector).sum()))
    x, y, z = vector / max(angle, 1e-12)
    across = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.asarray(np.eye(3) + np.sin(angle) * across + (1 - np.cos(angle)) * np.einsum("ij,jk->ik", across, across))
