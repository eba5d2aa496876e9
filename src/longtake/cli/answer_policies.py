"""The part of `longtake bench policies` about answers: how many are right about houses never seen, by each policy."""

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from longtake.bench.answers import AnswersRow, AnswersSettings, measure_sessions
from longtake.bench.answers_policies import MemoryVariant, variant_named
from longtake.bench.answers_scoring import (
    ALL,
    EVIDENT_FRAMES,
    KINDS,
    EvidenceScore,
    KindScore,
    Ratio,
    ScoredRow,
    score_rows,
)
from longtake.bench.machine import device_name
from longtake.cli.answer_policies_plot import draw_answers
from longtake.cli.progress import counting
from longtake.cli.tables import table
from longtake.evaluation.asked_walk import WITHIN, Reach
from longtake.hub.bundled import fingerprint
from longtake.hub.load import load_language_model
from longtake.world.question import QuestionKind

ANYWHERE = "anywhere"
"""Among reaches of questions: all of them."""
_MEANING = """Shares of all questions, with 95 % confidence intervals over worlds. The commonest answer is that of
houses for training; realtime is what was in view {recent:g} s ago or later, recall what was last in view before."""
_COMPARED = tuple(kind for kind in (*KINDS, ALL) if kind != QuestionKind.WHEN)
_EVIDENT = """Evidence is the span that an answer attended to most, where {frames} frames or more were seen: how often
it holds the moment that justifies the answer, and how often a span as long would, put anywhere in what was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPolicies:
    """A row for each policy and budget, and the contract under which they were measured."""

    contract: dict[str, Any]
    rows: Sequence[ScoredRow]
    filming_s: float

    @property
    def record(self) -> dict[str, Any]:
        return self.contract | {"rows": [self._summary(row) | {"worlds": _worlds(row.row)} for row in self.rows]}

    @property
    def card(self) -> dict[str, Any]:
        """Only what is over worlds."""
        return self.contract | {"rows": [self._summary(row) for row in self.rows]}

    def blocks(self) -> Iterator[str | Table]:
        """For people."""
        return _blocks(self.rows, self.filming_s, self.contract)

    def draw(self, path: Path) -> None:
        contract = self.contract
        houses = f"{contract['num_worlds']} {contract['split']} houses"
        walks = f"{contract['num_frames']} frames at {contract['fps']:g} a second"
        draw_answers(path, self.rows, title=f"{contract['weights']}, {houses}, {walks}")

    def _summary(self, scored: ScoredRow) -> dict[str, Any]:
        row = scored.row
        return {
            "settings": row.variant.name,
            "num_questions": row.num_questions,
            "frame_ms": 1e3 * row.seeing_s / self.contract["num_frames"],
            "question_ms": row.question_ms,
            "live_bytes": row.live_bytes,
            "offline": {"num_questions": row.num_offline, "num_equal": row.num_equal},
            "scores": {
                reach or ANYWHERE: {kind: asdict(score) for kind, score in scored.reaching(reach).items()}
                for reach in (None, *Reach)
            },
            "evidence": {score.kind: asdict(score) for score in scored.evidence},
        }


def compare_answers(name: str, settings: AnswersSettings, device: torch.device) -> AnswerPolicies:
    """All policies on the same frames and questions, with the language model of this name."""
    language = load_language_model(name, device=device)
    torch.set_num_threads(1)  # frames and questions come one by one, and are too small to share
    with counting("walking", settings.num_steps) as advance:
        answers = measure_sessions(language, settings, advance)
    contract = _contract(settings, name, device)
    return AnswerPolicies(
        contract=contract,
        rows=score_rows(answers, least_frames=contract["evident_frames"]),
        filming_s=answers.filming_s,
    )


def variants(policies: Sequence[str], budgets: Sequence[int]) -> tuple[MemoryVariant, ...]:
    """Every policy with every budget in frames, once where it needs none."""
    combined = itertools.product(policies, (f"{count} frames" for count in budgets))
    return tuple(dict.fromkeys(variant_named(*words) for words in combined))


def _contract(settings: AnswersSettings, model: str, device: torch.device) -> dict[str, Any]:
    asking = settings.asking
    return {
        "weights": model,
        "weights_sha256": _fingerprint(model),
        "device": device_name(device),
        "height": settings.size[0],
        "width": settings.size[1],
        "num_worlds": settings.num_worlds,
        "split": settings.split,
        "num_training": settings.num_training,
        "num_frames": asking.num_frames,
        "fps": asking.fps,
        "moments": list(asking.moments),
        "questions": asking.num_questions,
        "recent_s": asking.recent_s,
        "evident_frames": min(EVIDENT_FRAMES, asking.num_frames),
    }


def _fingerprint(model: str) -> str | None:
    """SHA-256 of the weights in the package or in a folder, by which figures say whose they are."""
    path = Path(model).expanduser() / "model.safetensors"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else fingerprint(model)


def _worlds(row: AnswersRow) -> list[dict[str, Any]]:
    return [
        {
            "seed": world.seed,
            "answers": [
                given.posed.question.to_json() | {"reach": given.posed.reach, "given": given.text, "span": given.span}
                for given in world.asked.given
            ],
        }
        for world in row.worlds
    ]


def _blocks(scored: Sequence[ScoredRow], filming_s: float, contract: Mapping[str, Any]) -> Iterator[str | Table]:
    """All figures of one variant; of several, those by which they are compared."""
    if len(scored) == 1:
        yield f"{scored[0].row.variant.name}, {_setting(contract)}; {_cost(scored[0].row, filming_s)}\n"
        tables = [_table_of(scored[0].kinds), *([_evidence_table(scored[0].evidence)] if scored[0].evidence else [])]
    else:
        yield f"{_setting(contract)}\n"
        tables = [_comparison(scored, reach) for reach in Reach]
    for drawn in tables:
        yield drawn
        yield ""
    yield _MEANING.format(recent=contract["recent_s"])
    if len(scored) == 1 and scored[0].evidence:
        yield _EVIDENT.format(frames=contract["evident_frames"])
    yield from (_offline(one.row) for one in scored if one.row.num_offline)


def _setting(contract: Mapping[str, Any]) -> str:
    count = contract["num_worlds"]
    walks = f"{contract['num_frames']} frames at {contract['fps']:g} a second"
    return f"{contract['weights']}, {count} {contract['split']} world{'s' * (count > 1)}, {walks}, {contract['device']}"


def _cost(row: AnswersRow, filming_s: float) -> str:
    return (
        f"a world took {filming_s:.1f} s to film, {row.seeing_s:.1f} s to watch and {row.asking_s:.1f} s for "
        f"its {row.num_questions / len(row.worlds):.0f} questions"
    )


def _offline(row: AnswersRow) -> str:
    return (
        f"{row.num_equal} of {row.num_offline} streamed answers are those of one forward pass over the whole clip "
        f"({row.variant.name})."
    )


def _table_of(found: Sequence[KindScore]) -> Table:
    headings = ("", "asked", "right\n%", "95 %", "commonest\n%", "points\nabove", "95 %")
    rows = (
        (kind if score.reach is None else f"  {score.reach}", str(score.num_questions), *_cells(score))
        for kind in (*KINDS, ALL)
        for score in found
        if score.kind == kind and (score.reach is None or kind not in (WITHIN, QuestionKind.WHERE))
    )
    return table(headings, rows)


def _cells(score: KindScore) -> tuple[str, ...]:
    right = (_percent(score.right.value), _interval(score.right))
    if score.commonest is None or score.above is None:
        return *right, "", "", ""
    return *right, _percent(score.commonest.value), f"{100 * score.above.value:+.0f}", _interval(score.above)


def _evidence_table(found: Sequence[EvidenceScore]) -> Table:
    headings = ("evidence", "asked", "met\n%", "95 %", "chance\n%", "times\nchance", "95 %", "frames\nlong")
    return table(headings, map(_evidence_cells, found))


def _evidence_cells(score: EvidenceScore) -> tuple[str, ...]:
    times = score.times_chance
    return (
        score.kind,
        str(score.num_questions),
        _percent(score.met.value),
        _interval(score.met),
        _percent(score.chance.value),
        "" if times is None else f"{times.value:.1f}",
        "" if times is None or times.low is None else f"{times.low:.1f}-{times.high:.1f}",
        f"{score.span_frames:.1f}",
    )


def _comparison(scored: Sequence[ScoredRow], reach: Reach) -> Table:
    first = scored[0].reaching(reach)
    kinds = [kind for kind in _COMPARED if kind in first]  # the same for all, as the questions are
    headings = (f"{reach}, % right", *("when\n2 s" if kind == WITHIN else kind for kind in kinds))
    shares = [(one.row.variant.name, [one.reaching(reach)[kind].right for kind in kinds]) for one in scored]
    rows = [(name, *map(_with_spread, of_policy)) for name, of_policy in shares]
    if any(first[kind].commonest for kind in kinds):
        rows.append(("commonest answer", *(_with_spread(first[kind].commonest) for kind in kinds)))
    return table(headings, rows)


def _with_spread(share: Ratio | None) -> str:
    """With half of the interval's width."""
    if share is None:
        return ""
    if share.low is None or share.high is None:
        return _percent(share.value)
    return f"{_percent(share.value)}±{50 * (share.high - share.low):.0f}"


def _interval(share: Ratio) -> str:
    if share.low is None or share.high is None:
        return ""
    return f"{_percent(share.low)} to {_percent(share.high)}"


def _percent(value: float) -> str:
    return f"{100 * value:.0f}"
