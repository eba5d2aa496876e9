"""Answers against the truth: how many are right, by kind, beside what guessing reaches; and whether evidence was met.

An answer is right if it equals the truth but for case, punctuation and articles; seconds if they are within 2 s of it.
"""

import math
import operator
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

from longtake.errors import InputError
from longtake.world.question import QuestionKind

TOLERANCE_S = 2.0
_NUMBER = r"(?<![\w.])-?\d+(?:\.\d+)?"
_ARTICLES = {"a", "an", "the"}
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedAnswer:
    """One question and what came back."""

    kind: str
    """`when` asks for seconds; any other name is free."""
    truth: str
    given: str | None
    """None where no answer came."""
    choices: tuple[str, ...] = ()
    """All answers the question could have; none where it is open."""
    evidence: tuple[int, ...] = ()
    """Frames that justify the truth; none where there is nothing to see."""
    span: tuple[int, int] | None = None
    """First and last frame that the answer points at."""

    def __post_init__(self) -> None:
        if not normalise(self.truth):
            raise InputError(f"A question of kind '{self.kind}' has '{self.truth}' as its true answer; give it a word.")
        if self._is_timed and seconds_in(self.truth) is None:
            raise InputError(f"Expected seconds as the true answer of a '{self.kind}' question, not '{self.truth}'.")
        if self.choices and not any(map(self.accepts, self.choices)):
            raise InputError(
                f"Expected the true answer of a '{self.kind}' question, '{self.truth}', among its choices, "
                f"but they are {', '.join(self.choices)}."
            )
        if self.span is not None and not 0 <= self.span[0] <= self.span[1]:
            raise InputError(
                f"Expected a span of frames from 0 on, first to last, but a '{self.kind}' answer points at "
                f"{self.span[0]} to {self.span[1]}."
            )

    @property
    def _is_timed(self) -> bool:
        return self.kind == QuestionKind.WHEN

    @property
    def is_right(self) -> bool:
        return self.given is not None and self.accepts(self.given)

    @property
    def meets_evidence(self) -> bool:
        """Whether a frame that justifies the truth is within the span."""
        return self.span is not None and any(self.span[0] <= frame <= self.span[1] for frame in self.evidence)

    @property
    def chance(self) -> float:
        """How likely a choice drawn evenly is right; 0 for an open question."""
        return sum(map(self.accepts, self.choices)) / len(self.choices) if self.choices else 0.0

    def accepts(self, answer: str) -> bool:
        """Whether this would be right."""
        return are_near(answer, self.truth) if self._is_timed else normalise(answer) == normalise(self.truth)


@dataclass(frozen=True, slots=True)
class Share:
    """How many of some, and the Wilson interval that holds the true share with 95 % confidence."""

    hits: int
    total: int

    def __str__(self) -> str:
        return f"{self.hits} of {self.total}"

    @property
    def value(self) -> float:
        return self.hits / self.total

    @property
    def interval(self) -> tuple[float, float]:
        """Exact to 0 and 1 where none or all are hits."""
        z = NormalDist().inv_cdf((1 + _CONFIDENCE) / 2)
        spread = z * math.sqrt(self.value * (1 - self.value) / self.total + (z / self.total) ** 2 / 4)
        middle, widened = self.value + z * z / (2 * self.total), 1 + z * z / self.total
        low = (middle - spread) / widened if self.hits else 0.0
        high = (middle + spread) / widened if self.hits < self.total else 1.0
        return low, high


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceScore:
    """How often the span an answer points at holds a frame that justifies the truth."""

    met: Share
    """Of the questions that have evidence; an answer without a span meets none."""
    num_without_span: int
    mean_span_frames: float | None
    """How long spans are: one over the whole video meets everything. None where there is no span."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerScore:
    """How some questions were answered, and what a guess would reach."""

    right: Share
    """A question without an answer counts as wrong."""
    num_unanswered: int
    commonest: float
    """Share right if each kind's one best answer were always given."""
    chance: float | None
    """Share right if a choice were drawn evenly, open questions wrong; none where all are open."""
    evidence: EvidenceScore | None
    """None where no question has evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReport:
    """All questions, and those of each kind by the kind's name, sorted."""

    total: AnswerScore
    by_kind: Mapping[str, AnswerScore]


def measure_answers(answers: Sequence[AskedAnswer]) -> AnswerReport:
    """How the questions were answered, one at least."""
    if not answers:
        raise InputError("Expected one answer or more to measure, but none came.")
    kinds = sorted({answer.kind for answer in answers})
    by_kind = {kind: _score([answer for answer in answers if answer.kind == kind]) for kind in kinds}
    return AnswerReport(total=_score(answers), by_kind=by_kind)


def normalise(answer: str) -> str:
    """Words and numbers alone, in lower case; without articles, unless there is nothing else."""
    words = re.findall(rf"{_NUMBER}|\d+|[^\W\d_][^\W_]*", answer.casefold())
    return " ".join([word for word in words if word not in _ARTICLES] or words)


def seconds_in(answer: str) -> float | None:
    """The number in an answer; none where there is not exactly one."""
    numbers = re.findall(_NUMBER, answer)
    return float(numbers[0]) if len(numbers) == 1 else None


def are_near(answer: str, truth: str) -> bool:
    """Whether both hold seconds, at most 2 s apart."""
    given_s, true_s = seconds_in(answer), seconds_in(truth)
    return given_s is not None and true_s is not None and abs(given_s - true_s) <= TOLERANCE_S


def _score(answers: Sequence[AskedAnswer]) -> AnswerScore:
    evident = [answer for answer in answers if answer.evidence]
    return AnswerScore(
        right=Share(sum(answer.is_right for answer in answers), len(answers)),
        num_unanswered=sum(answer.given is None for answer in answers),
        commonest=_right_by_commonest(answers) / len(answers),
        chance=fmean([answer.chance for answer in answers]) if any(answer.choices for answer in answers) else None,
        evidence=_score_evidence(evident) if evident else None,
    )


def _score_evidence(answers: Sequence[AskedAnswer]) -> EvidenceScore:
    spans = [answer.span for answer in answers if answer.span is not None]
    return EvidenceScore(
        met=Share(sum(answer.meets_evidence for answer in answers), len(answers)),
        num_without_span=len(answers) - len(spans),
        mean_span_frames=fmean([last - first + 1 for first, last in spans]) if spans else None,
    )


def _right_by_commonest(answers: Sequence[AskedAnswer]) -> int:
    """How many are right if each kind has a single answer, a true one of it, that makes most right."""
    truths_s = [seconds_in(answer.truth) for answer in answers if answer.kind == QuestionKind.WHEN]
    times_s = sorted(time_s for time_s in truths_s if time_s is not None)
    starts = [bisect_left(times_s, time_s - TOLERANCE_S) for time_s in times_s]
    stops = [bisect_right(times_s, time_s + TOLERANCE_S) for time_s in times_s]
    most: dict[str, int] = {QuestionKind.WHEN: max(map(operator.sub, stops, starts), default=0)}
    worded = Counter((answer.kind, normalise(answer.truth)) for answer in answers if answer.kind != QuestionKind.WHEN)
    for (kind, _), count in worded.items():
        most[kind] = max(count, most.get(kind, 0))
    return sum(most.values())
