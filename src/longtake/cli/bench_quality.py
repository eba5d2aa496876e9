"""`longtake bench quality`: how well a model maps worlds it has never seen, as tables, JSON and a picture."""

import itertools
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from longtake.bench.machine import device_name
from longtake.bench.quality import (
    MapVariant,
    QualityCase,
    QualityRow,
    QualitySettings,
    measure_quality,
    measure_quality_apart,
    require_room,
)
from longtake.bench.workers import open_workers
from longtake.cli.options import (
    AsJson,
    Device,
    Families,
    Processes,
    Sizes,
    parse_counts,
    parse_sizes,
    processes_on,
    split_names,
)
from longtake.cli.progress import counting
from longtake.cli.quality_report import draw_quality, quality_blocks
from longtake.cli.tables import require_folder, show, write_json
from longtake.evaluation.figures import require_plots
from longtake.hub.bundled import DEFAULT_MODEL, fingerprint
from longtake.hub.load import RANDOM, load_model, load_model_once
from longtake.memory.policies.lockstep import ContextRetention
from longtake.runtime.alignment import Alignment
from longtake.runtime.build import SMALL, SessionSettings, adjusted_session, usual_settings
from longtake.runtime.execution import choose_device
from longtake.world.families import Family, families_named
from longtake.world.seeds import Split

USUAL = "usual"
"""Among several choices of an option: what the model is run with if nothing is said."""


def bench_quality(
    model: Annotated[
        str, typer.Option(help="A checkpoint, a name of longtake models, or tiny or micro (random weights).")
    ] = DEFAULT_MODEL,
    worlds: Annotated[int, typer.Option(min=1, help="Worlds of each family.")] = 50,
    split: Annotated[Split, typer.Option(help="Worlds to judge by, or those to choose settings by.")] = Split.TEST,
    family: Families = Family.HOUSE.value,
    size: Sizes = "126x98",
    frames: Annotated[str, typer.Option(help="Length of the walks; several separated by commas.")] = "48",
    scale_frames: Annotated[str, typer.Option(help="Frames of the scale block, and anchors.")] = USUAL,
    policy: Annotated[str, typer.Option(help="What to forget, as for longtake map.")] = USUAL,
    memory: Annotated[str, typer.Option(help="Room for keys and values, such as 4GB or 8 frames.")] = USUAL,
    keyframes: Annotated[str, typer.Option(help="every:6 or flow:12px.")] = USUAL,
    windows: Annotated[str, typer.Option(help="128/16: kept frames by shared frames; none for one.")] = USUAL,
    align: Annotated[str, typer.Option(help="Windows by first-frame, keyframe-pairs or robust.")] = USUAL,
    device: Device = "cpu",
    processes: Processes = 1,
    as_json: AsJson = False,
    card: Annotated[Path | None, typer.Option(help="Also write those over worlds, for a model card.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw ways from above into this PNG file.")] = None,
) -> None:
    """Score a model's maps of unseen worlds against the truth, beside baselines; options take several, with commas."""
    for path in (card, plot):
        require_folder(path)
    if plot is not None:
        require_plots()
    place = choose_device(device)
    network = load_model(model, device=place)
    usual = usual_settings(network.config)
    processes = processes_on(place.type, processes)
    if usual.image_size == SMALL.image_size or processes > 1:
        torch.set_num_threads(1)  # the network and its pictures are too small to share
    asked = [
        QualitySettings(
            variants=variants(usual, scale_frames, policy, memory, keyframes, windows, align),
            frames=parse_counts(frames, "lengths of walks in frames, such as 48,300"),
            num_worlds=worlds,
            size=shape,
            split=split,
            family=kind,
        )
        for kind, shape in itertools.product(families_named(split_names(family)), parse_sizes(size))
    ]
    if processes == 1:
        with counting("walking", sum(settings.num_steps for settings in asked)) as advance:
            cases = [QualityCase(settings, tuple(measure_quality(network, settings, advance))) for settings in asked]
    else:
        for settings in asked:
            require_room(network, settings)
        num_walks = sum(settings.num_worlds for settings in asked)
        with open_workers(min(processes, num_walks)) as workers, counting("walking", num_walks) as advance:
            cases = measure_quality_apart(partial(load_model_once, model), asked, workers, advance)
    contract = _contract(asked[0], model, place)
    rows = [(case.settings, row) for case in cases for row in case.rows]
    record = contract | {"rows": [_summary(*each) | {"worlds": _worlds(each[1])} for each in rows]}
    show(record, quality_blocks(cases, contract), as_json=as_json)
    if card is not None:
        write_json(card, contract | {"rows": [_summary(*each) for each in rows]})
    if plot is not None:
        draw_quality(
            plot, [row for _, row in rows], title=f"{model}, ways through worlds it has never seen, from above"
        )


def variants(usual: SessionSettings, *options: str) -> tuple[MapVariant, ...]:
    """Every choice of an option with every choice of the others."""
    chosen = itertools.product(*map(split_names, options))
    return tuple(dict.fromkeys(_variant(usual, *choices) for choices in chosen))


def _variant(usual: SessionSettings, *choices: str) -> MapVariant:
    named = (None if choice == USUAL else choice for choice in choices)
    scale_frames, policy, memory, keyframes, windows, align = named
    session = usual if scale_frames is None else _with_scale_frames(usual, scale_frames)
    session = adjusted_session(session, policy=policy, memory=memory, keyframes=keyframes, windows=windows)
    if session.windows is None:
        align = None  # one window is aligned with nothing
    elif align is not None:
        session = replace(session, alignment=Alignment.named(align))
    names = (
        scale_frames and f"{scale_frames} scale frames",
        policy,
        memory,
        keyframes,
        windows and f"windows {windows}",
        align,
    )
    return MapVariant(name=", ".join(filter(None, names)) or USUAL, session=session)


def _with_scale_frames(session: SessionSettings, word: str) -> SessionSettings:
    """A context's anchors are its scale frames."""
    (count,) = parse_counts(word, "a number of scale frames, such as 4")
    rule = session.retention
    anchored = replace(rule, anchors=count) if isinstance(rule, ContextRetention) else rule
    return replace(session, num_scale_frames=count, retention=anchored)


def _contract(settings: QualitySettings, model: str, device: torch.device) -> dict[str, Any]:
    return {
        "weights": model,
        "weights_sha256": fingerprint(model),
        "is_random": model in RANDOM,
        "device": device_name(device),
        "height": settings.size[0],
        "width": settings.size[1],
        "num_worlds": settings.num_worlds,
        "split": settings.split,
    }


def _summary(settings: QualitySettings, row: QualityRow) -> dict[str, Any]:
    return {
        "family": settings.family,
        "height": settings.size[0],
        "width": settings.size[1],
        "settings": row.variant.name,
        "num_frames": row.num_frames,
        "frame_ms": row.frame_ms,
        "summary": {name: None if value is None else asdict(value) for name, value in row.summaries().items()},
        "better_share": {
            name: row.better_share(name)
            for name in ("times_velocity", "times_straight", "times_still", "times_mean_depth")
        },
    }


def _worlds(row: QualityRow) -> list[dict[str, Any]]:
    return [{"seed": world.seed, **world.figures()} for world in row.worlds]
