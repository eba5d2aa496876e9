"""The similarity between two views by points that look alike in both: robust sampling, then least squares.

Three pairs of points with depth fix a similarity (Umeyama). Of many such samples, that with the most pairs which agree
is refined on them: where each point is seen in the other picture, both ways, and how far away it is there. What is
seen says more about a camera than depth does, which networks guess.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float64

from longtake.places.pictures import DepthPicture
from longtake.spatial.similarity import Similarity

_NUM_SAMPLES = 512
_NEAR_SHARE = 0.02
"""Of the longer side: how far from its partner a point may be seen."""
_NEAR_LOG_DEPTH = 0.15
_PIXEL_SHARE = 0.008
_LOG_DEPTH = 0.1
"""What a pixel and a depth are trusted by: residuals are divided by them."""
_LARGEST_SCALE = 2.5
"""Between depths over their medians: how much nearer everything may be in one view of a place."""
_NUM_STEPS = 12
_WIDE_STEPS = 3
"""First steps, in which more pairs count, for a sample is rough."""
_FEWEST_PAIRS = 6
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


def register(pairs: PointPairs, old: DepthPicture, new: DepthPicture, seed: tuple[int, int]) -> Registration | None:
    """The similarity that most pairs agree on; none where there are too few of them."""
    if len(pairs) < _FEWEST_PAIRS:
        return None
    samples = _samples(pairs, np.random.default_rng(seed))
    agreeing = _agree(samples, pairs, new, wide=1.0)
    is_sane = (samples.scale < _LARGEST_SCALE) & (samples.scale > 1 / _LARGEST_SCALE)
    votes = agreeing.sum(axis=1) * is_sane
    best = int(votes.argmax())
    if votes[best] < _FEWEST_PAIRS:
        return None
    motion = Motion(np.asarray(samples.scale[best]), samples.rotation[best], samples.translation[best])
    for number in range(_NUM_STEPS):
        step = _step(motion, pairs, old, new, wide=2.0 if number < _WIDE_STEPS else 1.0)
        if step is None:
            return None
        motion = motion.moved(step)
    if not 1 / _LARGEST_SCALE < float(motion.scale) < _LARGEST_SCALE:
        return None
    back = PointPairs(old=pairs.new, new=pairs.old, old_pixels=pairs.new_pixels, new_pixels=pairs.old_pixels)
    agrees = _agree(motion, pairs, new, wide=1.0) & _agree(motion.inverse(), back, old, wide=1.0)
    return Registration(new_from_old=motion, agrees=agrees)


def _samples(pairs: PointPairs, rng: np.random.Generator) -> Motion:
    """The best fits of three pairs each (Umeyama, PAMI 1991)."""
    chosen = rng.integers(len(pairs), size=(_NUM_SAMPLES, 3))
    old, new = pairs.old[chosen], pairs.new[chosen]
    old_mean, new_mean = old.mean(axis=1), new.mean(axis=1)
    from_old, from_new = old - old_mean[:, None], new - new_mean[:, None]
    left, values, right = np.linalg.svd(np.einsum("nki,nkj->nij", from_new, from_old))
    signs = np.ones_like(values)
    signs[:, 2] = np.sign(np.linalg.det(left) * np.linalg.det(right))
    rotation = np.einsum("nij,nj,njk->nik", left, signs, right)
    scale = (values * signs).sum(axis=1) / np.maximum((from_old * from_old).sum(axis=(1, 2)), 1e-12)
    translation = new_mean - scale[:, None] * np.einsum("nij,nj->ni", rotation, old_mean)
    return Motion(scale, rotation, translation)


def _agree(motion: Motion, pairs: PointPairs, new: DepthPicture, *, wide: float) -> Bool[np.ndarray, "*batch pairs"]:
    """Whether old points are seen where their partners are, and as far away."""
    points = motion.of_points(pairs.old)
    away = new.projected(points) - pairs.new_pixels
    in_front = points[..., 2] > 0
    log_depth = np.log(np.where(in_front, points[..., 2], 1.0) / pairs.new[:, 2])
    near = wide * _NEAR_SHARE * max(new.size)
    is_near = (away * away).sum(axis=-1) < near * near
    return np.asarray(in_front & is_near & (np.abs(log_depth) < wide * _NEAR_LOG_DEPTH))


def _step(
    motion: Motion, pairs: PointPairs, old: DepthPicture, new: DepthPicture, *, wide: float
) -> Float64[np.ndarray, "7"] | None:
    """Of Gauss and Newton, pairs weighted by how well they agree; none where too few do."""
    moved = motion.of_points(pairs.old)
    forth = _equations(moved, _by_step(moved), new, pairs.new_pixels, pairs.new[:, 2], wide)
    back = motion.inverse()
    by_step = np.einsum("ij,pjk->pik", -back.scale * back.rotation, _by_step(pairs.new))
    back_moved = back.of_points(pairs.new)
    backward = _equations(back_moved, by_step, old, pairs.old_pixels, pairs.old[:, 2], wide)
    if min(forth.num_agreeing, backward.num_agreeing) < _FEWEST_PAIRS:
        return None
    matrix = forth.matrix + backward.matrix + _DAMPING * np.eye(7)
    return -np.linalg.solve(matrix, forth.vector + backward.vector)


@dataclass(frozen=True, slots=True)
class _Equations:
    """Normal equations of one direction."""

    matrix: Float64[np.ndarray, "7 7"]
    vector: Float64[np.ndarray, "7"]
    num_agreeing: int


def _equations(
    points: Float64[np.ndarray, "pairs 3"],
    by_step: Float64[np.ndarray, "pairs 3 7"],
    picture: DepthPicture,
    pixels: Float64[np.ndarray, "pairs 2"],
    depth: Float64[np.ndarray, " pairs"],
    wide: float,
) -> _Equations:
    """Of points before a camera that should be seen at these pixels and depths, and of how they move by a step."""
    longer = max(picture.size)
    z = np.maximum(points[:, 2], 1e-6)
    away = picture.projected(points) - pixels
    log_depth = np.log(z / depth)
    distance = np.sqrt((away * away).sum(axis=1))
    agrees = (points[:, 2] > 0) & (distance < wide * _NEAR_SHARE * longer)
    agrees &= np.abs(log_depth) < wide * _NEAR_LOG_DEPTH
    pixel = _PIXEL_SHARE * longer
    seen = agrees / (1 + (distance / pixel) ** 2) / pixel**2
    far = agrees / (1 + (log_depth / _LOG_DEPTH) ** 2) / _LOG_DEPTH**2
    matrix, vector = np.zeros((7, 7)), np.zeros(7)
    for axis in (0, 1):
        slope = (points[:, axis] / z)[:, None] * by_step[:, 2]
        change = (by_step[:, axis] - slope) * (picture.focal[axis] / z)[:, None]
        matrix += np.einsum("p,pi,pj->ij", seen, change, change)
        vector += np.einsum("p,pi,p->i", seen, change, away[:, axis])
    change = by_step[:, 2] / z[:, None]
    matrix += np.einsum("p,pi,pj->ij", far, change, change)
    vector += np.einsum("p,pi,p->i", far, change, log_depth)
    return _Equations(matrix, vector, int(agrees.sum()))


def _by_step(points: Float64[np.ndarray, "points 3"]) -> Float64[np.ndarray, "points 3 7"]:
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
