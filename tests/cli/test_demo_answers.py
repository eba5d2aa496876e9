"""A walk asked about on the way; the network is a miniature that knows nothing, or one that is told the truth."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from slow_answers import answer_of

from longtake.bench.answers import AskedWorld, GivenAnswer, ask_world
from longtake.cli import demo_report
from longtake.cli.demo_report import ask_on_the_way
from longtake.evaluation.asked_walk import QuestionPlan
from longtake.language.load import LanguageModel, load_language
from longtake.world.question import Question, QuestionKind
from longtake.world.tour import Tour, sightings
from longtake.world.visibility import clear_pixels
from training.vqa_model import TINY_VQA, build_vqa, save_vqa

SEED, SIZE = 19, (28, 42)
ASKING = QuestionPlan(num_frames=12, fps=2.0, num_moments=3, num_questions=7, recent_s=4.0)


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(4)
    save_vqa(build_vqa(TINY_VQA), folder)
    return load_language(folder)


def test_questions_come_at_every_moment_with_times_of_the_walk(language: LanguageModel) -> None:
    asked = ask_on_the_way(language, SEED, ASKING, SIZE, name="micro-vqa")
    assert asked.about.startswith("micro-vqa watched the same walk at 2 frames a second and 42x28 pixels")
    assert {question.time_s for question in asked.questions} == {(count - 1) / 2 for count in ASKING.moments}
    times = set((np.arange(12) / 2).tolist())
    for question in asked.questions:
        assert set(question.moments_s) <= times
        assert question.looked_s is not None
        assert set(question.looked_s) <= times
        assert max(*question.looked_s, *question.moments_s, 0.0) <= question.time_s
        assert question.answer
        assert (question.met_by_chance > 0) == question.has_moment
    assert len({question.kind for question in asked.questions}) >= 5


def test_the_same_walk_gets_the_same_questions(language: LanguageModel) -> None:
    one, two = (ask_on_the_way(language, SEED, ASKING, SIZE, name="x") for _ in range(2))
    assert one == two


@pytest.mark.extra
def test_truth_is_that_of_the_frames_that_were_seen(language: LanguageModel) -> None:
    """Found a second time from a question's words and all frames of the walk up to it."""
    tour = Tour(seed=SEED, width=42, height=28)
    views = [view for view, _ in zip(tour.views(), range(56), strict=False)][::5]
    seen = sightings(tour, tour.house(), views)
    for asked in ask_on_the_way(language, SEED, ASKING, SIZE, name="x").questions:
        question = Question(
            kind=QuestionKind(asked.kind),
            text=asked.question,
            answer=asked.truth,
            choices=(asked.truth,),
            frame=round(2 * asked.time_s),
            timestamp_s=asked.time_s,
            evidence=(),
        )
        assert answer_of(question, seen, clear_pixels(seen)) == asked.truth


def truthful(given: GivenAnswer) -> GivenAnswer:
    """The same with the true answer, or one that is two seconds off, and a look at the first true moment."""
    question = given.posed.question
    is_timed = question.kind is QuestionKind.WHEN
    text = str(int(question.answer) + 2) if is_timed else question.answer.upper()
    frame = question.evidence[0] if question.evidence else 0
    return replace(given, text=text, span=(frame, frame))


def test_true_answers_that_look_at_the_true_moment_are_all_right(
    language: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tell_truth(*arguments: Any) -> AskedWorld:
        asked = ask_world(*arguments)
        return replace(asked, given=tuple(map(truthful, asked.given)))

    monkeypatch.setattr(demo_report, "ask_world", tell_truth)
    asked = ask_on_the_way(language, SEED, ASKING, SIZE, name="x")
    assert asked.num_right == len(asked.questions)
    assert asked.num_met == asked.num_evident > asked.num_by_chance > 0
    for question in asked.questions:
        assert question.kind != QuestionKind.FIRST or len(question.moments_s) == 1
