"""A question about a walk, with its answer and the frames that justify it, in words of a small closed vocabulary."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from longtake.errors import InputError
from longtake.world.things import Colour, Kind

NUMBERS = tuple(str(number) for number in range(21))
SIDES = ("left", "centre", "right")
NAMES = tuple(f"{colour} {kind}" for colour in Colour for kind in Kind)
"""Every name a thing can have."""
PLURALS = {kind: f"{kind}s" for kind in Kind} | {Kind.BOX: "boxes", Kind.SHELF: "shelves"}


class QuestionKind(StrEnum):
    """What is asked for, and which frames are the evidence."""

    SEEN = "seen"
    """yes or no: the frame that shows the thing largest, or none for no."""
    COLOUR = "colour"
    """A colour: the frame that shows the thing largest."""
    COUNT = "count"
    """A number: the first clear frame of each thing that counts, none for 0."""
    FIRST = "first"
    """The name of one of two things: the first clear frame of both; the earlier, which comes first, decides."""
    WHERE = "where"
    """left, centre or right: the newest frame."""
    WHEN = "when"
    """Whole seconds: the last clear frame."""
    ROOM = "room"
    """The colour of a room: the frame in that room that shows the thing largest, or the newest for your own room."""


class Phrase(StrEnum):
    """Every way of asking; words and signs stand apart."""

    SEEN = "have you seen {article} {name} ?"
    COLOUR = "what colour was the {kind} ?"
    COUNT = "how many {kinds} have you seen ?"
    FIRST = "which came first , the {former} or the {latter} ?"
    WHERE = "where is the {name} now ?"
    WHEN = "how many seconds ago was the {name} last seen ?"
    ROOM_OF_THING = "which room is the {name} in ?"
    ROOM_NOW = "which room are you in now ?"


def article(name: str) -> str:
    """The article before a name."""
    return "an" if name[0] in "aeiou" else "a"


def vocabulary() -> tuple[str, ...]:
    """All words of all questions and answers, sorted."""
    asked = {word for phrase in Phrase for word in phrase.split() if not word.startswith("{")}
    named = {article(name) for name in NAMES} | {*map(str, Colour), *map(str, Kind), *PLURALS.values()}
    return tuple(sorted(asked | named | {"yes", "no", *SIDES, *NUMBERS}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question that has one answer at the newest frame of a walk."""

    kind: QuestionKind
    text: str
    answer: str
    choices: tuple[str, ...]
    """All answers this question could have; for two things in the order they are named."""
    frame: int
    """Index of the newest frame when it is asked."""
    timestamp_s: float
    evidence: tuple[int, ...]
    """Frames that together justify the answer, in order; none where nothing was there to see."""

    @property
    def moments(self) -> tuple[int, ...]:
        """Frames each of which shows why: all evidence, but of two things only the one that came first."""
        return self.evidence[:1] if self.kind is QuestionKind.FIRST else self.evidence

    def to_json(self) -> dict[str, Any]:
        """The question in plain JSON types."""
        return {
            "kind": str(self.kind),
            "text": self.text,
            "answer": self.answer,
            "choices": list(self.choices),
            "frame": self.frame,
            "timestamp_s": self.timestamp_s,
            "evidence": list(self.evidence),
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Question":
        """The question that `to_json` wrote."""
        _require_names(fields)
        _require(fields, "kind", f"one of {', '.join(QuestionKind)}", fields["kind"] in list(QuestionKind))
        _require(fields, "text", "words of the vocabulary", _is_text(fields["text"]))
        _require(fields, "choices", "a list of words", _is_list(fields["choices"], str))
        _require(fields, "answer", "one of the choices", fields["answer"] in fields["choices"])
        _require(fields, "frame", "an index of 0 or more", type(fields["frame"]) is int and fields["frame"] >= 0)
        _require(fields, "timestamp_s", "a number of seconds", _is_time(fields["timestamp_s"]))
        within = _is_list(fields["evidence"], int) and all(
            0 <= index <= fields["frame"] for index in fields["evidence"]
        )
        _require(fields, "evidence", f"a list of frames from 0 to {fields['frame']}", within)
        return cls(
            kind=QuestionKind(fields["kind"]),
            text=fields["text"],
            answer=fields["answer"],
            choices=tuple(fields["choices"]),
            frame=fields["frame"],
            timestamp_s=float(fields["timestamp_s"]),
            evidence=tuple(fields["evidence"]),
        )


def _require_names(fields: Mapping[str, Any]) -> None:
    names = [*Question.__dataclass_fields__]
    if set(fields) != set(names):
        raise InputError(
            f"Expected a question with {', '.join(names)}, but got {', '.join(map(str, fields)) or 'nothing'}; "
            "write the questions again."
        )


def _require(fields: Mapping[str, Any], name: str, expected: str, holds: bool) -> None:
    if not holds:
        raise InputError(
            f"Expected {expected} as a question's {name}, but got {fields[name]!r}; write the questions again."
        )


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and set(value.split(" ")) <= set(vocabulary())


def _is_list(value: Any, of: type) -> bool:
    return isinstance(value, list) and all(type(entry) is of for entry in value)


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
