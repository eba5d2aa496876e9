"""A short walk, and what a session said of its frames in the end."""

from collections.abc import Sequence

from longtake.types import Geometry

WALK = "world:9?frames=24&size=126x98"


def newest(parts: Sequence[Geometry]) -> Geometry:
    """The last result of each frame, in order."""
    by_index: dict[int, Geometry] = {}
    for part in parts:
        for known in (part,) if part.moved is None else (part.moved.geometry, part):
            by_index |= {index: known.frames(place, place + 1) for place, index in enumerate(known.frame_index)}
    return Geometry.join([by_index[index] for index in sorted(by_index)])
