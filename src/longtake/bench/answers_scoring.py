"""Answers over many worlds in a few numbers: right or not, beside the commonest answer; evidence beside chance."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Float64

from longtake.bench.answers import Answers, AnswersRow, GivenAnswer
from longtake.evaluation.answers import are_near
from longtake.evaluation.asked_walk import WITHIN, PosedQuestion, Reach, is_right, met_by_chance
from longtake.world.question import Question, QuestionKind
from longtake.world.question_sampler import balanced_answer

KINDS = tuple(name for kind in QuestionKind for name in (str(kind), *[WITHIN] * (kind is QuestionKind.WHEN)))
"""Every kind; seconds ago are judged twice, exactly and roughly."""
ALL = "all"
EVIDENT_FRAMES = 16
"""Of fewer frames a span of a few is so large a part that chance alone would often be right."""
_RESAMPLES = 10_000
_TAIL = 0.025


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Of two sums over worlds; the interval is of 95 % confidence, and needs two worlds."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KindScore:
    """Questions of one kind, or all, that reach so far back, or anywhere."""

    kind: str
    reach: Reach | None
    num_questions: int
    num_worlds: int
    """Those with such a question."""
    right: Ratio
    commonest: Ratio | None
    """Share right if always answered by what was the commonest answer in houses for training.

    None where that would give the answer away: what was never seen has one answer only, and what was seen as well.
    """
    above: Ratio | None
    """How much larger the share right is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceScore:
    """How often the strongest evidence holds the moment that justifies the true answer."""

    kind: str
    num_questions: int
    """Those with such a moment."""
    met: Ratio
    chance: Ratio
    """Share met if spans as long were put anywhere in what was watched."""
    times_chance: Ratio | None
    span_frames: float
    """Mean length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRow:
    """All figures of one variant."""

    row: AnswersRow
    kinds: tuple[KindScore, ...]
    evidence: tuple[EvidenceScore, ...]

    def reaching(self, reach: Reach | None) -> dict[str, KindScore]:
        """Those of one reach, or of all questions, by kind."""
        return {score.kind: score for score in self.kinds if score.reach is reach}


def score_rows(answers: Answers, *, least_frames: int = EVIDENT_FRAMES) -> list[ScoredRow]:
    """Every variant; evidence of questions asked when so many frames at least were seen."""
    return [
        ScoredRow(
            row=row,
            kinds=tuple(scores(row, answers.training)),
            evidence=tuple(evidence_scores(row, least_frames=least_frames)),
        )
        for row in answers.rows
    ]


def scores(row: AnswersRow, training: Sequence[PosedQuestion]) -> list[KindScore]:
    """Of each kind and of all; then of the same apart by reach."""
    found = [_score(row, training, kind, reach) for reach in (None, *Reach) for kind in (*KINDS, ALL)]
    return [one for one in found if one is not None]


def evidence_scores(row: AnswersRow, *, least_frames: int) -> list[EvidenceScore]:
    """Of each kind that has a moment to find, asked when so many frames at least were seen."""
    found = [_score_evidence(row, kind, least_frames) for kind in map(str, QuestionKind)]
    return [one for one in found if one is not None]


def ratio_over_worlds(above: Sequence[float], below: Sequence[float]) -> Ratio | None:
    """Sum over sum, its interval by drawing worlds again, the same each time; none where there is nothing below."""
    top, bottom = np.array(above, dtype=np.float64), np.array(below, dtype=np.float64)
    if not bottom.sum():
        return None
    value = float(top.sum() / bottom.sum())
    if len(top) < 2:
        return Ratio(value=value, low=None, high=None)
    low, high = np.quantile(_drawn_again(top, bottom), (_TAIL, 1 - _TAIL)).tolist()
    return Ratio(value=value, low=low, high=high)


def _drawn_again(
    top: Float64[np.ndarray, "worlds"], bottom: Float64[np.ndarray, "worlds"]
) -> Float64[np.ndarray, "resamples"]:
    tops, bottoms = _times_drawn(len(top)) @ top, _times_drawn(len(top)) @ bottom
    ratios: np.ndarray = tops[bottoms > 0] / bottoms[bottoms > 0]
    return ratios


@cache
def _times_drawn(num_worlds: int) -> Float64[np.ndarray, "resamples worlds"]:
    """How often each world is in each resample."""
    drawn = np.random.default_rng(0).integers(num_worlds, size=(_RESAMPLES, num_worlds))
    return np.stack([np.bincount(one, minlength=num_worlds) for one in drawn]).astype(np.float64)


def commonest_answer(kind: str, questions: Sequence[Question]) -> str | None:
    """What is right most often if it is always the answer, as `balanced_answer` has it; none where nothing is asked."""
    counts = Counter(map(balanced_answer, questions))
    if kind == WITHIN:
        counts = Counter(
            {answer: sum(count for true, count in counts.items() if are_near(answer, true)) for answer in counts}
        )
    return max(sorted(counts), key=counts.__getitem__, default=None)


def _is_of(posed: PosedQuestion, kind: str, reach: Reach | None) -> bool:
    asks = str(posed.question.kind)
    return (kind in (ALL, asks) or (kind == WITHIN and asks == QuestionKind.WHEN)) and reach in (None, posed.reach)


def _score(row: AnswersRow, training: Sequence[PosedQuestion], kind: str, reach: Reach | None) -> KindScore | None:
    by_world = [[given for given in world.asked.given if _is_of(given.posed, kind, reach)] for world in row.worlds]
    counts = [float(len(given)) for given in by_world]
    right = [float(sum(is_right(kind, one.posed.question, one.text) for one in given)) for given in by_world]
    share = ratio_over_worlds(right, counts)
    if share is None:
        return None
    alike = [posed.question for posed in training if _is_of(posed, kind, reach)]
    is_common = _always_common(kind, alike)
    common = [float(sum(is_common(one.posed.question) for one in given)) for given in by_world]
    is_told = reach is not None and (kind == ALL or len(set(map(balanced_answer, alike))) == 1)
    has_baseline = bool(alike) and not is_told
    more = [a - b for a, b in zip(right, common, strict=True)]
    return KindScore(
        kind=kind,
        reach=reach,
        num_questions=int(sum(counts)),
        num_worlds=sum(count > 0 for count in counts),
        right=share,
        commonest=ratio_over_worlds(common, counts) if has_baseline else None,
        above=ratio_over_worlds(more, counts) if has_baseline else None,
    )


def _always_common(kind: str, training: Sequence[Question]) -> Callable[[Question], bool]:
    """Whether a question's answer is the one that is commonest among these, of its own kind where they are several."""
    kinds = {question.kind for question in training}
    common = {one: commonest_answer(kind, [q for q in training if q.kind is one]) for one in kinds}

    def is_common(question: Question) -> bool:
        answer = common.get(question.kind)
        if answer is not None and kind == WITHIN:
            return are_near(answer, question.answer)
        return answer == balanced_answer(question)

    return is_common


