"""Questions and answers beside a take, as they are written and with what may be left out."""

import json
from pathlib import Path

import pytest

from longtake.errors import InputError
from longtake.takes.questions import GivenAnswer, TrueAnswer, read_given_answers, read_true_answers
from longtake.world.question import Question, QuestionKind


def test_question_of_the_world_reads_as_what_is_true(tmp_path: Path) -> None:
    asked = Question(
        kind=QuestionKind.SEEN,
        text="have you seen a red box ?",
        answer="yes",
        choices=("yes", "no"),
        frame=9,
        timestamp_s=0.9,
        evidence=(4,),
    )
    (tmp_path / "questions.json").write_text(json.dumps([asked.to_json()]))
    assert read_true_answers(tmp_path) == [
        TrueAnswer(
            kind="seen", question=asked.text, frame=9, answer="yes", choices=asked.choices, evidence=asked.evidence
        )
    ]


def test_what_may_be_left_out_may_also_be_null(tmp_path: Path) -> None:
    question = {"kind": "free", "text": "what?", "answer": "that", "frame": 0}
    (tmp_path / "questions.json").write_text(json.dumps([question, question | {"choices": None, "evidence": None}]))
    expected = TrueAnswer(kind="free", question="what?", frame=0, answer="that")
    assert read_true_answers(tmp_path) == [expected, expected]
    answer = {"question": "what?", "frame": 0}
    (tmp_path / "answers.json").write_text(json.dumps([answer, answer | {"answer": None, "span": None}]))
    silent = GivenAnswer(question="what?", frame=0)
    assert read_given_answers(tmp_path) == [silent, silent]


def test_span_is_two_frames_in_order(tmp_path: Path) -> None:
    for span in ([3, 3], [0, 9]):
        (tmp_path / "answers.json").write_text(json.dumps([{"question": "?", "frame": 9, "answer": "", "span": span}]))
        assert read_given_answers(tmp_path) == [GivenAnswer(question="?", frame=9, answer="", span=(span[0], span[1]))]
    for bad in ([4], [1, 2, 3], [2, 1], [-1, 2], ["0", "1"], 4):
        (tmp_path / "answers.json").write_text(json.dumps([{"question": "?", "frame": 9, "span": bad}]))
        with pytest.raises(InputError, match=r"as 'span' in entry 1 of .*answers\.json"):
            read_given_answers(tmp_path)


def test_nothing_asked_and_nothing_answered_is_none(tmp_path: Path) -> None:
    assert read_true_answers(tmp_path) is None
    assert read_given_answers(tmp_path) is None
