"""Questions keep to their vocabulary and survive a file."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from longtake.errors import InputError
from longtake.world.question import PLURALS, Phrase, Question, QuestionKind, article, vocabulary
from longtake.world.question_candidates import candidates
from longtake.world.things import Kind, Sightings

QUESTION = Question(
    kind=QuestionKind.FIRST,
    text="which came first , the red ball or the blue chair ?",
    answer="blue chair",
    choices=("red ball", "blue chair"),
    frame=12,
    timestamp_s=1.5,
    evidence=(3, 9),
)


def test_question_reads_as_it_was_written() -> None:
    assert Question.from_json(json.loads(json.dumps(QUESTION.to_json()))) == QUESTION


def test_whole_seconds_from_a_file_are_as_good_as_others() -> None:
    assert Question.from_json(QUESTION.to_json() | {"timestamp_s": 2}).timestamp_s == 2.0


@pytest.mark.parametrize("kind", list(QuestionKind))
def test_every_frame_of_evidence_shows_why_but_of_two_things_only_the_first(kind: QuestionKind) -> None:
    assert replace(QUESTION, kind=kind).moments == ((3,) if kind is QuestionKind.FIRST else (3, 9))
    assert replace(QUESTION, kind=kind, evidence=()).moments == ()


def test_questions_are_made_of_the_vocabulary_and_use_all_of_it(
    synthetic_sightings: Callable[..., Sightings],
) -> None:
    used: set[str] = set()
    for seed in range(60):
        by_kind = candidates(synthetic_sightings(seed), np.random.default_rng(seed))
        for question in (question for questions in by_kind.values() for question in questions):
            used |= {*question.text.split(" "), *" ".join(question.choices).split(" ")}
    words = vocabulary()
    assert list(words) == sorted(used)
    assert all(word == word.lower() and word.strip() for word in words)


def test_words_are_english() -> None:
    assert [article(name) for name in ("orange box", "red box")] == ["an", "a"]
    assert PLURALS[Kind.BOX] == "boxes"
    assert PLURALS[Kind.SHELF] == "shelves"
    assert PLURALS[Kind.LAMP] == "lamps"
    assert set(PLURALS) == set(Kind)
    assert all(phrase.endswith(" ?") for phrase in Phrase)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("kind", "why", "one of seen, colour, count, first, where, when, room"),
        ("kind", ["seen"], "one of seen"),
        ("text", "which came first , the red dragon or the blue chair ?", "words of the vocabulary"),
        ("text", "", "words of the vocabulary"),
        ("text", 3, "words of the vocabulary"),
        ("choices", "red ball", "a list of words"),
        ("choices", [1, 2], "a list of words"),
        ("choices", ["red ball"], "one of the choices as a question's answer, but got 'blue chair'"),
        ("answer", None, "one of the choices"),
        ("frame", -1, "an index of 0 or more"),
        ("frame", 1.0, "an index of 0 or more"),
        ("frame", True, "an index of 0 or more"),
        ("timestamp_s", "1.5", "a number of seconds"),
        ("timestamp_s", float("nan"), "a number of seconds"),
        ("timestamp_s", False, "a number of seconds"),
        ("evidence", 3, "a list of frames from 0 to 12"),
        ("evidence", [3.0], "a list of frames from 0 to 12"),
        ("evidence", [13], "a list of frames from 0 to 12"),
        ("evidence", [-1, 3], "a list of frames from 0 to 12"),
    ],
)
def test_damaged_questions_are_refused_by_field(field: str, value: Any, expected: str) -> None:
    with pytest.raises(InputError, match=f"^Expected {expected}.*; write the questions again.$"):
        Question.from_json(QUESTION.to_json() | {field: value})


def test_missing_and_unknown_fields_are_refused() -> None:
    whole = QUESTION.to_json()
    for fields in ({}, whole | {"hint": "no"}, {name: whole[name] for name in whole if name != "evidence"}):
        with pytest.raises(InputError, match="Expected a question with kind, text, answer, choices, frame"):
            Question.from_json(fields)
