"""The slow twin answers by the words and by the line between seen and not."""

import numpy as np
import pytest
from slow_answers import answer_of

from longtake.world.question import Question, QuestionKind
from longtake.world.things import Colour, Kind, Sightings, Thing

BALL, CHAIR, OTHER_CHAIR = (
    Thing(Colour.RED, Kind.BALL, 0),
    Thing(Colour.BLUE, Kind.CHAIR, 1),
    Thing(Colour.WHITE, Kind.CHAIR, 1),
)
WALK = Sightings(
    things=(BALL, CHAIR, OTHER_CHAIR),
    rooms=(Colour.GREEN, Colour.CYAN),
    timestamp_s=np.array([0.0, 1.0, 2.0, 3.0]),
    room=np.array([0, 0, 1, 1]),
    pixels=np.array([[9, 0, 0], [2, 5, 0], [0, 9, 3], [0, 9, 0]]),
    column=np.array([[0.5, np.nan, np.nan], [0.1, 0.9, np.nan], [np.nan, 0.2, 0.1], [np.nan, 0.4, np.nan]]),
    image_pixels=1000,
)


@pytest.mark.parametrize(
    ("kind", "text", "strict", "generous"),
    [
        ("seen", "have you seen a red ball ?", "yes", "yes"),
        ("seen", "have you seen a white chair ?", "no", "yes"),
        ("seen", "have you seen a red box ?", "no", "no"),
        ("colour", "what colour was the chair ?", "blue", None),
        ("colour", "what colour was the lamp ?", None, None),
        ("count", "how many chairs have you seen ?", "1", "2"),
        ("count", "how many boxes have you seen ?", "0", "0"),
        ("first", "which came first , the blue chair or the red ball ?", "red ball", "red ball"),
        ("first", "which came first , the white chair or the blue chair ?", None, "blue chair"),
        ("where", "where is the blue chair now ?", "centre", "centre"),
        ("where", "where is the red ball now ?", None, None),
        ("when", "how many seconds ago was the red ball last seen ?", "3", "2"),
        ("when", "how many seconds ago was the white chair last seen ?", None, "1"),
        ("room", "which room is the blue chair in ?", "cyan", "cyan"),
        ("room", "which room is the white chair in ?", None, "cyan"),
        ("room", "which room are you in now ?", "cyan", "cyan"),
    ],
)
def test_answers_by_hand(kind: str, text: str, strict: str | None, generous: str | None) -> None:
    question = Question(
        kind=QuestionKind(kind), text=text, answer="", choices=(), frame=3, timestamp_s=3.0, evidence=()
    )
    assert answer_of(question, WALK, 5) == strict
    assert answer_of(question, WALK, 1) == generous


def test_only_frames_up_to_the_question_count() -> None:
    question = Question(
        kind=QuestionKind.WHERE,
        text="where is the blue chair now ?",
        answer="right",
        choices=(),
        frame=1,
        timestamp_s=1.0,
        evidence=(1,),
    )
    assert answer_of(question, WALK, 5) == "right"
    assert answer_of(question, WALK, 6) is None
