"""How far points are from solids: never more than is true, so that what keeps this distance is outside for sure."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from longtake.world.furniture import Shape, Solid


def distance_to(points: Float[np.ndarray, "points 3"], solids: Sequence[Solid]) -> Float[np.ndarray, "points"]:
    """To the nearest solid; 0 or less inside of one, infinite where there is none."""
    nearest = np.full(len(points), np.inf)
    for solid in solids:
        own = (points - np.array(solid.center)) @ solid.world_from_own
        nearest = np.minimum(nearest, _OF_SHAPE[solid.shape](own, np.array(solid.half)))
    return nearest


def reach_of(solid: Solid) -> float:
    """Radius of a ball around its centre that holds it."""
    first, second, third = solid.half
    match solid.shape:
        case Shape.BOX:
            return float(np.linalg.norm(solid.half))
        case Shape.BALL:
            return max(solid.half)
        case Shape.TAPER:
            return float(np.hypot(max(first, third), second))


def _to_box(own: Float[np.ndarray, "points 3"], half: Float[np.ndarray, "3"]) -> Float[np.ndarray, "points"]:
    beyond = abs(own) - half
    return np.asarray(np.linalg.norm(np.maximum(beyond, 0), axis=1) + np.minimum(beyond.max(axis=1), 0))


def _to_ball(own: Float[np.ndarray, "points 3"], half: Float[np.ndarray, "3"]) -> Float[np.ndarray, "points"]:
    """Exact for a ball, and along the shortest axis of an ellipsoid; elsewhere less."""
    return np.asarray((np.linalg.norm(own / half, axis=1) - 1) * half.min())


def _to_taper(own: Float[np.ndarray, "points 3"], half: Float[np.ndarray, "3"]) -> Float[np.ndarray, "points"]:
    """The largest of the distances to the planes of foot and top and to the cone of the side."""
    foot, height, top = half
    slope = (foot - top) / (2 * height)
    radius = (foot + top) / 2 + slope * own[:, 1]
    to_side = (np.hypot(own[:, 0], own[:, 2]) - radius) / np.hypot(1, slope)
    return np.asarray(np.maximum(to_side, abs(own[:, 1]) - height))


_OF_SHAPE = {Shape.BOX: _to_box, Shape.BALL: _to_ball, Shape.TAPER: _to_taper}
