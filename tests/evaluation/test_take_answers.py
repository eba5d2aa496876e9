"""Answers beside their questions: matched by words and frame, and every file that cannot be."""

import json
from pathlib import Path
from typing import Any

import pytest

from longtake.errors import InputError
from longtake.evaluation.report import evaluate
from longtake.evaluation.settings import EvalSettings, Part
from longtake.evaluation.take_answers import measure_take_answers

QUESTIONS = [
    {
        "kind": "seen",
        "text": "have you seen a red box ?",
        "answer": "yes",
        "choices": ["yes", "no"],
        "frame": 9,
        "timestamp_s": 0.9,
        "evidence": [4],
    },
    {"kind": "seen", "text": "have you seen a red box ?", "answer": "no", "choices": ["yes", "no"], "frame": 2},
    {"kind": "when", "text": "how many seconds ago ?", "answer": "7", "frame": 9, "evidence": [1]},
    {"kind": "free", "text": "What is on the table?", "answer": "a blue cup", "frame": 5},
]


def write(folder: Path, name: str, content: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


@pytest.fixture
def truth(tmp_path: Path) -> Path:
    return write(tmp_path / "truth", "questions.json", QUESTIONS)


def answers(tmp_path: Path, content: Any) -> Path:
    return write(tmp_path / "result", "answers.json", content)


def test_answers_are_matched_by_words_and_frame(tmp_path: Path, truth: Path) -> None:
    given = [
        {"question": "have you seen a red box ?", "frame": 2, "answer": "no", "span": None},
        {"question": "have you seen a red box ?", "frame": 9, "answer": "Yes.", "span": [3, 5]},
        {"question": "how many seconds ago ?", "frame": 9, "answer": "about 8.5 s", "span": [2, 3]},
    ]
    found = measure_take_answers(answers(tmp_path, given), truth)
    assert (found.scores.total.right.hits, found.scores.total.right.total) == (3, 4)
    assert found.scores.total.num_unanswered == 1
    assert found.scores.by_kind["seen"].right.value == 1
    assert found.scores.by_kind["free"].right.value == 0
    evidence = found.scores.total.evidence
    assert evidence is not None
    assert (evidence.met.hits, evidence.met.total) == (1, 2)
    assert found.num_unasked == 0


def test_answers_to_no_question_do_not_count_but_are_told(tmp_path: Path, truth: Path) -> None:
    given = [
        {"question": "What is on the table?", "frame": 5, "answer": "the Blue cup"},
        {"question": "What is on the table?", "frame": 6, "answer": "nothing"},
    ]
    report = evaluate(answers(tmp_path, given), truth, EvalSettings(only=(Part.ANSWERS,)))
    assert report.answers is not None
    assert report.answers.scores.by_kind["free"].right.value == 1
    assert report.notes == ("Of the answers, 1 belong to no question and do not count.",)
    assert report.matched is None


def test_silence_is_wrong(tmp_path: Path, truth: Path) -> None:
    found = measure_take_answers(answers(tmp_path, []), truth)
    assert found.scores.total.right.hits == 0
    assert found.scores.total.num_unanswered == 4
    null = [{"question": "What is on the table?", "frame": 5, "answer": None}]
    assert measure_take_answers(answers(tmp_path, null), truth).scores.total.num_unanswered == 4


ONE = {"question": "What is on the table?", "frame": 5, "answer": "a cup"}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([ONE, ONE], r"has two to 'What is on the table\?' at frame 5; leave one out"),
        ([ONE | {"frame": 4}], "none in .* has the words and the frame of one"),
        ([ONE | {"span": [5]}], "the first and the last frame as 'span' in entry 1 of"),
        ([ONE | {"span": [5, 4]}], "the first and the last frame as 'span'"),
        ([ONE | {"span": [-1, 4]}], "whole numbers from 0 as 'span'"),
        ([ONE | {"answer": 7}], "a text as 'answer'"),
        ([{"question": "?"}], "a whole number from 0 as 'frame' in entry 1"),
        ({"answers": []}, "JSON list of objects"),
        ("[", "cannot be read"),
    ],
)
def test_bad_answers_are_one_sentence(tmp_path: Path, truth: Path, content: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        measure_take_answers(answers(tmp_path, content), truth)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([], "has no questions in questions.json"),
        ([QUESTIONS[0] | {"choices": ["no", "perhaps"]}], r"questions\.json: Expected the true answer .* among"),
        ([QUESTIONS[0] | {"choices": "yes"}], "a list of texts as 'choices'"),
        ([QUESTIONS[2] | {"answer": "soon"}], r"questions\.json: Expected seconds"),
    ],
)
def test_bad_questions_are_one_sentence(tmp_path: Path, content: Any, sentence: str) -> None:
    truth = write(tmp_path / "truth", "questions.json", content)
    with pytest.raises(InputError, match=sentence):
        measure_take_answers(answers(tmp_path, []), truth)


def test_sides_without_questions_or_answers_are_told(tmp_path: Path, truth: Path) -> None:
    with pytest.raises(InputError, match=r"no answers\.json; write the answers there"):
        measure_take_answers(tmp_path, truth)
    with pytest.raises(InputError, match=r"has no questions in questions\.json"):
        measure_take_answers(answers(tmp_path, [ONE]), truth / "questions.json")
