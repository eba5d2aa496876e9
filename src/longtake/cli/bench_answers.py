"""`longtake bench answers`: how well a model answers about houses it has never seen, as tables, JSON and a plot."""

import hashlib
import itertools
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

from longtake.bench.answers import AnswersRow, AnswersSettings, measure_sessions
from longtake.bench.answers_policies import Watch, watch_named
from longtake.bench.answers_scoring import EVIDENT_FRAMES, ScoredRow, score_rows
from longtake.bench.answers_walk import Asking, Reach
from longtake.cli.answers_plot import draw_answers
from longtake.cli.answers_tables import print_answers
from longtake.cli.options import parse_size
from longtake.errors import InputError
from longtake.extras import import_from_extra
from longtake.hub.bundled import fingerprint
from longtake.hub.load import load_language_model
from longtake.runtime.execution import choose_device
from longtake.world.seeds import Split

ANYWHERE = "anywhere"
"""Among reaches of questions: all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersOptions:
    """What the command line says, word by word; policies and memories may be several, with commas."""

    model: str
    worlds: int
    split: Split
    size: str
    frames: int
    fps: float
    moments: int
    questions: int
    recent: float
    policy: str
    memory: str
    training: int
    offline: int
    device: str


def run_answers(
    options: AnswersOptions, *, json_file: Path | None = None, card: Path | None = None, plot: Path | None = None
) -> None:
    for path in (json_file, card, plot):
        _require_folder(path)  # said before the work, not after it
    if plot is not None:
        import_from_extra("matplotlib", "plot", "Drawing")
    settings, device = _settings(options), choose_device(options.device)
    language = load_language_model(options.model, device=device)
    torch.set_num_threads(1)  # frames and questions come one by one, and are too small to share
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("walking", total=settings.num_steps)
        answers = measure_sessions(language, settings, lambda count: progress.advance(task, count))
    contract = _contract(settings, options.model, device)
    scored = score_rows(answers, least_frames=contract["evident_frames"])
    print_answers(scored, answers.filming_s, contract)
    if json_file is not None:
        _write(json_file, contract, [_summary(row, settings) | {"worlds": _worlds(row.row)} for row in scored])
    if card is not None:
        _write(card, contract, [_summary(row, settings) for row in scored])
    if plot is not None:
        draw_answers(plot, scored, title=_title(contract))


def watches(policy: str, memory: str) -> tuple[Watch, ...]:
    """Every policy with every budget, once where it needs none."""
    policies, memories = ([word.strip() for word in words.split(",")] for words in (policy, memory))
    return tuple(dict.fromkeys(watch_named(*words) for words in itertools.product(policies, memories)))


def _settings(options: AnswersOptions) -> AnswersSettings:
    asking = Asking(
        num_frames=options.frames,
        fps=options.fps,
        num_moments=options.moments,
        num_questions=options.questions,
        recent_s=options.recent,
    )
    return AnswersSettings(
        watches=watches(options.policy, options.memory),
        asking=asking,
        num_worlds=options.worlds,
        size=parse_size(options.size),
        split=options.split,
        num_training=options.training,
        num_offline=options.offline,
    )


def _require_folder(path: Path | None) -> None:
    if path is not None and not path.parent.is_dir():
        raise InputError(f"There is no folder {path.parent} to write {path.name} into; make it first.")


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


def _title(contract: dict[str, Any]) -> str:
    return (
        f"{contract['weights']}, {contract['num_worlds']} {contract['split']} houses, {contract['num_frames']} frames "
        f"at {contract['fps']:g} a second"
    )


def _write(path: Path, contract: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps(contract | {"rows": rows}, indent=1) + "\n")


def _summary(scored: ScoredRow, settings: AnswersSettings) -> dict[str, Any]:
    row = scored.row
    return {
        "settings": row.watch.name,
        "num_questions": row.num_questions,
        "frame_ms": 1e3 * row.seeing_s / settings.asking.num_frames,
        "question_ms": row.question_ms,
        "live_bytes": row.live_bytes,
        "offline": {"num_questions": row.num_offline, "num_equal": row.num_equal},
        "scores": {
            reach or ANYWHERE: {kind: asdict(score) for kind, score in scored.reaching(reach).items()}
            for reach in (None, *Reach)
        },
        "evidence": {score.kind: asdict(score) for score in scored.evidence},
    }


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
