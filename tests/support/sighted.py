"""Walks that nobody filmed: what is visible in them is drawn at random."""

import numpy as np

from longtake.language.qwen2_5_vl import open_clip
from longtake.world.things import Colour, Kind, Sightings, Thing
from training.packing import Shape
from training.question_batches import QuestionJob
from training.vocabulary import Vocabulary


def made_up(seed: int, num_frames: int, *, step_s: float = 0.5, num_things: int = 12) -> Sightings:
    """Each thing is in sight for a while, once or twice; the camera goes from room to room."""
    rng = np.random.default_rng(seed)
    names = rng.permutation([(colour, kind) for colour in Colour for kind in Kind])[:num_things]
    things = tuple(Thing(Colour(colour), Kind(kind), int(rng.integers(3))) for colour, kind in names)
    pixels = np.zeros((num_frames, num_things), dtype=np.int64)
    for thing in range(num_things):
        for start in rng.integers(0, num_frames, size=rng.integers(1, 3)):
            pixels[start : start + rng.integers(1, 5), thing] = rng.integers(200, 4000)
    column = np.where(pixels > 0, rng.random(pixels.shape), np.nan)
    return Sightings(
        things=things,
        rooms=(Colour.RED, Colour.GREEN, Colour.BLUE),
        timestamp_s=np.arange(num_frames) * step_s,
        room=np.sort(rng.integers(3, size=num_frames)),
        pixels=pixels,
        column=column,
        image_pixels=112 * 168,
    )


def job(seed: int) -> QuestionJob:
    """To ask about two such walks."""
    opening = len(open_clip(Vocabulary().special_ids, Vocabulary().system))
    shape = Shape(num_frames=8, num_held=1, question_tokens=60, rows=4, columns=6, num_opening=opening)
    seen = [made_up(seed, 8), made_up(seed + 1, 8)]
    return QuestionJob(shape=shape, tokens_per_second=2, moments=2, questions=3, seed=(seed,), seen=seen)
