"""Answers about a take against what is true of it, matched by the question's words and the frame it was asked at."""

from dataclasses import dataclass
from pathlib import Path

from longtake.errors import InputError
from longtake.evaluation.answers import AnswerReport, AskedAnswer, measure_answers
from longtake.takes.header import ANSWERS_NAME, QUESTIONS_NAME
from longtake.takes.questions import GivenAnswer, TrueAnswer, read_given_answers, read_true_answers


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeAnswers:
    """How the questions about a take were answered."""

    scores: AnswerReport
    num_unasked: int
    """Answers that belong to no question, which do not count."""


def measure_take_answers(result: Path, truth: Path) -> TakeAnswers:
    """The result's answers to the truth's questions; a question that has none is wrong."""
    questions = read_true_answers(truth)
    if not questions:
        raise InputError(f"The truth {truth} has no questions in {QUESTIONS_NAME}; name a take that was asked about.")
    answers = read_given_answers(result)
    if answers is None:
        raise InputError(f"The result {result} has no {ANSWERS_NAME}; write the answers there.")
    given = _by_question(answers, result)
    asked = {(question.question, question.frame) for question in questions}
    num_unasked = len(given.keys() - asked)
    if given and num_unasked == len(given):
        raise InputError(
            f"Expected answers to the questions of {truth}, but none in {result / ANSWERS_NAME} has the words and the "
            "frame of one."
        )
    joined = [_join(question, given.get((question.question, question.frame)), truth) for question in questions]
    return TakeAnswers(scores=measure_answers(joined), num_unasked=num_unasked)


def _by_question(answers: list[GivenAnswer], result: Path) -> dict[tuple[str, int], GivenAnswer]:
    given: dict[tuple[str, int], GivenAnswer] = {}
    for answer in answers:
        key = answer.question, answer.frame
        if key in given:
            raise InputError(
                f"Expected one answer to a question, but {result / ANSWERS_NAME} has two to '{answer.question}' at "
                f"frame {answer.frame}; leave one out."
            )
        given[key] = answer
    return given


def _join(question: TrueAnswer, given: GivenAnswer | None, truth: Path) -> AskedAnswer:
    try:
        return AskedAnswer(
            kind=question.kind,
            truth=question.answer,
            given=None if given is None else given.answer,
            choices=question.choices,
            evidence=question.evidence,
            span=None if given is None else given.span,
        )
    except InputError as error:
        raise InputError(f"{truth / QUESTIONS_NAME}: {error}") from error
