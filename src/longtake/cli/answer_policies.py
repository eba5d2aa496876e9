"""The part of `longtake bench policies` about answers: how many are right about houses never seen, by each policy."""

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from longtake.bench.answers import AnswersRow, AnswersSettings, measure_sessions
from longtake.bench.answers_policies import Watch, watch_named
from longtake.bench.answers_scoring import EVIDENT_FRAMES, ScoredRow, score_rows
from longtake.cli.answer_policies_plot import draw_answers
from longtake.cli.answer_tables import answer_blocks
from longtake.cli.map_policies import parse_budgets
from longtake.cli.options import parse_size
from longtake.cli.tables import counting
from longtake.evaluation.asked_walk import Asking, Reach
from longtake.hub.bundled import fingerprint
from longtake.hub.load import load_language_model
from longtake.runtime.execution import choose_device
from longtake.world.seeds import Split

ANYWHERE = "anywhere"
"""Among reaches of questions: all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPolicyOptions:
    """What the command line says, word by word."""

    model: str
    worlds: int
    split: Split
    size: str
    frames: int
    fps: float
    moments: int
    questions: int
    recent: float
    policies: str
    budgets: str
    training: int
    offline: int
    device: str


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
        return answer_blocks(self.rows, self.filming_s, self.contract)

    def draw(self, path: Path) -> None:
        contract = self.contract
        houses = f"{contract['num_worlds']} {contract['split']} houses"
        walks = f"{contract['num_frames']} frames at {contract['fps']:g} a second"
        draw_answers(path, self.rows, title=f"{contract['weights']}, {houses}, {walks}")

    def _summary(self, scored: ScoredRow) -> dict[str, Any]:
        row = scored.row
        return {
            "settings": row.watch.name,
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


def compare_answers(options: AnswerPolicyOptions) -> AnswerPolicies:
    """All policies on the same frames and questions."""
    settings, device = _settings(options), choose_device(options.device)
    language = load_language_model(options.model, device=device)
    torch.set_num_threads(1)  # frames and questions come one by one, and are too small to share
    with counting("walking", settings.num_steps) as advance:
        answers = measure_sessions(language, settings, advance)
    contract = _contract(settings, options.model, device)
    return AnswerPolicies(
        contract=contract,
        rows=score_rows(answers, least_frames=contract["evident_frames"]),
        filming_s=answers.filming_s,
    )


def watches(policies: str, budgets: str) -> tuple[Watch, ...]:
    """Every policy with every budget, once where it needs none."""
    names = [name.strip() for name in policies.split(",")]
    memories = [f"{count} frames" for count in parse_budgets(budgets)]
    return tuple(dict.fromkeys(watch_named(*words) for words in itertools.product(names, memories)))


def _settings(options: AnswerPolicyOptions) -> AnswersSettings:
    asking = Asking(
        num_frames=options.frames,
        fps=options.fps,
        num_moments=options.moments,
        num_questions=options.questions,
        recent_s=options.recent,
    )
    return AnswersSettings(
        watches=watches(options.policies, options.budgets),
        asking=asking,
        num_worlds=options.worlds,
        size=parse_size(options.size),
        split=options.split,
        num_training=options.training,
        num_offline=options.offline,
    )


def _contract(settings: AnswersSettings, model: str, device: torch.device) -> dict[str, Any]:
    asking = settings.asking
    return {
        "weights": model,
        "weights_sha256": _fingerprint(model),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU, 1 thread",
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
