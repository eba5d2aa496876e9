"""Walks that are asked about on the way: their frames, when questions come, how far back each goes, what is right."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import torch
from jaxtyping import Bool, UInt8
from torch import Tensor

from longtake.errors import SettingError
from longtake.evaluation.answers import are_near, normalise
from longtake.world.question import PLURALS, Phrase, Question, QuestionKind
from longtake.world.question_sampler import QuestionSampler
from longtake.world.render import Cameras, render
from longtake.world.scene import Scene
from longtake.world.things import Sightings, Thing
from longtake.world.tour import Tour, visible
from longtake.world.visibility import Visibility, until
from longtake.world.walk import WALK_FPS, walk

FEWEST_FRAMES = 4
_FIRST_MOMENT = 2
WITHIN = "when, within 2 s"
"""The kind of a question about seconds ago, judged roughly."""


class Reach(StrEnum):
    """How far back lies what decides a question."""

    REALTIME = "realtime"
    """It is in view, or was a moment ago."""
    RECALL = "recall"
    """It was last in view before that."""
    ABSENT = "never seen"
    """There was nothing to see: the answer is no, or 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionPlan:
    """How walks are filmed and asked about."""

    num_frames: int
    fps: float
    num_moments: int
    num_questions: int
    """At each moment."""
    recent_s: float
    """Up to how long ago something is realtime."""

    def __post_init__(self) -> None:
        if self.num_frames < FEWEST_FRAMES:
            raise SettingError(f"Expected walks of {FEWEST_FRAMES} frames at least, but got {self.num_frames}.")
        if not 0 < self.fps <= WALK_FPS:
            raise SettingError(f"Expected frames a second above 0 and up to {WALK_FPS:g}, but got {self.fps:g}.")
        if self.num_moments < 1 or self.num_questions < 1 or not self.recent_s >= 0:
            raise SettingError(
                f"Expected one moment, one question and 0 s at least, but got {self.num_moments} moments, "
                f"{self.num_questions} questions and {self.recent_s:g} s."
            )

    @property
    def moments(self) -> tuple[int, ...]:
        """As numbers of frames seen: the end and others evenly before it; at every other of these a frame waits."""
        pairs = [self.num_frames * place // self.num_moments // 2 for place in range(1, self.num_moments)]
        before = [max(_FIRST_MOMENT, 2 * count - place % 2) for place, count in enumerate(pairs, start=1)]
        return tuple(sorted({*before, self.num_frames}))

    @property
    def steps(self) -> list[int]:
        """Which steps of a walk are filmed."""
        return [round(place * WALK_FPS / self.fps) for place in range(self.num_frames)]


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkFrames:
    """The frames of a walk and what was visible in them."""

    frames: UInt8[Tensor, "frames 3 height width"]
    times_s: tuple[float, ...]
    seen: Sightings


@dataclass(frozen=True, slots=True, kw_only=True)
class PosedQuestion:
    """A question about a walk, and how far back it reaches."""

    question: Question
    reach: Reach

    @property
    def num_seen(self) -> int:
        """Frames that were seen when it is asked."""
        return self.question.frame + 1


def film_walk(seed: int, asking: QuestionPlan, size: tuple[int, int], progress: Callable[[int], None]) -> WalkFrames:
    """Some steps of the walk through a house; those between them are not drawn."""
    height, width = size
    tour = Tour(seed=seed, width=width, height=height, fps=WALK_FPS)
    house, steps = tour.house(), asking.steps
    taken = list(itertools.islice(walk(house, seed), steps[-1] + 1))
    scene, intrinsics = Scene.of([house], "cpu"), tour.intrinsics()[None, None]
    images, things = [], []
    for step in steps:
        pose = torch.from_numpy(taken[step].world_from_camera)[None, None].to(intrinsics)
        drawn = render(scene, Cameras(world_from_camera=pose, intrinsics=intrinsics, height=height, width=width))
        images.append((drawn.image[0, 0] * 255).round().to(torch.uint8))
        things.append(drawn.thing[0, 0])
        progress(1)
    pixels, column = visible(torch.stack(things), len(house.things))
    seen = Sightings(
        things=house.things,
        rooms=tuple(room.colour for room in house.rooms),
        timestamp_s=np.array(steps) / WALK_FPS,
        room=np.array([taken[step].room for step in steps]),
        pixels=pixels.numpy(),
        column=column.numpy(),
        image_pixels=height * width,
    )
    return WalkFrames(frames=torch.stack(images), times_s=tuple(seen.timestamp_s.tolist()), seen=seen)


def pose_questions(sampler: QuestionSampler, seen: Sightings, asking: QuestionPlan) -> tuple[PosedQuestion, ...]:
    """Questions at every moment of a walk."""
    return tuple(
        PosedQuestion(question=question, reach=reach_of(question, seen, asking.recent_s))
        for moment in asking.moments
        for question in sampler.ask(until(seen, moment), asking.num_questions)
    )


def reach_of(question: Question, seen: Sightings, recent_s: float) -> Reach:
    """By the last frame from which the question could still be answered by one who forgets all before it."""
    if question.answer in ("no", "0") and question.kind in (QuestionKind.SEEN, QuestionKind.COUNT):
        return Reach.ABSENT
    ago_s = question.timestamp_s - float(seen.timestamp_s[_last_needed(question, seen)])
    # times are tenths of a second, and their differences nearly so
    return Reach.REALTIME if ago_s <= recent_s + 1e-6 else Reach.RECALL


def is_right(kind: str, question: Question, text: str) -> bool:
    """Exactly, but for case and articles; seconds within 2 s where the kind says so."""
    if kind == WITHIN:
        return are_near(text, question.answer)
    return normalise(text) == normalise(question.answer)


def met_by_chance(question: Question, span: tuple[int, int]) -> float:
    """How likely a span as long would hold the moment, put anywhere in what was watched, round its end too.

    Going round, every moment is as likely to be met, the first and the last too.
    """
    num_frames, length = question.frame + 1, span[1] - span[0] + 1
    moments = np.array(question.moments)
    starts = np.arange(num_frames)[:, None]
    return float(((moments - starts) % num_frames < length).any(axis=1).mean())


def _last_needed(question: Question, seen: Sightings) -> int:
    if question.kind in (QuestionKind.WHERE, QuestionKind.WHEN) or question.text == Phrase.ROOM_NOW:
        return question.evidence[0]
    clear = Visibility.of(until(seen, question.frame + 1)).clear
    if question.kind is QuestionKind.FIRST:  # the one that came first, before the other did
        first = next(index for index, thing in enumerate(seen.things) if thing.name == question.answer)
        return _last(clear[: question.evidence[1], first])
    if question.kind is QuestionKind.ROOM:  # from elsewhere one cannot tell
        clear = clear & (seen.room[: len(clear), None] == np.array([thing.room for thing in seen.things]))
    return min(_last(clear[:, index]) for index in _asked_for(question, seen) if clear[:, index].any())


def _last(clear: Bool[np.ndarray, "frames"]) -> int:
    return int(np.flatnonzero(clear)[-1])


def _asked_for(question: Question, seen: Sightings) -> Iterator[int]:
    """Things that a question's words mean."""
    words = question.text.split()

    def is_meant(thing: Thing) -> bool:
        if question.kind in (QuestionKind.COLOUR, QuestionKind.COUNT):
            return thing.kind in words or PLURALS[thing.kind] in words
        return thing.name in question.text

    return (index for index, thing in enumerate(seen.things) if is_meant(thing))
