"""What closing loops is worth: walks through unseen worlds with loops, and what they were without, a row each."""

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, UInt8
from torch import Tensor

from benchmarks.following import Followed, PoseErrors, pose_errors
from benchmarks.loop_network import SIZE, loop_network
from benchmarks.loop_truth import LoopWatch, WatchedVerifier
from benchmarks.many_worlds import Task
from benchmarks.point_score import POINT_EVERY, Points, found_points, in_metres, score, thinned, true_points
from longtake.places.looped_session import LoopedSession
from longtake.places.walk import Walk
from longtake.world.families import Family
from longtake.world.seeds import Split, seeds
from longtake.world.tour import Tour, View

_DRAWN = 3000
"""Points of a picture from above, at most."""
_DRAWN_STEP = 5
"""Frames between two points of the way."""
_WALLS_M = (-1.9, -0.4)
"""Heights, downwards, between which points are drawn: neither floors nor ceilings."""


def walk_tasks(
    families: Sequence[Family], split: Split, worlds: int, frames: int, model: str, *, first: int = 0
) -> list[Task]:
    """Each world once."""
    return [
        {"family": family.value, "seed": seed, "frames": frames, "model": model}
        for family in families
        for seed in itertools.islice(seeds(split, first), worlds)
    ]


def walk_figures(task: Task) -> dict[str, Any]:
    """One walk to its end, with loops and without: errors, points against the truth, what was believed and is true.

    As long as it is never lost, what a session says before loops move it is what one without loops says. Where it was
    lost, a session without loops walks the same way again.
    """
    network = loop_network(task["model"])
    verifier = WatchedVerifier(network.card)
    session = LoopedSession(network.open(), verifier)
    watch, followed, truth, clouds, seconds = LoopWatch(verifier), Followed(POINT_EVERY), [], list[Points](), 0.0
    for view in _views(task):
        truth.append(view.world_from_camera.double())
        if view.index % POINT_EVERY == 0:
            clouds.append(true_points(view))
        started_s = time.process_time()
        geometry = session.step(_picture(view), view.timestamp_s)
        seconds += time.process_time() - started_s
        followed.hear(geometry)
        watch.see(view, session.walk)
    followed.hear(session.finish())
    without = _walked_without(task) if any(session.walk.nodes.is_lost) else said_before_loops(followed, session.walk)
    return {
        "without": _figures(without, torch.stack(truth), clouds),
        "with": _figures(followed, torch.stack(truth), clouds),
        "ms": 1000 * seconds / task["frames"],
        **_loops(session.walk, watch),
    }


def said_before_loops(followed: Followed, walk: Walk) -> Followed:
    """All frames as they were said, with what loops moved taken back."""
    said_from_known = {frame: walk.known_from_said(frame).inverse() for frame in followed.cameras}
    return Followed(
        every=followed.every,
        cameras={frame: said_from_known[frame].of_cameras(camera) for frame, camera in followed.cameras.items()},
        kept={
            frame: replace(one, depth=float(said_from_known[frame].scale) * one.depth)
            for frame, one in followed.kept.items()
        },
    )


def _walked_without(task: Task) -> Followed:
    session, followed = loop_network(task["model"]).open(), Followed(POINT_EVERY)
    for view in _views(task):
        followed.hear(session.step(_picture(view), view.timestamp_s))
    followed.hear(session.finish())
    return followed


def _views(task: Task) -> Iterator[View]:
    tour = Tour(seed=task["seed"], width=SIZE[1], height=SIZE[0], family=Family(task["family"]))
    return itertools.islice(tour.views(), task["frames"])


def _picture(view: View) -> UInt8[Tensor, "3 height width"]:
    return (view.image * 255).round().byte()


def _figures(followed: Followed, truth: Float64[Tensor, "frames 4 4"], clouds: list[Points]) -> dict[str, Any]:
    errors = pose_errors(followed.trajectory(), truth)
    return {
        "metres": errors.metres,
        "degrees": errors.degrees,
        **_points(followed, clouds),
        "way": _way(truth, followed, errors),
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
        "num_sub_maps": len(walk.nodes.sub_maps),
        "num_apart": len(walk.apart),
        "megabytes": walk.num_bytes / 1e6,
        "loops": [asdict(loop) for loop in watch.loops()],
        "places": [asdict(place) for place in watch.judged],
    }
