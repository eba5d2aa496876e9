"""What closing loops is worth: walks through unseen worlds without loops and with them, one row each."""

import itertools
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from benchmarks.following import Followed, PoseErrors, pose_errors
from benchmarks.loop_network import SIZE, loop_network
from benchmarks.loop_truth import LoopWatch, WatchedVerifier
from benchmarks.many_worlds import Task
from benchmarks.point_score import POINT_EVERY, Points, found_points, in_metres, score, thinned, true_points
from longtake.places.looped_session import LoopedSession
from longtake.places.walk import Walk
from longtake.world.families import Family
from longtake.world.seeds import Split, seeds
from longtake.world.tour import Tour

_DRAWN = 3000
"""Points of a picture from above, at most."""
_DRAWN_STEP = 5
"""Frames between two points of the way."""
_WALLS_M = (-1.9, -0.4)
"""Heights, downwards, between which points are drawn: neither floors nor ceilings."""


def walk_tasks(
    families: Sequence[Family], split: Split, worlds: int, frames: int, model: str, *, first: int = 0
) -> list[Task]:
    """Each world twice; those without loops come first, so that both are there as soon as any is."""
    return [
        {"family": family.value, "seed": seed, "frames": frames, "has_loops": has_loops, "model": model}
        for family in families
        for seed in itertools.islice(seeds(split, first), worlds)
        for has_loops in (False, True)
    ]


def walk_figures(task: Task) -> dict[str, Any]:
    """One walk to its end: errors, points against the truth, and of one with loops what was believed and is true."""
    network = loop_network(task["model"])
    tour = Tour(seed=task["seed"], width=SIZE[1], height=SIZE[0], family=Family(task["family"]))
    session, verifier = network.open(), WatchedVerifier(network.card)
    looped = LoopedSession(session, verifier) if task["has_loops"] else None
    watch, followed, truth, clouds, seconds = LoopWatch(verifier), Followed(POINT_EVERY), [], list[Points](), 0.0
    for view in itertools.islice(tour.views(), task["frames"]):
        truth.append(view.world_from_camera.double())
        if view.index % POINT_EVERY == 0:
            clouds.append(true_points(view))
        started_s = time.process_time()
        geometry = (looped or session).step((view.image * 255).round().byte(), view.timestamp_s)
        seconds += time.process_time() - started_s
        followed.hear(geometry)
        if looped is not None:
            watch.see(view, looped.walk)
    followed.hear((looped or session).finish())
    errors = pose_errors(followed.trajectory(), torch.stack(truth))
    return {
        "metres": errors.metres,
        "degrees": errors.degrees,
        "ms": 1000 * seconds / task["frames"],
        **_points(followed, clouds),
        "way": _way(torch.stack(truth), followed, errors),
        **({} if looped is None else _loops(looped.walk, watch)),
    }


def _points(followed: Followed, clouds: list[Points]) -> dict[str, Any]:
    frames = sorted(followed.kept)
    found = [found_points(followed.kept[frame], followed.cameras[frame]) for frame in frames]
    laid, true = thinned(in_metres(found, clouds)), thinned(clouds)
    scored = score(laid, true)
    return {
        "points": asdict(scored) | {"f1": scored.f1},
        "above": {"found": _from_above(laid), "true": _from_above(true)},
    }


def _from_above(points: Points) -> list[list[int]]:
    """Some points of walls and things, in centimetres along the floor."""
    inside = points[(points[:, 1] > _WALLS_M[0]) & (points[:, 1] < _WALLS_M[1])]
    chosen = np.random.default_rng(0).permutation(len(inside))[:_DRAWN]
    return _centimetres(inside[np.sort(chosen)])


def _way(truth: torch.Tensor, followed: Followed, errors: PoseErrors) -> dict[str, list[list[int]]]:
    found = errors.metres_from_unit.of_cameras(followed.trajectory())
    return {
        name: _centimetres(cameras[::_DRAWN_STEP, :3, 3].numpy())
        for name, cameras in (("found", found), ("true", truth))
    }


def _centimetres(points: Points) -> list[list[int]]:
    plan: list[list[int]] = np.round(100 * points[:, [0, 2]]).astype(int).tolist()
    return plan


def _loops(walk: Walk, watch: LoopWatch) -> dict[str, Any]:
    assert walk.graph is not None
    return {
        "num_loops": len(walk.graph.loops),
        "num_withdrawn": int(walk.graph.loops.is_withdrawn.sum()),
        "num_sub_maps": walk.num_sub_maps,
        "num_apart": walk.num_apart,
        "megabytes": walk.num_bytes / 1e6,
        "loops": [asdict(loop) for loop in watch.loops()],
        "places": [asdict(place) for place in watch.judged],
    }
