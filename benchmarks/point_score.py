"""Points that a walk gave against the truth: precision, recall and F1 at a distance, without a k-d tree."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from longtake.spatial.similarity import best_similarity
from longtake.types import Geometry
from longtake.world.tour import View

POINT_EVERY = 10
"""Frames between two whose points count."""
_PIXELS = 3
"""Between pixels that are lifted."""
_DROPPED = 0.25
"""Least confident part of each frame, as exports leave it out."""
_APART_M = 0.02
"""At least between two points of a cloud, about."""
_THRESHOLD_M = 0.05
_ROUNDS, _TRUSTED = 4, 0.8
"""How often the similarity is fitted, each time to the part of the pixels that the last one laid best."""
_SAMPLED = 100_000
"""Pixels by which that part is told, about."""
_CELL_SPAN = 1 << 20
_NEIGHBOURS = np.stack(np.meshgrid(*[[-1, 0, 1]] * 3, indexing="ij"), axis=-1).reshape(-1, 3)

Points = Float64[np.ndarray, "_ 3"]


@dataclass(frozen=True, slots=True)
class PointScore:
    """Shares of points that have one of the other cloud within five centimetres."""

    precision: float
    recall: float

    @property
    def f1(self) -> float:
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


def found_points(one: Geometry, camera: Float64[Tensor, "4 4"]) -> Points:
    """Of some pixels of one frame, in the session's world; NaN where there is none, or one that is hardly believed."""
    depth, confidence = one.depth[0].double().numpy(), one.depth_confidence[0].double().numpy()
    usable = np.isfinite(depth) & (depth > 0) & (confidence >= np.quantile(confidence, _DROPPED))
    return _lifted(np.where(usable, depth, np.nan), one.intrinsics[0].double().numpy(), camera.numpy())


def true_points(view: View) -> Points:
    """Of the same pixels, in metres; NaN where there is sky."""
    depth = np.where(view.depth.isfinite().numpy(), view.depth.double().numpy(), np.nan)
    return _lifted(depth, view.intrinsics.double().numpy(), view.world_from_camera.double().numpy())


def in_metres(found: list[Points], true: list[Points]) -> list[Points]:
    """What was found, moved by the one similarity that lays most pixels where they truly are."""
    ours, theirs = (torch.from_numpy(np.concatenate(clouds)) for clouds in (found, true))
    both = (ours + theirs).isfinite().all(dim=1)
    ours, theirs = ours[both], theirs[both]
    chosen = torch.ones(len(ours), dtype=torch.bool)
    for _ in range(_ROUNDS):
        fitted = best_similarity(ours[chosen], theirs[chosen])
        apart = (fitted.of_points(ours) - theirs).norm(dim=1)
        chosen = apart <= apart[:: max(1, len(apart) // _SAMPLED)].quantile(_TRUSTED)
    return [fitted.of_points(torch.from_numpy(cloud)).numpy() for cloud in found]


def thinned(clouds: list[Points]) -> Points:
    """All of them, one point in each small cube."""
    points = np.concatenate(clouds)
    points = points[np.isfinite(points).all(axis=1)]
    _, first = np.unique(_keys(_cells(points, _APART_M)), return_index=True)
    return np.asarray(points[first])


def score(found: Points, true: Points) -> PointScore:
    """Of two clouds that were thinned."""
    return PointScore(float(met(found, true).mean()), float(met(true, found).mean()))


def met(points: Points, others: Points, threshold_m: float = _THRESHOLD_M) -> Bool[np.ndarray, " points"]:
    """Whether each point has one of the others nearer than the threshold."""
    keys = _keys(_cells(others, threshold_m))
    order = np.argsort(keys, kind="stable")
    keys, others = keys[order], others[order]
    cells, is_met = _cells(points, threshold_m), np.zeros(len(points), dtype=bool)
    for offset in _NEIGHBOURS:
        wanted = _keys(cells + offset)
        place, stop = np.searchsorted(keys, wanted, "left"), np.searchsorted(keys, wanted, "right")
        open_ones = np.flatnonzero((place < stop) & ~is_met)
        while len(open_ones):
            near = ((points[open_ones] - others[place[open_ones]]) ** 2).sum(axis=1) < threshold_m**2
            is_met[open_ones[near]] = True
            place[open_ones] += 1
            open_ones = open_ones[~near & (place[open_ones] < stop[open_ones])]
    return is_met


def _lifted(
    depth: Float64[np.ndarray, "height width"],
    intrinsics: Float64[np.ndarray, "3 3"],
    world_from_camera: Float64[np.ndarray, "4 4"],
) -> Points:
    rows, columns = (np.arange(_PIXELS // 2, side, _PIXELS) for side in depth.shape)
    some = depth[np.ix_(rows, columns)]
    pixels = np.stack([*np.meshgrid(columns + 0.5, rows + 0.5), np.ones_like(some)], axis=-1)
    points = ((pixels @ np.linalg.inv(intrinsics).T) * some[..., None]).reshape(-1, 3)
    return np.asarray(points @ world_from_camera[:3, :3].T + world_from_camera[:3, 3])


def _cells(points: Points, side_m: float) -> Int64[np.ndarray, "points 3"]:
    return np.asarray(np.floor(points / side_m).astype(np.int64))


def _keys(cells: Int64[np.ndarray, "points 3"]) -> Int64[np.ndarray, " points"]:
    """One number for each cube."""
    shifted = np.clip(cells + _CELL_SPAN // 2, 0, _CELL_SPAN - 1)
    return np.asarray((shifted[:, 0] * _CELL_SPAN + shifted[:, 1]) * _CELL_SPAN + shifted[:, 2])
