"""`longtake bench quality`: how well a model maps houses it has never seen, as tables, JSON and a plot."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

from longtake.bench.quality import QualityRow, QualitySettings, Watch, measure_quality
from longtake.cli.networks import RANDOM, network_named
from longtake.cli.options import choose_device, parse_size
from longtake.cli.quality_plot import draw_quality
from longtake.cli.quality_tables import print_quality
from longtake.errors import InputError, SettingError
from longtake.extras import import_from_extra
from longtake.hub.bundled import fingerprint
from longtake.memory.budget import Budget
from longtake.memory.policies.context import ContextRetention
from longtake.memory.registry import stream_policy_named
from longtake.runtime.alignment import Alignment
from longtake.runtime.build import SMALL, SessionSettings, parse_keyframes, parse_windows, usual_settings
from longtake.world.seeds import Split

USUAL = "usual"
"""Among several choices of an option: what the model is run with if nothing is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityOptions:
    """What the command line says, word by word; all but the first four and the device may be several, with commas."""

    model: str
    worlds: int
    split: Split
    size: str
    frames: str
    scale_frames: str
    policy: str
    memory: str
    keyframes: str
    windows: str
    align: str
    device: str


def run_quality(
    options: QualityOptions, *, json_file: Path | None = None, card: Path | None = None, plot: Path | None = None
) -> None:
    for path in (json_file, card, plot):
        _require_folder(path)  # said before the work, not after it
    if plot is not None:
        import_from_extra("matplotlib", "plot", "Drawing")
    device = choose_device(options.device)
    model = network_named(options.model, device)
    usual = usual_settings(model.config)
    if usual.image_size == SMALL.image_size:
        torch.set_num_threads(1)  # the network and its pictures are too small to share
    settings = QualitySettings(
        watches=watches(options, usual),
        frames=tuple(_counts(options.frames, "lengths of walks in frames, such as 48,300")),
        num_worlds=options.worlds,
        size=parse_size(options.size),
        split=options.split,
    )
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("walking", total=settings.num_steps)
        rows = measure_quality(model, settings, lambda count: progress.advance(task, count))
    contract = _contract(settings, options.model, device)
    print_quality(rows, contract)
    if json_file is not None:
        _write(json_file, contract, [_summary(row) | {"worlds": _worlds(row)} for row in rows])
    if card is not None:
        _write(card, contract, [_summary(row) for row in rows])
    if plot is not None:
        draw_quality(plot, rows, title=f"{options.model}, walks through houses it has never seen, from above")


def watches(options: QualityOptions, usual: SessionSettings) -> tuple[Watch, ...]:
    """Every choice of an option with every choice of the others."""
    columns = (
        options.scale_frames,
        options.policy,
        options.memory,
        options.keyframes,
        options.windows,
        options.align,
    )
    words = [[word.strip() for word in column.split(",")] for column in columns]
    return tuple(dict.fromkeys(_watch(chosen, usual) for chosen in itertools.product(*words)))


def _watch(chosen: Sequence[str], usual: SessionSettings) -> Watch:
    scale_frames, policy, memory, keyframes, windows, align = chosen
    session, said = usual, []
    if scale_frames != USUAL:
        session = _with_scale_frames(session, scale_frames)
        said.append(f"{scale_frames} scale frames")
    if policy != USUAL:
        session = replace(session, retention=stream_policy_named(policy))
        said.append(policy)
    if memory != USUAL:
        session = replace(session, budget=Budget.parse(memory))
        said.append(memory)
    if keyframes != USUAL:
        session = replace(session, keyframes=parse_keyframes(keyframes))
        said.append(keyframes)
    if windows != USUAL:
        session = replace(session, windows=parse_windows(windows))
        said.append(f"windows {windows}")
    if align != USUAL and session.windows is not None:  # one window is aligned with nothing
        session = replace(session, alignment=Alignment.named(align))
        said.append(align)
    return Watch(name=", ".join(said) or USUAL, session=session)


def _with_scale_frames(session: SessionSettings, word: str) -> SessionSettings:
    """A context's anchors are its scale frames."""
    (count,) = _counts(word, "a number of scale frames, such as 4")
    rule = session.retention
    anchored = replace(rule, anchors=count) if isinstance(rule, ContextRetention) else rule
    return replace(session, num_scale_frames=count, retention=anchored)


def _counts(text: str, what: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise SettingError(f"Expected {what}, but got '{text}'.")
    return list(dict.fromkeys(map(int, parts)))


def _require_folder(path: Path | None) -> None:
    if path is not None and not path.parent.is_dir():
        raise InputError(f"There is no folder {path.parent} to write {path.name} into; make it first.")


def _contract(settings: QualitySettings, model: str, device: torch.device) -> dict[str, Any]:
    threads = torch.get_num_threads()
    cpu = f"CPU, {threads} thread{'s' * (threads > 1)}"
    return {
        "weights": model,
        "weights_sha256": fingerprint(model),
        "is_random": model in RANDOM,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else cpu,
        "height": settings.size[0],
        "width": settings.size[1],
        "num_worlds": settings.num_worlds,
        "split": settings.split,
    }


def _write(path: Path, contract: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps(contract | {"rows": rows}, indent=1) + "\n")


def _summary(row: QualityRow) -> dict[str, Any]:
    return {
        "settings": row.watch.name,
        "num_frames": row.num_frames,
        "frame_ms": row.frame_ms,
        "summary": {name: None if value is None else asdict(value) for name, value in row.summaries().items()},
        "better_share": {
            name: row.better_share(name) for name in ("times_velocity", "times_straight", "times_mean_depth")
        },
    }


def _worlds(row: QualityRow) -> list[dict[str, Any]]:
    return [{"seed": world.seed, **world.figures()} for world in row.worlds]
