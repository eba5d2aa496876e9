"""Second walks through houses that were mapped before: where they are known, how exactly; never in a strange one."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float64
from rich.table import Table
from torch import Tensor

from benchmarks.following import pose_errors
from benchmarks.known_walk import KnownWalk
from benchmarks.loop_network import loop_network
from benchmarks.many_worlds import Row, Task
from longtake.cli.tables import table
from longtake.evaluation.motion import rotation_angle_deg
from longtake.places.finding import Way, find_way
from longtake.places.loop_rule import LoopRule
from longtake.places.spans import FEWEST_LINKS, solved_together
from longtake.places.verification import Verifier
from longtake.spatial.similarity import best_similarity
from longtake.world.seeds import Split, seeds

_SOON, _NEAR_M, _NEAR_DEG = 30, 0.3, 6.0
"""Frames within which a walk is to be located, and how exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondWalk:
    """A second walk in a house that the first one knows; errors where it was located first."""

    known_at: int | None
    """The frame with which it was; None where it never was."""
    metres: float | None = None
    degrees: float | None = None
    """From the place that it was known by, against the truth."""
    metres_in_world: float | None = None
    degrees_in_world: float | None = None
    """In the whole world of the first walk, what that drifted included."""
    num_places: int = 0
    first_m: float
    """Root mean square of the first walk's positions, after one similarity."""
    merged_m: float | None = None
    """Of both walks, merged."""
    together_m: float | None = None
    """Of one walk with as many frames as both."""

    @property
    def is_soon(self) -> bool:
        return self.known_at is not None and self.known_at < _SOON

    @property
    def is_near(self) -> bool:
        """At the place that it was known by."""
        return _is_near(self.metres, self.degrees)

    @property
    def is_near_in_world(self) -> bool:
        return _is_near(self.metres_in_world, self.degrees_in_world)


def _is_near(metres: float | None, degrees: float | None) -> bool:
    return metres is not None and degrees is not None and metres <= _NEAR_M and degrees <= _NEAR_DEG


def second_walk_tasks(
    split: Split, worlds: int, frames: int, second_frames: int, strange: int, model: str
) -> list[Task]:
    """Each house with its two walks, and others whose second walks are strange to it."""
    chosen = list(itertools.islice(seeds(split), worlds))
    return [
        {
            "seed": seed,
            "frames": frames,
            "second_frames": second_frames,
            "strange": [chosen[(place + other) % worlds] for other in range(1, min(strange, worlds - 1) + 1)],
            "model": model,
        }
        for place, seed in enumerate(chosen)
    ]


def second_walk_figures(task: Task) -> dict[str, Any]:
    """A house mapped, walked again, and strange walks looked for in it."""
    network = loop_network(task["model"])
    verifier = Verifier(network.card)
    frames, second_frames = task["frames"], task["second_frames"]
    first, together = KnownWalk.walked(network, task["seed"], 0, frames, frames + second_frames)
    second, *strangers = (_second_walk(task["model"], seed, second_frames) for seed in (task["seed"], *task["strange"]))
    claimed = [find_way(first, stranger, verifier) is not None for stranger in strangers]
    compared = _compared(first, second, verifier, pose_errors(together.cameras, together.truth).metres)
    return asdict(compared) | {
        "is_soon": compared.is_soon,
        "is_near": compared.is_near,
        "is_near_in_world": compared.is_near_in_world,
        "claimed": sum(claimed),
    }


@lru_cache(maxsize=8)
def _second_walk(model: str, seed: int, frames: int) -> KnownWalk:
    """Strange to several houses."""
    return KnownWalk.walked(loop_network(model), seed, 1, frames)[0]


