"""What a walk holds of places over 100,000 frames: looks and poses are drawn; index, graph and solver are real.

A camera goes round and round a large hall, so that it always comes back; every hundredth candidate is believed.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float64
from rich.table import Table
from torch import Tensor

from benchmarks.loop_cost import SolverWaits
from benchmarks.loop_network import SIZE
from longtake.cli.tables import table
from longtake.places.evidence import Evidence
from longtake.places.key_view import KeyView
from longtake.places.loop_card import LoopCard
from longtake.places.loops import Spread
from longtake.places.side_look import Clips
from longtake.places.tracking import Tracker, TrackingRule
from longtake.places.verification import Doubt, Verdict, Verifier, rigid
from longtake.places.walk import Held, Seen, Walk
from longtake.spatial.similarity import Similarity
from longtake.types import FrameKind, Geometry

_CHANNELS = 144
_WINDOW = 48
_ROUND = 5_000
"""Frames until the camera is where it was."""
_RADIUS = 40.0
_BELIEVED = 100
"""Candidates of which one is."""
_DRIFT_RAD = 2e-4
_NOISE = Spread(translation=0.02, rotation_rad=0.02, log_scale=0.02)
CARD = LoopCard(
    least_agreeing=1,
    least_agreeing_share=0.0,
    least_depth_agreement=0.0,
    least_colour_agreement=0.0,
    least_texture_agreement=0.0,
    noise=_NOISE,
)
"""Of one that believes all that it is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFigures:
    """After so many frames."""

    frames: int
    places: int
    nodes: int
    loops: int
    index_bytes: int
    graph_bytes: int
    view_bytes: int
    all_bytes: int
    most_bytes: int
    """That was announced."""
    slowest_solver_ms: float
    """Of all steps so far."""


def believed(new_from_old: Similarity) -> Verdict:
    """A loop that nothing speaks against."""
    evidence = Evidence(
        new_from_old=new_from_old,
        num_matches=100,
        num_agreeing=100,
        turn_deviation_rad=0.001,
        overlap=1.0,
        depth_agreement=1.0,
        colour_agreement=1.0,
        texture_agreement=1.0,
    )
    return Verdict(doubt=None, evidence=evidence, noise=_NOISE)


@dataclass(frozen=True, slots=True)
class DrawnVerifier(Verifier):
    """Believes some candidates, about where they truly are."""

    asked: list[int] = field(default_factory=list)

    def verify(self, old: KeyView, new: KeyView, clips: Clips | None = None) -> Verdict:
        del clips
        self.asked.append(new.frame_index)
        if len(self.asked) % _BELIEVED:
            return Verdict(doubt=Doubt.FEW_POINTS)
        return believed(rigid(torch.linalg.inv(_true(new.frame_index)) @ _true(old.frame_index)))


def measure_held(frames: int, at: Sequence[int]) -> Iterator[HeldFigures]:
    """A walk so long, told of at some of its frames."""
    random, picture = np.random.default_rng(0), torch.zeros(3, *SIZE, dtype=torch.uint8)
    looks = _looks(random)
    verifier, waits = DrawnVerifier(CARD), SolverWaits()
    walk, nothing, seen = Walk.begun(), _said(0, looks[0]).frames(0, 0), Seen(picture, Tracker(rule=TrackingRule()))
    for frame in range(frames):
        look = looks[frame % _ROUND] + 0.05 * random.normal(size=_CHANNELS)
        before = walk
        walk, _ = walk.stepped(seen, _said(frame, look), Held(frame, nothing), verifier)
        waits.see(before, walk)
        if frame + 1 in at:
            yield _figures(walk, max(waits.slowest_ms.values()))


def held_table(figures: Sequence[HeldFigures]) -> Table:
    """A line for each number of frames."""
    headings = [
        *("frames", "places", "nodes", "loops", "index, kB", "graph, kB", "pictures, MB", "all, MB", "announced, MB"),
        "slowest wait for the solver, ms",
    ]
    rows = [
        [
            *(str(one.frames), str(one.places), str(one.nodes), str(one.loops)),
            *(f"{one.index_bytes / 1e3:.0f}", f"{one.graph_bytes / 1e3:.0f}"),
            *(f"{number / 1e6:.1f}" for number in (one.view_bytes, one.all_bytes, one.most_bytes)),
            f"{one.slowest_solver_ms:.1f}",
        ]
        for one in figures
    ]
    return table(headings, rows)


def _figures(walk: Walk, slowest_ms: float) -> HeldFigures:
    assert walk.index is not None
    assert walk.graph is not None
    return HeldFigures(
        frames=walk.num_frames,
        places=len(walk.index),
        nodes=len(walk.graph),
        loops=len(walk.graph.loops),
        index_bytes=walk.index.num_bytes,
        graph_bytes=walk.graph.num_bytes,
        view_bytes=sum(view.num_bytes for view in walk.views),
        all_bytes=walk.num_bytes,
        most_bytes=walk.rule.most_bytes(SIZE, _CHANNELS),
        slowest_solver_ms=slowest_ms,
    )


def _looks(random: np.random.Generator) -> Float64[np.ndarray, "round channels"]:
    """Of all places of the hall, which change slowly along the way and are the same each time."""
    looks, look = [], np.zeros(_CHANNELS)
    for _ in range(_ROUND):
        look = 0.98 * look + 0.2 * random.normal(size=_CHANNELS)
        looks.append(look)
    return np.stack(looks)


def _true(frame: int) -> Float64[Tensor, "4 4"]:
    return _pose(2 * math.pi * frame / _ROUND)


def _pose(turn_rad: float) -> Float64[Tensor, "4 4"]:
    """On a circle, looking along it."""
    cosine, sine = math.cos(turn_rad), math.sin(turn_rad)
    pose = torch.eye(4, dtype=torch.float64)
    pose[:3, :3] = torch.tensor([[cosine, 0.0, sine], [0.0, 1.0, 0.0], [-sine, 0.0, cosine]])
    pose[:3, 3] = _RADIUS * torch.tensor([1 - cosine, 0.0, sine])
    return pose


def _said(frame: int, look: Float64[np.ndarray, " channels"]) -> Geometry:
    """As a session would say it that turns a little too far."""
    return Geometry(
        frame_index=(frame,),
        timestamp_s=(frame / 10,),
        kind=(FrameKind.KEYFRAME,),
        window=(frame // _WINDOW,),
        provisional=(False,),
        pose_encoding=torch.zeros(1, 9),
        world_from_camera=_pose((2 * math.pi / _ROUND + _DRIFT_RAD / _WINDOW) * frame)[None].float(),
        intrinsics=torch.tensor([[[80.0, 0.0, 63.0], [0.0, 80.0, 49.0], [0.0, 0.0, 1.0]]]),
        depth=torch.full((1, *SIZE), 2.0),
        depth_confidence=torch.full((1, *SIZE), 2.0),
        descriptor=torch.from_numpy(look)[None].float(),
    )
