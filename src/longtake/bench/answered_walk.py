"""A walk that is asked about on the way, and what a report says of the answers."""

import numpy as np

from longtake.bench.answers import Given, ask_world
from longtake.bench.answers_policies import KEEP_ALL, Watch
from longtake.bench.answers_scoring import WITHIN, is_right, met_by_chance
from longtake.bench.answers_walk import Asking, WalkFilm, film_walk, pose
from longtake.export.report.asked import Asked, AskedQuestion
from longtake.language.load import LanguageModel
from longtake.world.question import QuestionKind
from longtake.world.question_sampler import QuestionSampler

_WATCH = Watch(policy=KEEP_ALL, memory=None)


def ask_on_the_way(language: LanguageModel, seed: int, asking: Asking, size: tuple[int, int], *, name: str) -> Asked:
    """The walk through a house, watched frame by frame and asked about at several moments, against the truth."""
    film = film_walk(seed, asking, size, lambda _: None)
    posed = pose(QuestionSampler(np.random.default_rng([seed, 4])), film.seen, asking)
    given = ask_world(language, _WATCH, film, posed).given
    return Asked(
        about=(
            f"{name} watched the same walk at {asking.fps:g} frames a second and {size[1]}x{size[0]} pixels, and "
            "answered from what it had seen by then. Seconds are right within 2 s. Bars are the video up to the "
            "question: the span that the answer attended to most, and lines where the truth can be seen."
        ),
        questions=tuple(_judged(one, film) for one in given),
    )


def _judged(given: Given, film: WalkFilm) -> AskedQuestion:
    question, times_s = given.posed.question, film.times_s
    kind = WITHIN if question.kind is QuestionKind.WHEN else str(question.kind)
    return AskedQuestion(
        time_s=question.timestamp_s,
        kind=str(question.kind),
        question=question.text,
        answer=given.text,
        truth=question.answer,
        is_right=is_right(kind, question, given.text),
        looked_s=None if given.span is None else (times_s[given.span[0]], times_s[given.span[1]]),
        moments_s=tuple(times_s[frame] for frame in question.moments),
        met_by_chance=0.0 if given.span is None else met_by_chance(question, given.span),
    )
