"""The data of the page's 3D view as JSON: points and trajectory, bounded however long the video was."""

import base64
import json
from typing import Any

import numpy as np
from jaxtyping import Float64

from longtake.exports.report.plan import END_COLOUR, START_COLOUR, Axes, centres_of, chosen_positions
from longtake.exports.report.ply_points import PointSample
from longtake.takes.take import Take

MOST_CLOUD_POINTS = 50_000

_STRAY_PERCENT = 2
_SPACINGS_ACROSS = 0.22
_FEW_POINTS = 20_000
"""Fewer are drawn as small as these, for they cover no surface anyway."""

_LARGEST_NORMAL = 127
_DIGITS = 8


def payload(
    take: Take,
    axes: Axes,
    cloud: PointSample | None,
    true_path: Float64[np.ndarray, "true_frames 3"] | None = None,
) -> dict[str, Any]:
    """Arrays are base64 of little-endian numbers, row by row; normals are whole numbers to 127."""
    positions = chosen_positions(len(take))
    centres = centres_of(take.trajectory)[positions]
    shown = centres if cloud is None else np.vstack([cloud.points, centres])
    centre, radius = _frame_of(shown, centres)
    return {
        "axes": {"right": axes.right.tolist(), "down": axes.down.tolist(), "forward": axes.forward.tolist()},
        "centre": centre.tolist(),
        "radius": radius,
        "spacing": radius / (_SPACINGS_ACROSS * max(len(shown), _FEW_POINTS) ** 0.5),
        "colours": {"first": START_COLOUR, "last": END_COLOUR},
        "trajectory": {
            "indices": [take.records[position].index for position in positions],
            "positions": _numbers(centres),
        },
        "truth": None if true_path is None else _numbers(true_path[chosen_positions(len(true_path))]),
        "cloud": None if cloud is None else _cloud(cloud),
    }


def _numbers(centres: Float64[np.ndarray, "frames 3"]) -> list[float]:
    return [float(f"{number:.{_DIGITS}g}") for number in centres.ravel().tolist()]


def as_script(values: dict[str, Any]) -> str:
    """JSON for a script element, escaped so that no text in it can end the element."""
    return json.dumps(values, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _cloud(cloud: PointSample) -> dict[str, Any]:
    return {
        "count": len(cloud.points),
        "positions": _base64(cloud.points.astype("<f4")),
        "colours": _base64(cloud.colours),
        "normals": _base64(np.rint(cloud.normals.clip(-1, 1) * _LARGEST_NORMAL).astype(np.int8)),
    }


def _base64(values: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def _frame_of(
    shown: Float64[np.ndarray, "points 3"], centres: Float64[np.ndarray, "frames 3"]
) -> tuple[Float64[np.ndarray, "3"], float]:
    """Centre and radius of what is shown, but for stray points; the whole trajectory is within."""
    low, high = np.percentile(shown, (_STRAY_PERCENT, 100 - _STRAY_PERCENT), axis=0)
    low, high = np.minimum(low, centres.min(axis=0)), np.maximum(high, centres.max(axis=0))
    radius = float(np.linalg.norm(high - low) / 2)
    return (low + high) / 2, radius or 1.0
