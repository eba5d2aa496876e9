"""Questions asked while a video was mapped: answers against the truth, and whether they attended to the evidence."""

import json
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from longtake.takes.atomic_files import replace_file
from longtake.takes.fields import JsonObject

ASKED_NAME = "asked.json"
_MOST_ROWS = 200
_WIDTH, _HEIGHT = 240, 14
_NARROWEST = 3.0
"""Of a span, so that it is seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedQuestion:
    """A question at a moment of the video, what was answered and what is true."""

    time_s: float
    """Of the newest frame when it was asked."""
    kind: str
    question: str
    answer: str
    truth: str
    is_right: bool
    looked_s: tuple[float, float] | None
    """First and last frame of the span that the answer looked at most; None where it looked at none."""
    moments_s: tuple[float, ...]
    """Frames of which any justifies the truth; none where there is nothing to see."""
    met_by_chance: float
    """How likely a span as long would hold such a frame, put anywhere."""

    @property
    def has_moment(self) -> bool:
        return bool(self.moments_s)

    @property
    def met(self) -> bool:
        """Whether the span holds a frame that justifies the truth."""
        span = self.looked_s
        return span is not None and any(span[0] <= moment_s <= span[1] for moment_s in self.moments_s)

    @classmethod
    def parse(cls, row: JsonObject) -> "AskedQuestion":
        span = row.optional("looked_s", lambda name: row.numbers(name, 2))
        return cls(
            time_s=row.number("time_s"),
            kind=row.text("kind"),
            question=row.text("question"),
            answer=row.text("answer"),
            truth=row.text("truth"),
            is_right=row.boolean("is_right"),
            looked_s=None if span is None else (span[0], span[1]),
            moments_s=tuple(moment.number("time_s") for moment in row.objects("moments")),
            met_by_chance=row.number("met_by_chance"),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "time_s": self.time_s,
            "kind": self.kind,
            "question": self.question,
            "answer": self.answer,
            "truth": self.truth,
            "is_right": self.is_right,
            "looked_s": self.looked_s,
            "moments": [{"time_s": moment_s} for moment_s in self.moments_s],
            "met_by_chance": self.met_by_chance,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """All questions in their order, and a sentence on who answered them."""

    about: str
    questions: tuple[AskedQuestion, ...]

    @property
    def num_right(self) -> int:
        return sum(question.is_right for question in self.questions)

    @property
    def num_evident(self) -> int:
        """Questions whose answer some frames justify."""
        return sum(question.has_moment for question in self.questions)

    @property
    def num_met(self) -> int:
        return sum(question.met for question in self.questions)

    @property
    def num_by_chance(self) -> float:
        """As many would be met by spans as long, put anywhere."""
        return sum(question.met_by_chance for question in self.questions)

    @classmethod
    def parse(cls, text: bytes, where: str) -> "Asked":
        record = JsonObject.parse(text, where)
        questions = tuple(AskedQuestion.parse(row) for row in record.objects("questions"))
        return cls(about=record.text("about"), questions=questions)

    def write(self, path: Path) -> None:
        record = {"about": self.about, "questions": [question.to_json() for question in self.questions]}
        replace_file(path, json.dumps(record, indent=1).encode())


def asked_section(asked: Asked | None) -> str:
    """A table of the questions; nothing where none was asked."""
    if asked is None or not asked.questions:
        return ""
    more = len(asked.questions) - _MOST_ROWS
    rest = f'<p class="hint">And {more:,} more; {ASKED_NAME} has them all.</p>' if more > 0 else ""
    rows = "".join(_row(question) for question in asked.questions[:_MOST_ROWS])
    return (
        '<section aria-labelledby="asked-heading"><h2 id="asked-heading">Asked on the way</h2>'
        f'<p>{_summary(asked)}</p><p class="hint">{escape(asked.about)}</p>'
        '<div class="wide"><table class="asked"><thead><tr><th scope="col">at</th><th scope="col">question</th>'
        '<th scope="col">answer</th><th scope="col">truth</th><th scope="col">looked at most</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{rest}</section>"
    )


def _summary(asked: Asked) -> str:
    right = f"{asked.num_right} of {len(asked.questions)} answers are right"
    if not asked.num_evident:
        return f"{right}."
    return (
        f"{right}; of {asked.num_evident} that frames justify, {asked.num_met} looked most at a span that holds such a "
        f"frame, {asked.num_by_chance:.1f} would by chance."
    )


def _row(question: AskedQuestion) -> str:
    verdict = "right" if question.is_right else "wrong"
    written = re.sub(r" (?=[?,])", "", question.question)
    return (
        f'<tr><td>{question.time_s:.1f} s</td><th scope="row">{escape(written)}</th>'
        f'<td class="{verdict}">{escape(question.answer) or "nothing"} <small>{verdict}</small></td>'
        f"<td>{escape(question.truth)}</td><td>{_looked(question)}</td></tr>"
    )


def _looked(question: AskedQuestion) -> str:
    if question.looked_s is None:
        return "nothing"
    words = f"{question.looked_s[0]:.1f} to {question.looked_s[1]:.1f} s"
    if question.has_moment:
        words += ", which holds the true moment" if question.met else ", not the true moment"
    return f'{_bar(question, words)}<span class="hint">{words}</span>'


def _bar(question: AskedQuestion, words: str) -> str:
    """The video up to the question: the span, and a line for each true moment."""
    assert question.looked_s is not None
    start, stop = (_across(time_s, question.time_s) for time_s in question.looked_s)
    verdict = "met" if question.met else "missed"
    span = (
        f'<rect class="span {verdict}" x="{start:.1f}" width="{max(stop - start, _NARROWEST):.1f}" height="{_HEIGHT}"/>'
    )
    moments = "".join(
        f'<path class="moment" d="M{_across(moment_s, question.time_s):.1f} 0V{_HEIGHT}"/>'
        for moment_s in question.moments_s
    )
    return (
        f'<svg class="looked" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{words}">{span}{moments}</svg>'
    )


def _across(time_s: float, end_s: float) -> float:
    share = time_s / end_s if end_s > 0 else 0.0
    return min(max(share, 0.0), 1.0) * (_WIDTH - _NARROWEST)
