"""Walks without pictures: what would be seen of random things by a camera that wanders and turns."""

from collections.abc import Callable

import numpy as np
import pytest
from jaxtyping import Float

from longtake.world.things import Colour, Kind, Sightings, Thing

IMAGE_PIXELS = 128 * 96
FOV_RAD = 2.0

MakeSightings = Callable[..., Sightings]


@pytest.fixture(scope="session")
def synthetic_sightings() -> MakeSightings:
    """Makes the sightings of a walk from a seed; long and slow or short and fast unless told."""
    return make_sightings


def make_sightings(seed: int, num_frames: int | None = None, fps: float | None = None) -> Sightings:
    rng = np.random.default_rng(seed)
    num_frames = int(rng.choice([16, 40, 150, 600])) if num_frames is None else num_frames
    timestamp_s = np.arange(num_frames) / (float(rng.choice([1.0, 2.0, 5.0, 10.0, 30.0])) if fps is None else fps)
    rooms = tuple(rng.permutation(list(Colour))[: rng.integers(3, 7)].tolist())
    things = random_things(rng, len(rooms))
    room = (np.cumsum(rng.exponential(8.0, 200))[:, None] < timestamp_s).sum(axis=0)
    room = rng.integers(len(rooms), size=201)[room]
    column = 0.5 + bearings_rad(rng, timestamp_s, len(things)) / FOV_RAD
    inside = np.clip(8 * np.minimum(column, 1 - column), 0, 1)
    near = room[:, None] == [thing.room for thing in things]
    nearness = np.where(near, 1.0, rng.choice([0.0, 0.0, 0.04, 0.3], size=len(things)))
    breathing = 1 + 0.8 * np.sin(timestamp_s[:, None] * rng.uniform(0.1, 1, len(things)) + rng.uniform(0, 6))
    size = IMAGE_PIXELS * rng.uniform(0.004, 0.08, len(things))
    pixels = (size * inside * nearness * breathing).astype(int)
    return Sightings(
        things=things,
        rooms=tuple(Colour(colour) for colour in rooms),
        timestamp_s=timestamp_s,
        room=room,
        pixels=pixels,
        column=np.where(pixels > 0, column, np.nan),
        image_pixels=IMAGE_PIXELS,
    )


def random_things(rng: np.random.Generator, num_rooms: int) -> tuple[Thing, ...]:
    """Three to six things a room, no two of one name, some kinds commoner than others in a house."""
    names = [(colour, kind) for colour in Colour for kind in Kind]
    liking = dict(zip(Kind, rng.dirichlet(np.ones(len(Kind))) + 0.02, strict=True))
    weights = np.array([liking[kind] for _, kind in names])
    number = int(rng.integers(3 * num_rooms, 6 * num_rooms))
    drawn = rng.choice(len(names), size=number, replace=False, p=weights / weights.sum())
    return tuple(Thing(*names[index], int(rng.integers(num_rooms))) for index in drawn.tolist())


def bearings_rad(
    rng: np.random.Generator, timestamp_s: Float[np.ndarray, "frames"], num_things: int
) -> Float[np.ndarray, "frames things"]:
    """Where things lie from the middle of the view, which turns and sways."""
    heading = rng.uniform(-0.6, 0.6) * timestamp_s + rng.uniform(0, 2) * np.sin(timestamp_s * rng.uniform(0.2, 1))
    angle = rng.uniform(0, 2 * np.pi, num_things) - heading[:, None]
    return (angle + np.pi) % (2 * np.pi) - np.pi
