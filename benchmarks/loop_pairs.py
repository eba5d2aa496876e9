"""`python -m benchmarks loop-pairs`: how well loops are told from what only looks like them, and how exact they are."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.table import Table

from benchmarks.loop_candidates import CandidateSettings
from benchmarks.loop_judging import judge_worlds, judge_worlds_apart
from benchmarks.loop_scores import Judged, Method, MethodFigures, choose_card, figures
from longtake.bench.workers import open_workers
from longtake.cli.options import AsJson, Families, Processes, split_names
from longtake.cli.progress import counting
from longtake.cli.tables import require_folder, show, table, write_json
from longtake.errors import SettingError
from longtake.hub.bundled import DEFAULT_MODEL
from longtake.hub.load import load_model
from longtake.hub.resolve import resolve
from longtake.places.loop_card import LoopCard, read_loop_card
from longtake.world.families import Family, families_named
from longtake.world.seeds import Split

_HEADINGS = (
    "worlds, by",
    "true",
    "accepted",
    "wrong",
    "false",
    "accepted",
    "recall at\nprecision 1",
    "rotation\ndeg, 90 %",
    "translation\ncm, 90 %",
    "scale\n%, 90 %",
)
_FIRST_SIZE = (98, 126)
"""Of a model whose file states no sizes."""


def loop_pairs(
    *,
    model: Annotated[str, typer.Option(help="A geometry model's file, or a name of longtake models.")] = DEFAULT_MODEL,
    worlds: Annotated[int, typer.Option(min=1, help="Of each family.")] = 20,
    places: Annotated[int, typer.Option(min=1, help="Of each world, with what looks most like them elsewhere.")] = 3,
    way: Annotated[int, typer.Option(min=100, help="Frames within which a camera is to come back.")] = 1000,
    split: Annotated[Split, typer.Option(help="Worlds to judge by, or those to choose limits by.")] = Split.TEST,
    family: Families = Family.HOUSE.value,
    choose: Annotated[
        bool,
        typer.Option(
            "--choose", help="Choose limits, write them beside the weights; the first family is the known one."
        ),
    ] = False,
    points_only: Annotated[
        bool, typer.Option("--points-only", help="Do not ask the network; a card chosen so does not either.")
    ] = False,
    processes: Processes = 1,
    card: Annotated[Path | None, typer.Option(help="Write all figures into this file, as JSON.")] = None,
    as_json: AsJson = False,
) -> None:
    """Judge places seen again, and what only looks like them, by points, by the network and by both."""
    require_folder(card)
    if choose and split is Split.TEST:
        raise SettingError("Limits are not chosen by test worlds; say --split validation.")
    torch.set_num_threads(1)  # the network and its pictures are too small to share
    network, path = load_model(model), resolve(model)
    families = families_named(split_names(family))
    limits = None if choose else _require_card(path)
    methods = [Method.POINTS] if points_only else list(Method)
    asked = [
        CandidateSettings(
            family=kind,
            split=split,
            num_worlds=worlds,
            num_places=places,
            way=way,
            size=(network.config.sizes or (_FIRST_SIZE,))[0],
        )
        for kind in families
    ]
    with counting("coming back", len(families) * worlds) as advance:
        if processes == 1:
            judged = judge_worlds(network, asked, advance, points_only=points_only)
        else:
            with open_workers(processes) as workers:
                judged = judge_worlds_apart(model, asked, workers, advance, points_only=points_only)
    if limits is None:
        limits = choose_card(judged, families_named(split_names(family)[:1])[0])
        limits.save(path)
    rows = [
        figures(some, limits, method)
        for kind in families
        if (some := [one for one in judged if one.family == kind])
        for method in methods
    ]
    record = _record(rows, limits, judged) | {"model": path.name, "split": split, "way": way}
    if card is not None:
        write_json(card, record)
    show(record, _blocks(rows, limits), as_json=as_json)


def _require_card(weights: Path) -> LoopCard:
    found = read_loop_card(weights)
    if found is None:
        raise SettingError(
            f"There are no limits for loops beside {weights.name}, or those of other weights; choose them first: "
            "python -m benchmarks loop-pairs --split validation --choose"
        )
    return found


def _record(rows: Sequence[MethodFigures], limits: LoopCard, judged: Sequence[Judged]) -> dict[str, Any]:
    return {
        "limits": limits.to_record(),
        "rows": [asdict(row) for row in rows],
        "candidates": [one.to_record() for one in judged],
    }


def _blocks(rows: Sequence[MethodFigures], limits: LoopCard) -> Iterator[str | Table]:
    yield table(_HEADINGS, map(_cells, rows))
    yield f"\n{limits}"


def _cells(row: MethodFigures) -> tuple[str, ...]:
    shift_cm = None if row.shift_m is None else (100 * row.shift_m[0], 100 * row.shift_m[1])
    errors = (row.turn_deg, shift_cm, row.scale_percent)
    return (
        f"{row.family}, {row.method}",
        str(row.num_true),
        f"{row.num_accepted / max(row.num_true, 1):.0%}",
        str(row.num_wrong),
        str(row.num_false),
        str(row.num_false_accepted),
        f"{row.recall_at_precision_1:.0%}",
        *("" if pair is None else f"{pair[0]:.2g}, {pair[1]:.2g}" for pair in errors),
    )
