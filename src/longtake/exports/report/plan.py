"""A drawing of the trajectory from above; up is the mean upward direction of the cameras."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Float64
from torch import Tensor

from longtake.takes.trajectory import Trajectory

MOST_POINTS = 2000
START_COLOUR, END_COLOUR = (18, 150, 170), (242, 112, 28)

_NUM_SHADES = 32
_LONGER_EDGE, _MARGIN, _NAME_WIDTH = 640, 36, 70
_SMALLEST_AXIS = 1e-6
_TRUE_HINT = '<p class="hint">Grey: the true way, moved to where it lies best.</p>'
_SMALLEST_EXTENT, _FARTHEST = 1e-9, 1e30


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """Directions of the world as the page shows it, of length 1 and at right angles."""

    right: Float[np.ndarray, "3"]
    down: Float[np.ndarray, "3"]
    forward: Float[np.ndarray, "3"]


def axes_of(world_from_camera: Float[Tensor, "frames 4 4"]) -> Axes:
    """Down is where the cameras' lower edges point on average, forward where the first one looks."""
    rotations = world_from_camera[:, :3, :3].double().numpy()
    down = _unit(rotations[:, :, 1].mean(axis=0), np.array([0.0, 1.0, 0.0]))
    ahead = rotations[0, :, 2] - down * (rotations[0, :, 2] @ down)
    aside = np.eye(3)[np.argmin(np.abs(down))]
    forward = _unit(ahead, aside - down * (aside @ down))
    return Axes(right=np.cross(down, forward), down=down, forward=forward)


def chosen_positions(count: int) -> list[int]:
    """Positions of some of so many frames, evenly spread, the first and the last among them."""
    return sorted({round(place) for place in np.linspace(0, count - 1, min(count, MOST_POINTS)).tolist()})


def centres_of(trajectory: Trajectory) -> Float64[np.ndarray, "frames 3"]:
    """Camera centres, clipped to where float arithmetic still works."""
    return trajectory.world_from_camera[:, :3, 3].clamp(-_FARTHEST, _FARTHEST).numpy()


def length_of(trajectory: Trajectory) -> float:
    return float(np.linalg.norm(np.diff(centres_of(trajectory), axis=0), axis=1).sum())


def draw_plan(
    trajectory: Trajectory, axes: Axes, unit: str, true_path: Float[np.ndarray, "true_frames 3"] | None = None
) -> str:
    """An SVG element: the trajectory from above, the true one under it, and a scale bar of a round length."""
    flat = _from_above(centres_of(trajectory)[chosen_positions(len(trajectory))], axes)
    true_flat = flat[:0] if true_path is None else _from_above(true_path[chosen_positions(len(true_path))], axes)
    everything = np.vstack([flat, true_flat])
    low, extent = everything.min(axis=0), np.ptp(everything, axis=0)
    longer = float(extent.max())
    scale = _LONGER_EDGE / (longer if longer > _SMALLEST_EXTENT else 1.0)
    width, height = (max(side, _LONGER_EDGE / 3) + 2 * _MARGIN for side in (extent * scale).tolist())
    corner = (np.array([width, height]) - extent * scale) / 2
    places, true_places = ((way - low) * scale + corner for way in (flat, true_flat))
    marks = _mark(places[0], START_COLOUR, "start", width) + _mark(places[-1], END_COLOUR, "end", width)
    return (
        f'<svg class="plan" viewBox="0 0 {width:.0f} {height + _MARGIN:.0f}" role="img" '
        f'aria-label="Way of the camera from above, {length_of(trajectory):.3g} {unit} long">'
        f"{_true_way(true_places)}{_way(places)}{marks}{_bar(scale, height, unit)}</svg>"
        f"{_TRUE_HINT if len(true_flat) else ''}"
    )


def shade(share: float) -> str:
    """The colour of a moment between start and end, as CSS writes it."""
    mixed = [round(first + (last - first) * share) for first, last in zip(START_COLOUR, END_COLOUR, strict=True)]
    return "#{:02x}{:02x}{:02x}".format(*mixed)


def _from_above(centres: Float[np.ndarray, "points 3"], axes: Axes) -> Float[np.ndarray, "points 2"]:
    return np.stack([centres @ axes.right, -(centres @ axes.forward)], axis=1)


def _true_way(places: Float[np.ndarray, "points 2"]) -> str:
    return f'<polyline class="true-way" points="{_points(places)}"/>' if len(places) else ""


def _way(places: Float[np.ndarray, "points 2"]) -> str:
    """The trajectory as polylines that change colour with time; each begins where the last one ends."""
    num_pieces = max(1, min(_NUM_SHADES, len(places) - 1))
    edges = [round(edge) for edge in np.linspace(0, len(places) - 1, num_pieces + 1).tolist()]
    pieces = [places[first : last + 1] for first, last in pairwise(edges)]
    return "".join(
        f'<polyline class="way" stroke="{shade(number / num_pieces)}" points="{_points(piece)}"/>'
        for number, piece in enumerate(pieces)
    )


def _points(places: Float[np.ndarray, "points 2"]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places.tolist())


def _mark(place: Float[np.ndarray, "2"], colour: tuple[int, int, int], name: str, width: float) -> str:
    """The name stands right of its place, or left of it where the drawing ends."""
    x, y = place.tolist()
    beside = f'x="{x + 11:.1f}"' if x + _NAME_WIDTH < width else f'x="{x - 11:.1f}" text-anchor="end"'
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" fill="rgb{colour}" class="mark"/>'
        f'<text {beside} y="{y - 9:.1f}">{name}</text>'
    )


def _bar(scale: float, height: float, unit: str) -> str:
    """As long as the largest of 1, 2 or 5 times a power of ten that takes up a fifth of the drawing at most."""
    most = _LONGER_EDGE / scale / 5
    power = math.floor(math.log10(most))
    length = max(float(f"{digit}e{power}") for digit in (1, 2, 5) if float(f"{digit}e{power}") <= most * (1 + 1e-9))
    y, end = height + _MARGIN / 2, _MARGIN / 2 + length * scale
    return (
        f'<path class="bar" d="M{_MARGIN / 2} {y - 5:.1f}v10m0-5H{end:.1f}m0-5v10"/>'
        f'<text x="{end + 10:.1f}" y="{y + 5:.1f}">{length:g} {unit if length != 1 else unit.removesuffix("s")}</text>'
    )


def _unit(vector: Float[np.ndarray, "3"], otherwise: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3"]:
    chosen = vector if np.linalg.norm(vector) > _SMALLEST_AXIS else otherwise
    unit: np.ndarray = chosen / np.linalg.norm(chosen)
    return unit
