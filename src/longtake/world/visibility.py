"""When each thing was visible in a walk, and when clearly.

A sighting is clear from a share of the image on; below it, it is faint, and people may or may not have noticed it.

    pixels     0 │ 1 ..................... │ CLEAR_SHARE of the image .....
               no│ faint                   │ clear
                 │◀──────── visible ─────────────────────────────────────▶
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Int

from longtake.world.things import Sightings

CLEAR_SHARE = 0.005
"""Share of an image's pixels from which on a thing is seen beyond doubt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visibility:
    """The frames of each thing that matter; a thing never seen was first seen after the newest, and last at -1."""

    clear: Bool[np.ndarray, "frames things"]
    first_clear: Int[np.ndarray, "things"]
    first_visible: Int[np.ndarray, "things"]
    last_clear: Int[np.ndarray, "things"]
    last_visible: Int[np.ndarray, "things"]

    @classmethod
    def of(cls, sightings: Sightings) -> "Visibility":
        clear, visible = sightings.pixels >= clear_pixels(sightings), sightings.pixels > 0
        return cls(
            clear=clear,
            first_clear=_first(clear),
            first_visible=_first(visible),
            last_clear=_last(clear),
            last_visible=_last(visible),
        )


def clear_pixels(sightings: Sightings) -> int:
    """The fewest pixels of a clear sighting."""
    return math.ceil(CLEAR_SHARE * sightings.image_pixels)


def until(sightings: Sightings, num_frames: int) -> Sightings:
    """The sightings of the first frames of a walk."""
    return replace(
        sightings,
        timestamp_s=sightings.timestamp_s[:num_frames],
        room=sightings.room[:num_frames],
        pixels=sightings.pixels[:num_frames],
        column=sightings.column[:num_frames],
    )


def _first(seen: Bool[np.ndarray, "frames things"]) -> Int[np.ndarray, "things"]:
    return np.where(seen.any(axis=0), seen.argmax(axis=0), len(seen))


def _last(seen: Bool[np.ndarray, "frames things"]) -> Int[np.ndarray, "things"]:
    return np.where(seen.any(axis=0), len(seen) - 1 - seen[::-1].argmax(axis=0), -1)
