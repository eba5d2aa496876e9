"""`longtake bench places`: whether a model knows a place again that it saw long ago, as a table and JSON."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from operator import attrgetter
from typing import Annotated, Any

import torch
import typer
from rich.table import Table

from longtake.bench.machine import device_name
from longtake.bench.places import PlaceQuality, PlaceSettings, measure_places, measure_places_apart
from longtake.bench.workers import open_workers
from longtake.cli.options import AsJson, Device, Families, Processes, Sizes, parse_sizes, processes_on, split_names
from longtake.cli.progress import counting
from longtake.cli.tables import show, table
from longtake.hub.bundled import DEFAULT_MODEL, fingerprint
from longtake.hub.load import RANDOM, load_model, load_model_once
from longtake.runtime.build import SMALL, usual_settings
from longtake.runtime.execution import choose_device
from longtake.types import counted
from longtake.world.families import Family, families_named
from longtake.world.seeds import Split

_TOLD_BY = {"confidence": attrgetter("confidence"), "agreement": attrgetter("agreement")}
_HEADINGS = (
    *("worlds", "size", "places", "rotation\ndeg", "90 %\nbelow", "no turn\ndeg"),
    *(f"strange told\nby {name}" for name in _TOLD_BY),
)
_MEANING = (
    "Rotation between 8 old frames and 8 new ones that begin at most 0.5 m and 25 degrees away; no turn is the error "
    "of saying so.\nStrange: pairs of two worlds whose confidence of depth, or whose "
    "agreement of depth between old and new frames, is below that of 90 % of the true pairs."
)


def bench_places(
    model: Annotated[
        str, typer.Option(help="A checkpoint, a name of longtake models, or tiny or micro (random weights).")
    ] = DEFAULT_MODEL,
    places: Annotated[int, typer.Option(min=2, help="Of each family, one a world.")] = 50,
    way: Annotated[int, typer.Option(min=1, help="Frames within which a camera is to come back.")] = 1000,
    split: Annotated[Split, typer.Option(help="Worlds to judge by, or those to choose settings by.")] = Split.TEST,
    family: Families = Family.HOUSE.value,
    size: Sizes = "126x98",
    device: Device = "cpu",
    processes: Processes = 1,
    as_json: AsJson = False,
) -> None:
    """Show a model places again that it saw much earlier, and pairs that share nothing; score turns and confidence."""
    place = choose_device(device)
    network = load_model(model, device=place)
    session = usual_settings(network.config)
    processes = processes_on(place.type, processes)
    if session.image_size == SMALL.image_size or processes > 1:
        torch.set_num_threads(1)  # the network and its pictures are too small to share
    asked = [
        PlaceSettings(session=session, num_places=places, size=shape, way=way, split=split, family=kind)
        for kind, shape in itertools.product(families_named(split_names(family)), parse_sizes(size))
    ]
    with counting("coming back", sum(settings.num_steps for settings in asked)) as advance:
        if processes == 1:
            found = [measure_places(network, settings, advance) for settings in asked]
        else:
            with open_workers(processes) as workers:
                found = measure_places_apart(partial(load_model_once, model), asked, workers, advance)
    contract = {
        "weights": model,
        "weights_sha256": fingerprint(model),
        "is_random": model in RANDOM,
        "device": device_name(place),
        "split": split,
        "way": way,
    }
    show(contract | {"rows": [_record(row) for row in found]}, _blocks(found, contract), as_json=as_json)


def _record(row: PlaceQuality) -> dict[str, Any]:
    return {
        "family": row.settings.family,
        "height": row.settings.size[0],
        "width": row.settings.size[1],
        "num_places": len(row.pairs),
        "turn_median_deg": row.turn_quantile_deg(0.5),
        "turn_90_deg": row.turn_quantile_deg(0.9),
        "still_deg": row.still_deg,
        **{f"{name}_threshold": row.threshold(of) for name, of in _TOLD_BY.items()},
        **{f"strange_told_by_{name}_share": row.strange_told_share(of) for name, of in _TOLD_BY.items()},
        "pairs": [asdict(pair) for pair in row.pairs],
        "strange": [asdict(each) for each in row.strange],
    }


def _blocks(rows: Sequence[PlaceQuality], contract: dict[str, Any]) -> Iterator[str | Table]:
    ways = f"{contract['split']} worlds, ways of {counted(contract['way'], 'frame')}"
    yield f"{contract['weights']}, {ways}, {contract['device']}\n"
    yield table(_HEADINGS, map(_cells, rows))
    yield ""
    yield _MEANING
    if contract["is_random"]:
        yield "The weights are random: the figures show how this is measured, and no quality."


def _cells(row: PlaceQuality) -> tuple[str, ...]:
    height, width = row.settings.size
    degrees = (row.turn_quantile_deg(0.5), row.turn_quantile_deg(0.9), row.still_deg)
    return (
        row.settings.family.value,
        f"{width}x{height}",
        str(len(row.pairs)),
        *(f"{each:.3g}" for each in degrees),
        *(f"{row.strange_told_share(of):.0%}" for of in _TOLD_BY.values()),
    )
