"""`longtake bench quality`: how well a model maps houses it has never seen, as tables, JSON and a picture."""

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from longtake.bench.quality import QualityRow, QualitySettings, Watch, measure_quality
from longtake.cli.options import parse_size
from longtake.cli.quality_plot import draw_quality
from longtake.cli.quality_tables import quality_blocks
from longtake.cli.tables import counting, require_folder, show, write_json
from longtake.errors import SettingError
from longtake.extras import import_from_extra
from longtake.hub.bundled import fingerprint
from longtake.hub.load import RANDOM, load_model
from longtake.memory.budget import Budget
from longtake.memory.policies.lockstep import ContextRetention
from longtake.memory.registry import stream_policy_named
from longtake.runtime.alignment import Alignment
from longtake.runtime.build import SMALL, SessionSettings, parse_keyframes, parse_windows, usual_settings
from longtake.runtime.execution import choose_device
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


def run_quality(options: QualityOptions, *, as_json: bool, card: Path | None = None, plot: Path | None = None) -> None:
    for path in (card, plot):
        require_folder(path)
    if plot is not None:
        import_from_extra("matplotlib", "plot", "Drawing")
    device = choose_device(options.device)
    model = load_model(options.model, device=device)
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
    with counting("walking", settings.num_steps) as advance:
        rows = measure_quality(model, settings, advance)
    contract = _contract(settings, options.model, device)
    record = contract | {"rows": [_summary(row) | {"worlds": _worlds(row)} for row in rows]}
    show(record, quality_blocks(rows, contract), as_json=as_json)
    if card is not None:
        write_json(card, contract | {"rows": [_summary(row) for row in rows]})
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
    session, names = usual, []
    if scale_frames != USUAL:
        session = _with_scale_frames(session, scale_frames)
        names.append(f"{scale_frames} scale frames")
    if policy != USUAL:
        session = replace(session, retention=stream_policy_named(policy))
        names.append(policy)
    if memory != USUAL:
        session = replace(session, budget=Budget.parse(memory))
        names.append(memory)
    if keyframes != USUAL:
        session = replace(session, keyframes=parse_keyframes(keyframes))
        names.append(keyframes)
    if windows != USUAL:
        session = replace(session, windows=parse_windows(windows))
        names.append(f"windows {windows}")
    if align != USUAL and session.windows is not None:  # one window is aligned with nothing
        session = replace(session, alignment=Alignment.named(align))
        names.append(align)
    return Watch(name=", ".join(names) or USUAL, session=session)


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