def _compared(first: KnownWalk, second: KnownWalk, verifier: Verifier, together_m: float) -> SecondWalk:
    first_m = pose_errors(first.cameras, first.truth).metres
    way = find_way(first, second, verifier)
    if way is None:
        return SecondWalk(known_at=None, first_m=first_m, together_m=together_m)
    near, whole = _located(way, first.cameras, [first.truth, second.truth])
    rule = LoopRule()
    old, new = first.spans(rule), second.spans(rule)
    graph = solved_together(old, new, way.links, rule)
    num_places = int((~graph.loops.is_withdrawn).sum())
    merged_m = None
    if num_places >= FEWEST_LINKS:
        merged = [first.moved(old, old.moves(graph, 0)), second.moved(new, new.moves(graph, len(old.anchors)))]
        merged_m = pose_errors(torch.cat(merged), torch.cat([first.truth, second.truth])).metres
    return SecondWalk(
        known_at=way.known_at,
        metres=near[0],
        degrees=near[1],
        metres_in_world=whole[0],
        degrees_in_world=whole[1],
        num_places=num_places,
        first_m=first_m,
        merged_m=merged_m,
        together_m=together_m,
    )


def _located(
    way: Way, cameras: Float64[Tensor, "frames 4 4"], true: Sequence[Float64[Tensor, "frames 4 4"]]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Metres and degrees by which the camera is off: from the old one that it was known by, and in the whole world."""
    link = way.at_first[-1]
    camera, old_true, new_true = link.old_from_new.of_cameras(link.new_camera), true[0], true[1][link.new_frame]
    metres_from_unit = best_similarity(cameras[:, :3, 3].contiguous(), old_true[:, :3, 3])
    from_old = torch.linalg.inv(link.old_camera) @ camera
    from_old[:3, 3] *= metres_from_unit.scale
    return (
        _apart(from_old, torch.linalg.inv(old_true[link.old_frame]) @ new_true),
        _apart(metres_from_unit.of_cameras(camera), new_true),
    )


def _apart(one: Float64[Tensor, "4 4"], other: Float64[Tensor, "4 4"]) -> tuple[float, float]:
    turn_deg = float(rotation_angle_deg(one[:3, :3].T @ other[:3, :3]))
    return float((one[:3, 3] - other[:3, 3]).norm()), turn_deg


def second_walk_blocks(rows: Sequence[Row]) -> Iterator[Table | str]:
    """A line a house, and what all of them come to."""
    headings = [
        *("seed", "known at", "m", "degrees", "m in world", "degrees in world"),
        *("places", "first walk, m", "merged, m", "one walk, m", "claimed in a strange house"),
    ]
    yield table(headings, map(_cells, rows))
    figures = [row.figures for row in rows]
    soon = [one for one in figures if one["is_soon"]]
    ratios = [one["merged_m"] / one["together_m"] for one in figures if one["merged_m"] is not None]
    strange = sum(len(row.task["strange"]) for row in rows)
    yield (
        f"{len(soon)} of {len(rows)} known within {_SOON} frames, {sum(one['is_near'] for one in soon)} within "
        f"{_NEAR_M} m and {_NEAR_DEG:.0f} degrees of the place they were known by "
        f"({sum(one['is_near_in_world'] for one in soon)} in the whole world); "
        f"{sum(one['claimed'] for one in figures)} of {strange} claimed in a strange house; merged within 1.2 times of "
        f"one walk in {sum(ratio <= 1.2 for ratio in ratios)} of {len(ratios)}"
    )


def _cells(row: Row) -> list[str]:
    def shown(name: str, digits: int = 2) -> str:
        number = row.figures[name]
        return "" if number is None else f"{number:.{digits}f}"

    one = row.figures
    return [
        *(str(row.task["seed"]), "never" if one["known_at"] is None else str(one["known_at"])),
        *(shown("metres"), shown("degrees", 1), shown("metres_in_world"), shown("degrees_in_world", 1)),
        *(str(one["num_places"]), shown("first_m"), shown("merged_m"), shown("together_m")),
        f"{one['claimed']} of {len(row.task['strange'])}",
    ]
