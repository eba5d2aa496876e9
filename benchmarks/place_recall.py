"""Whether an index of descriptors finds places again: walks through unseen worlds, against what frames truly share.

Two frames show the same place if a part of each one's pixels, lifted by its true depth, is seen in the other.
"""

import itertools
from dataclasses import asdict, dataclass
from typing import Annotated

import numpy as np
import torch
import typer
from jaxtyping import Bool, Float
from torch import Tensor

from longtake.cli.options import AsJson, Families, split_names
from longtake.cli.progress import counting
from longtake.cli.tables import show, table
from longtake.geometry.model import GeometryModel
from longtake.hub.load import load_model
from longtake.places.index import Candidate, IndexRule, PlaceIndex
from longtake.world.families import Family, families_named
from longtake.world.seeds import Split, seeds
from longtake.world.tour import Tour, View

_SIZE = (98, 126)
_SHARED = 0.25
"""Of the pixels of both, in frames that show the same place."""
_PIXELS = 7
"""Between pixels that are lifted."""
_AGREE = 0.15
"""Of the depth by which a pixel may differ, beside a tenth of a metre."""
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


@dataclass(frozen=True, slots=True)
class _Judged:
    similarity: float
    is_right: bool
    any_is_right: bool
    is_known: bool


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


def judge_walk(network: GeometryModel, tour: Tour, frames: int, rule: IndexRule) -> list[_Judged]:
    """Each place as soon as its neighbours are known."""
    index, places, judged = PlaceIndex.empty(network.config.width, rule), dict[int, View](), []
    for view, look in looks(network, tour, frames):
        before = index
        index = index.with_keyframe(look, frame=view.index, window=0, timestamp_s=view.timestamp_s)
        if len(before) == len(index) and (index.frame == before.frame).all():
            continue
        places[view.index] = view
        if found := index.candidates(_CANDIDATES):
            judged.append(_judge(found, places, rule))
    return judged


@torch.inference_mode()
def looks(network: GeometryModel, tour: Tour, frames: int) -> list[tuple[View, Float[np.ndarray, " channels"]]]:
    """Frames with their descriptors."""
    grid = network.grid(tour.height, tour.width)
    return [
        (view, network.descriptor(network.encode(view.image[None, None], grid))[0, 0].numpy())
        for view in itertools.islice(tour.views(), frames)
    ]


def _judge(found: list[Candidate], places: dict[int, View], rule: IndexRule) -> _Judged:
    here = places[found[0].frame]
    old = [view for frame, view in places.items() if frame <= here.index - rule.gap_frames]
    shared = dict(zip((view.index for view in old), shares(here, old).tolist(), strict=True))
    right = [shared[candidate.old_frame] >= _SHARED for candidate in found]
    return _Judged(found[0].similarity, right[0], any(right), max(shared.values()) >= _SHARED)


def shares(here: View, others: list[View]) -> Float[Tensor, " others"]:
    """Share of the pixels that each other view and this one have in common, the smaller of the two."""
    stacked = tuple(
        torch.stack([getter.double() for getter in column])
        for column in zip(*((view.depth, view.world_from_camera) for view in others), strict=True)
    )
    ours = (here.depth.double()[None].expand_as(stacked[0]), here.world_from_camera.expand_as(stacked[1]))
    intrinsics = here.intrinsics.double()
    return torch.minimum(
        _seen(ours, stacked, intrinsics).double().mean(dim=1), _seen(stacked, ours, intrinsics).double().mean(dim=1)
    )


def _seen(
    views: tuple[Tensor, ...], others: tuple[Tensor, ...], intrinsics: Float[Tensor, "3 3"]
) -> Bool[Tensor, "views pixels"]:
    """Whether pixels of each view are seen in the other one."""
    height, width = views[0].shape[1:]
    rows, columns = torch.meshgrid(torch.arange(0, height, _PIXELS), torch.arange(0, width, _PIXELS), indexing="ij")
    pixels = torch.stack([columns + 0.5, rows + 0.5, torch.ones_like(rows)], dim=-1).double().flatten(0, 1)
    depth = views[0][:, rows, columns].flatten(1)
    lifted = (pixels @ intrinsics.inverse().T) * depth.nan_to_num(posinf=0)[..., None]
    other_from_view = torch.linalg.inv(others[1]) @ views[1]
    points = lifted @ other_from_view[:, :3, :3].transpose(1, 2) + other_from_view[:, None, :3, 3]
    projected = points @ intrinsics.T
    column, row = (projected[..., axis] / projected[..., 2] for axis in (0, 1))
    inside = (points[..., 2] > 0.1) & (column >= 0) & (column < width) & (row >= 0) & (row < height)
    place = (row.nan_to_num(0, 0, 0).clamp(0, height - 1).long(), column.nan_to_num(0, 0, 0).clamp(0, width - 1).long())
    there = others[0][torch.arange(len(points))[:, None], *place]
    near = (there - points[..., 2]).abs() < _AGREE * points[..., 2] + 0.1
    seen: Tensor = inside & near & depth.isfinite()
    return seen


def _figures(family: Family, walks: int, judged: list[_Judged]) -> RecallFigures:
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
