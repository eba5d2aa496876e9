"""Over many walks no answer is common, and no words give an answer away."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest

from longtake.errors import SettingError
from longtake.world.question import Question, QuestionKind
from longtake.world.question_candidates import candidates
from longtake.world.question_sampler import EXCESS_SHARE, QuestionSampler, balanced_answer
from longtake.world.things import Sightings
from longtake.world.visibility import until

MakeSightings = Callable[..., Sightings]
QUESTIONS_A_KIND = 2000


@pytest.fixture(scope="module")
def rounds(synthetic_sightings: MakeSightings) -> list[tuple[Question, ...]]:
    """What one quiz asked halfway and at the end of many walks, until every kind has enough."""
    quiz, asked, num_asked = QuestionSampler(np.random.default_rng(0)), [], Counter[QuestionKind]()
    for seed in range(1000):
        walk = synthetic_sightings(seed)
        for num_frames in (len(walk) // 2, len(walk)):
            asked.append(quiz.ask(until(walk, num_frames), 10))
            num_asked.update(question.kind for question in asked[-1])
        if min(num_asked[kind] for kind in QuestionKind) >= QUESTIONS_A_KIND:
            return asked
    raise AssertionError(f"too few questions: {num_asked}")


def of_kind(rounds: Sequence[tuple[Question, ...]], kind: str) -> list[Question]:
    return [question for asked in rounds for question in asked if question.kind == kind][:QUESTIONS_A_KIND]


def chance_of(questions: Sequence[Question]) -> float:
    """The score of uniform guesses: over each question's choices, or over all answers where these are more."""
    among_choices = sum(1 / len(question.choices) for question in questions) / len(questions)
    return min(among_choices, 1 / len({question.answer for question in questions}))


def majority_score(clues: Sequence[tuple[str, str]]) -> float:
    """The score of one who knows the commonest answer to each clue."""
    by_clue: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for clue, answer in clues:
        by_clue[clue][answer] += 1
    return sum(max(answers.values()) for answers in by_clue.values()) / len(clues)


@pytest.mark.extra
@pytest.mark.parametrize("kind", QuestionKind)
def test_commonest_answer_scores_near_chance(rounds: list[tuple[Question, ...]], kind: QuestionKind) -> None:
    questions = of_kind(rounds, kind)
    score, chance = majority_score([("", question.answer) for question in questions]), chance_of(questions)
    print(f"{kind}: chance {chance:.3f}, commonest answer {score:.3f} of {len(questions)}")
    assert len(questions) == QUESTIONS_A_KIND
    assert score <= chance + 0.15


def test_thing_named_first_is_right_as_often_as_the_other(rounds: list[tuple[Question, ...]]) -> None:
    questions = of_kind(rounds, "first")
    share = sum(question.answer == question.choices[0] for question in questions) / len(questions)
    assert share == pytest.approx(0.5, abs=0.02)


@pytest.mark.extra
@pytest.mark.parametrize("kind", ["seen", "colour", "count", "where", "when", "room"])
def test_words_of_a_question_do_not_tell_its_answer(rounds: list[tuple[Question, ...]], kind: str) -> None:
    questions = of_kind(rounds, kind)
    score = majority_score([(question.text, question.answer) for question in questions])
    chance = sum(1 / len(question.choices) for question in questions) / len(questions)
    print(f"{kind}: chance {chance:.3f}, commonest answer to the same words {score:.3f}")
    assert score <= chance + 0.15


def test_all_names_are_asked_about_with_either_answer(rounds: list[tuple[Question, ...]]) -> None:
    pairs = {(question.text, question.answer) for question in of_kind(rounds, "seen")}
    assert len(pairs) == 2 * 64


def test_answer_does_not_tell_the_next_one(rounds: list[tuple[Question, ...]]) -> None:
    """In strict turns an answer would never come twice running."""
    answers = [question.answer for question in of_kind(rounds, "seen")]
    repeated = sum(a == b for a, b in pairwise(answers)) / (len(answers) - 1)
    assert repeated == pytest.approx(0.5, abs=0.15)


def test_no_question_comes_twice_in_a_round(rounds: list[tuple[Question, ...]]) -> None:
    for asked in rounds:
        about = [frozenset(question.choices) if question.kind == "first" else question.text for question in asked]
        assert len(set(about)) == len(asked) <= 10


def test_kinds_take_turns(synthetic_sightings: MakeSightings) -> None:
    quiz = QuestionSampler(np.random.default_rng(0))
    rounds = [quiz.ask(synthetic_sightings(seed, num_frames=300, fps=5.0), 7) for seed in range(40)]
    assert all(len(asked) == 7 for asked in rounds)
    assert np.mean([len({question.kind for question in asked}) for asked in rounds]) > 6


def test_common_answers_are_left_out_where_rare_ones_are_missing(synthetic_sightings: MakeSightings) -> None:
    """On the first frame of walks almost nothing was seen: few questions, but no answer too common."""
    quiz, asked = QuestionSampler(np.random.default_rng(1)), []
    for seed in range(300):
        asked += quiz.ask(until(synthetic_sightings(seed, num_frames=16), 1), 20)
    for kind in ("seen", "count"):
        questions = [question for question in asked if question.kind == kind]
        counts, allowed = (
            Counter(balanced_answer(question) for question in questions),
            4 + EXCESS_SHARE * len(questions),
        )
        assert max(counts.values()) <= chance_of(questions) * len(questions) + allowed
    assert len(asked) < 300 * 20


def test_same_seed_asks_the_same_and_another_does_not(synthetic_sightings: MakeSightings) -> None:
    walks = [synthetic_sightings(seed) for seed in range(10)]

    def ask(seed: int) -> list[tuple[Question, ...]]:
        quiz = QuestionSampler(np.random.default_rng(seed))
        return [quiz.ask(walk, 10) for walk in walks]

    assert ask(0) == ask(0)
    assert ask(0) != ask(1)


def test_a_quiz_asks_only_candidates_and_as_many_as_it_is_told(synthetic_sightings: MakeSightings) -> None:
    for seed in range(10):
        walk = synthetic_sightings(seed, num_frames=150, fps=5.0)
        asked = QuestionSampler(np.random.default_rng(seed)).ask(walk, 7)
        known = candidates(walk, np.random.default_rng(seed))
        assert len(asked) == 7
        assert all(question in known[question.kind] for question in asked)
        assert QuestionSampler(np.random.default_rng(seed)).ask(walk, 0) == ()


def test_negative_number_of_questions_is_refused(synthetic_sightings: MakeSightings) -> None:
    with pytest.raises(SettingError, match="Expected 0 questions or more for a walk, but got -1"):
        QuestionSampler(np.random.default_rng(0)).ask(synthetic_sightings(0), -1)
