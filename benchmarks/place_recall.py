"""Whether an index of descriptors finds places again: walks through unseen worlds, against what frames truly share."""

import itertools
from dataclasses import asdict, dataclass
from typing import Annotated

import numpy as np
import torch
import typer
from jaxtyping import Float

from benchmarks.shared_views import JudgedPlace, TruePlace, judge_place
from longtake.cli.options import AsJson, Families, split_names
from longtake.cli.progress import counting
from longtake.cli.tables import show, table
from longtake.geometry.model import GeometryModel
from longtake.hub.load import load_model
from longtake.places.index import IndexRule, PlaceIndex
from longtake.world.families import Family, families_named
from longtake.world.seeds import Split, seeds
from longtake.world.tour import Tour, View

_SIZE = (98, 126)
_CANDIDATES = 5
_PRECISIONS = (0.99, 0.95, 0.9, 0.8)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallFigures:
    """Of all walks of a family."""

    family: str
    walks: int
    asked: int
    """Places that were judged."""
    known: int
    """Of those, the ones that the walk has truly seen before."""
    recall_first: float
    """Share of the known whose best candidate is right."""
    recall_five: float
    """Or any of five."""
    found_at: dict[str, tuple[float, float]]
    """For each precision the least similarity at which it holds, and the share of the known that is found there."""


def place_recall(
    *,
    family: Families = Family.HOUSE.value,
    worlds: Annotated[int, typer.Option(min=1, help="Unseen ones for validation, of each family.")] = 8,
    frames: Annotated[int, typer.Option(min=200, help="Of each walk.")] = 1000,
    places: Annotated[int, typer.Option(min=8, help="Places that the index may hold.")] = IndexRule().max_places,
    model: Annotated[str, typer.Option(help="A geometry model.")] = "micro-map",
    as_json: AsJson = False,
) -> None:
    """Walk through unseen worlds and ask after every place whether it was seen before: recall and precision."""
    torch.set_num_threads(1)
    network, rule = load_model(model).eval(), IndexRule(max_places=places)
    families, figures = families_named(split_names(family)), []
    with counting("walking", len(families) * worlds) as advance:
        for one in families:
            judged = []
            for seed in itertools.islice(seeds(Split.VALIDATION), worlds):
                tour = Tour(seed=seed, width=_SIZE[1], height=_SIZE[0], family=one)
                judged += judge_walk(network, tour, frames, rule)
                advance(1)
            figures.append(_figures(one, worlds, judged))
    rows = [
        [one.family, str(one.known), f"{one.recall_first:.2f}", f"{one.recall_five:.2f}"]
        + [f"{share:.2f} at {least:.2f}" for least, share in one.found_at.values()]
        for one in figures
    ]
    headings = ["family", "seen before", "first", f"of {_CANDIDATES}", *(f"precision {least}" for least in _PRECISIONS)]
    show([asdict(one) for one in figures], [table(headings, rows)], as_json=as_json)


def judge_walk(network: GeometryModel, tour: Tour, frames: int, rule: IndexRule) -> list[JudgedPlace]:
    """Each place as soon as its neighbours are known."""
    index, places, judged = PlaceIndex.empty(network.config.width, rule), dict[int, TruePlace](), []
    for view, look in looks(network, tour, frames):
        before = index
        index = index.with_keyframe(look, frame=view.index, window=0, timestamp_s=view.timestamp_s)
        if len(before) == len(index) and (index.frame == before.frame).all():
            continue
        places[view.index] = TruePlace.of(view)
        if found := index.candidates(_CANDIDATES):
            judged.append(judge_place(found, places, rule))
    return judged


@torch.inference_mode()
def looks(network: GeometryModel, tour: Tour, frames: int) -> list[tuple[View, Float[np.ndarray, " channels"]]]:
    """Frames with their descriptors."""
    grid = network.grid(tour.height, tour.width)
    return [
        (view, network.descriptor(network.encode(view.image[None, None], grid))[0, 0].numpy())
        for view in itertools.islice(tour.views(), frames)
    ]


def _figures(family: Family, walks: int, judged: list[JudgedPlace]) -> RecallFigures:
    known = [one for one in judged if one.is_known]
    ordered = sorted(judged, key=lambda one: -one.similarity)
    right = np.cumsum([one.is_right for one in ordered])
    precision = right / np.arange(1, len(ordered) + 1)
    found_at = {}
    for least in _PRECISIONS:
        enough = np.flatnonzero(precision >= least)
        last = int(enough[-1]) if len(enough) else None
        found_at[str(least)] = (
            (1.0, 0.0) if last is None else (ordered[last].similarity, float(right[last]) / max(1, len(known)))
        )
    return RecallFigures(
        family=family,
        walks=walks,
        asked=len(judged),
        known=len(known),
        recall_first=sum(one.is_right for one in known) / max(1, len(known)),
        recall_five=sum(one.any_is_right for one in known) / max(1, len(known)),
        found_at=found_at,
    )
