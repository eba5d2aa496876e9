"""A walk as tensors and plain values, and back to the bit."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np
import torch
from torch import Tensor

from longtake.errors import SavedSessionError, SettingError
from longtake.places.graph import PlaceGraph
from longtake.places.index import Candidate, PlaceIndex
from longtake.places.kept_view import KeptView
from longtake.places.loop_rule import LoopRule
from longtake.places.nodes import Nodes
from longtake.places.overlay import Cover
from longtake.places.saved_tracker import state_numbers, states_of, tracker_of, tracker_tensors
from longtake.places.solver import Solving
from longtake.places.walk import Walk
from longtake.records import record_from
from longtake.spatial.similarity import Similarity

_COUNTS = ("num_frames", "adopts_at", "num_loops_seen", "num_corrections", "is_joined")
_SIMILARITY = 13
_VIEW_NUMBERS = 1 + 9 + 16


def walk_tensors(walk: Walk) -> dict[str, Tensor]:
    """All but the rule."""
    counts = [getattr(walk, name) for name in _COUNTS]
    return {
        "counts": torch.tensor(counts, dtype=torch.int64),
        "nodes": torch.tensor([walk.nodes.starts, walk.nodes.windows, walk.nodes.is_lost], dtype=torch.int64),
        "states": state_numbers(walk.states),
        **_cover_tensors(walk.covers),
        **_under("tracker", tracker_tensors(walk.tracker)),
        **({} if walk.last_camera is None else {"last_camera": _numbers(walk.last_camera)}),
        "anchors": _stacked([_numbers(anchor) for anchor in walk.nodes.anchors], (_SIMILARITY,)),
        "candidates": torch.tensor([astuple(one) for one in walk.candidates], dtype=torch.float64).reshape(-1, 7),
        **({} if not walk.waiting else {"waiting": torch.stack(walk.waiting)}),
        **_view_tensors(walk.views),
        **_under("index", None if walk.index is None else walk.index.tensors()),
        **_under("graph", None if walk.graph is None else walk.graph.tensors()),
        **_under("solving", None if walk.solving is None else walk.solving.tensors()),
    }


def walk_of(tensors: Mapping[str, Tensor], rule: LoopRule) -> Walk:
    """What `walk_tensors` gave."""
    try:
        return _walk_of(tensors, rule)
    except (KeyError, ValueError, RuntimeError, IndexError, SettingError) as error:
        raise SavedSessionError(f"The saved session's loops do not fit together ({error}); save it again.") from error


def rule_of(record: Mapping[str, Any]) -> LoopRule:
    """What `asdict` gave."""
    try:
        return record_from(LoopRule, record)
    except (ValueError, SettingError) as error:
        raise SavedSessionError(f"The saved session's rule for loops does not fit ({error}); save it again.") from error


def _walk_of(tensors: Mapping[str, Tensor], rule: LoopRule) -> Walk:
    starts, windows, is_lost = tensors["nodes"].tolist()
    *counts, is_joined = tensors["counts"].tolist()
    anchors = tuple(Similarity.of_numbers(row, dtype=torch.float64) for row in tensors["anchors"].tolist())
    graph, index, solving, tracker = (_below(tensors, name) for name in ("graph", "index", "solving", "tracker"))
    last_camera = tensors.get("last_camera")
    walk = Walk(
        rule=rule,
        tracker=tracker_of(tracker, rule.tracking),
        states=states_of(tensors["states"]),
        covers=_covers_of(tensors),
        nodes=Nodes(starts=tuple(starts), windows=tuple(windows), is_lost=tuple(map(bool, is_lost)), anchors=anchors),
        is_joined=bool(is_joined),
        last_camera=None if last_camera is None else Similarity.of_numbers(last_camera.tolist(), dtype=torch.float64),
        waiting=tuple(tensors["waiting"].clone()) if "waiting" in tensors else (),
        index=PlaceIndex.of_tensors(index, rule.index) if index else None,
        views=_views_of(tensors),
        graph=PlaceGraph.of_tensors(graph) if graph else None,
        candidates=tuple(_candidate(row) for row in tensors["candidates"].tolist()),
        solving=Solving.of_tensors(solving) if solving else None,
        **dict(zip(_COUNTS[:-1], counts, strict=True)),
    )
    num_nodes = 0 if walk.graph is None else len(walk.graph)
    places = [] if walk.index is None else walk.index.frame.tolist()
    has_fitting_nodes = (
        len(starts) == len(anchors) == num_nodes and len(walk.covers) == len(walk.states) <= walk.num_frames
    )
    if not has_fitting_nodes or [view.frame for view in walk.views] != places:
        raise SavedSessionError("The saved session's nodes or places do not fit each other; save it again.")
    return walk


def _cover_tensors(covers: Sequence[Cover]) -> dict[str, Tensor]:
    """Each run of frames with the same overlays once, and of each frame which that is."""
    runs, numbers, before = list[Tensor](), list[int](), None
    for cover in covers:
        if cover is not None and cover is not before:
            runs.append(torch.from_numpy(cover.astype(np.uint8)))
        numbers.append(-1 if cover is None else len(runs) - 1)
        before = cover
    return {"cover_of_frame": torch.tensor(numbers, dtype=torch.int64)} | (
        {"covers": torch.stack(runs)} if runs else {}
    )


def _covers_of(tensors: Mapping[str, Tensor]) -> tuple[Cover, ...]:
    runs = [run.numpy().astype(bool) for run in tensors["covers"]] if "covers" in tensors else []
    return tuple(None if number < 0 else runs[number] for number in tensors["cover_of_frame"].tolist())


def _view_tensors(views: Sequence[KeptView]) -> dict[str, Tensor]:
    if not views:
        return {}
    numbers = [
        torch.cat(
            [
                torch.tensor([view.unit], dtype=torch.float64),
                view.intrinsics.flatten(),
                view.world_from_camera.flatten(),
            ]
        )
        for view in views
    ]
    return {
        "view.frame": torch.tensor([view.frame for view in views]),
        "view.image": torch.stack([view.image for view in views]),
        "view.depth": torch.stack([view.depth for view in views]),
        "view.confidence": torch.stack([view.confidence for view in views]),
        "view.numbers": _stacked(numbers, (_VIEW_NUMBERS,)),
    }


def _views_of(tensors: Mapping[str, Tensor]) -> tuple[KeptView, ...]:
    if "view.frame" not in tensors:
        return ()
    return tuple(
        KeptView(
            frame=frame,
            image=image.clone(),
            depth=depth.clone(),
            confidence=confidence.clone(),
            unit=float(numbers[0]),
            intrinsics=numbers[1:10].reshape(3, 3).clone(),
            world_from_camera=numbers[10:].reshape(4, 4).clone(),
        )
        for frame, image, depth, confidence, numbers in zip(
            tensors["view.frame"].tolist(),
            tensors["view.image"],
            tensors["view.depth"],
            tensors["view.confidence"],
            tensors["view.numbers"],
            strict=True,
        )
    )


def _candidate(row: Sequence[float]) -> Candidate:
    frame, window, old_frame, old_window, similarity, own_similarity, is_backwards = row
    return Candidate(
        frame=int(frame),
        window=int(window),
        old_frame=int(old_frame),
        old_window=int(old_window),
        similarity=similarity,
        own_similarity=own_similarity,
        is_backwards=bool(is_backwards),
    )


def _numbers(similarity: Similarity) -> Tensor:
    return torch.tensor(similarity.numbers(), dtype=torch.float64)


def _stacked(rows: Sequence[Tensor], shape: tuple[int, ...]) -> Tensor:
    return torch.stack(list(rows)) if rows else torch.empty((0, *shape), dtype=torch.float64)


def _under(prefix: str, tensors: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
    return {} if tensors is None else {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(f"{prefix}."): tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}.")
    }