def _score_evidence(row: AnswersRow, kind: str, least_frames: int) -> EvidenceScore | None:
    by_world = [
        [given for given in world.asked.given if _has_moment(given, kind) and given.posed.num_seen >= least_frames]
        for world in row.worlds
    ]
    counts = [float(len(given)) for given in by_world]
    met = [float(sum(_meets(one) for one in given)) for given in by_world]
    chance = [float(sum(_by_chance(one) for one in given)) for given in by_world]
    share, by_chance = ratio_over_worlds(met, counts), ratio_over_worlds(chance, counts)
    if share is None or by_chance is None:
        return None
    lengths = [one.span[1] - one.span[0] + 1 for given in by_world for one in given if one.span is not None]
    return EvidenceScore(
        kind=kind,
        num_questions=int(sum(counts)),
        met=share,
        chance=by_chance,
        times_chance=ratio_over_worlds(met, chance),
        span_frames=float(np.mean(lengths)) if lengths else 0.0,
    )


def _has_moment(given: GivenAnswer, kind: str) -> bool:
    return str(given.posed.question.kind) == kind and bool(given.posed.question.evidence)


def _meets(given: GivenAnswer) -> bool:
    span = given.span
    return span is not None and any(span[0] <= frame <= span[1] for frame in given.posed.question.moments)


def _by_chance(given: GivenAnswer) -> float:
    return 0.0 if given.span is None else met_by_chance(given.posed.question, given.span)
