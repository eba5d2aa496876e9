"""What was asked about a take and what was answered: `questions.json` and `answers.json`."""

from dataclasses import dataclass
from pathlib import Path

from longtake.takes.fields import JsonObject, read_objects
from longtake.takes.header import ANSWERS_NAME, QUESTIONS_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueAnswer:
    """A question with its true answer, a line of `questions.json`."""

    kind: str
    question: str
    frame: int
    """Index of the newest frame when it is asked."""
    answer: str
    choices: tuple[str, ...] = ()
    evidence: tuple[int, ...] = ()
    """Indices of frames that justify the answer."""

    @classmethod
    def from_json(cls, record: JsonObject) -> "TrueAnswer":
        return cls(
            kind=record.text("kind"),
            question=record.text("text"),
            frame=record.integer("frame"),
            answer=record.text("answer"),
            choices=record.optional("choices", record.texts) or (),
            evidence=record.optional("evidence", record.integers) or (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenAnswer:
    """A question with the answer that was given, a line of `answers.json`."""

    question: str
    frame: int
    answer: str | None = None
    span: tuple[int, int] | None = None
    """Indices of the first and the last frame that the answer points at."""

    @classmethod
    def from_json(cls, record: JsonObject) -> "GivenAnswer":
        return cls(
            question=record.text("question"),
            frame=record.integer("frame"),
            answer=record.optional("answer", record.text),
            span=record.optional("span", lambda name: _span(record, name)),
        )


def _span(record: JsonObject, name: str) -> tuple[int, int]:
    frames = record.integers(name)
    if len(frames) != 2 or frames[0] > frames[1]:
        raise record.refuse(name, "the first and the last frame")
    return frames[0], frames[1]


def read_true_answers(folder: Path) -> list[TrueAnswer] | None:
    """Questions about a take with their true answers, None where the take has none."""
    records = read_objects(folder / QUESTIONS_NAME)
    return None if records is None else [TrueAnswer.from_json(record) for record in records]


def read_given_answers(folder: Path) -> list[GivenAnswer] | None:
    """Answers that were given to them, None where the take has none."""
    records = read_objects(folder / ANSWERS_NAME)
    return None if records is None else [GivenAnswer.from_json(record) for record in records]
