"""One take laid into the world of another by the places that both know: spans of frames move, each as a whole.

nodes   0 ── 1 ── 2 ┄┄ 3 ── 4 ── 5         spans of the old take, then of the new one, which is a sub-map of its own
        └─────────┼────┘         │
                  └── links ─────┘

An old take that must not move is one node, which never does.
"""

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from longtake.places.graph import PlaceGraph
from longtake.places.known_take import KnownTake
from longtake.places.links import Link
from longtake.places.loops import Spread
from longtake.places.solver import Solving
from longtake.places.verification import between_windows, rigid
from longtake.places.walk import LoopRule
from longtake.spatial.similarity import Similarity
from longtake.takes.corrections import CorrectedSpan, Corrections
from longtake.takes.take import Take

_FEWEST_LINKS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """How the frames of two takes move into one world, which is that of the old one."""

    old: Corrections | None
    """None where it stays."""
    new: Corrections
    num_links: int
    """That are believed, after all."""


def lay(
    old: KnownTake, new: KnownTake, links: Sequence[Link], rule: LoopRule | None = None, *, moves_old: bool
) -> Laid | None:
    """By links that agree; None where too few are believed when all are weighed together."""
    rule = rule or LoopRule()
    old_spans = _Spans.of(old.take, rule) if moves_old else _Spans.whole(old.take)
    new_spans = _Spans.of(new.take, rule)
    graph = PlaceGraph.of_first(old_spans.anchors[0])
    graph = old_spans.chained(graph, rule)
    graph = graph.followed_by_sub_map(links[0].old_from_new @ new_spans.anchors[0])
    graph = new_spans.chained(graph, rule)
    for link in links:
        first, second = old_spans.node_of(link.old_frame), new_spans.node_of(link.new_frame)
        old_camera = old_spans.anchors[first].inverse().of_cameras(link.old_camera)
        new_camera = new_spans.anchors[second].inverse().of_cameras(link.new_camera)
        noise = link.verdict.noise
        assert noise is not None
        lever = float(new_camera[:3, 3].norm())
        spread = replace(noise, translation=math.hypot(noise.translation, noise.rotation_rad * lever))
        measured = between_windows(link.verdict.new_from_old, old_camera, new_camera)
        graph = graph.with_loop(first, len(old_spans.anchors) + second, measured, spread)
    graph = Solving.of(graph).solved().adopted_by(graph)
    num_links = int((~graph.loops.is_withdrawn).sum())
    if num_links < _FEWEST_LINKS:
        return None
    return Laid(
        old=old_spans.corrections(graph, 0) if moves_old else None,
        new=new_spans.corrections(graph, len(old_spans.anchors)),
        num_links=num_links,
    )


@dataclass(frozen=True, slots=True)
class _Spans:
    """Neighbouring frames of a take that move as a whole."""

    starts: tuple[int, ...]
    last: int
    anchors: tuple[Similarity, ...]
    """The first camera of each."""
    units: tuple[float, ...]
    """Median depth that each begins with."""

    @classmethod
    def whole(cls, take: Take) -> "_Spans":
        return cls._from(take, [0])

    @classmethod
    def of(cls, take: Take, rule: LoopRule) -> "_Spans":
        """A span for each window, or for so many frames where windows are longer."""
        begins = [0]
        for position, record in enumerate(take.records):
            start = take.records[begins[-1]]
            if (record.window or 0) > (start.window or 0) or record.index - start.index >= rule.longest_node:
                begins.append(position)
        return cls._from(take, begins)

    @classmethod
    def _from(cls, take: Take, begins: list[int]) -> "_Spans":
        return cls(
            tuple(take.records[position].index for position in begins),
            take.records[-1].index,
            tuple(rigid(take.trajectory.world_from_camera[position]) for position in begins),
            tuple(_median_depth(take, position) for position in begins),
        )

    def node_of(self, frame: int) -> int:
        return bisect.bisect_right(self.starts, frame) - 1

    def chained(self, graph: PlaceGraph, rule: LoopRule) -> PlaceGraph:
        """A graph that ends with the first span, with all others behind it."""
        for node in range(1, len(self.anchors)):
            drift = Spread(
                translation=rule.drift.translation * self.units[node],
                rotation_rad=rule.drift.rotation_rad,
                log_scale=rule.drift.log_scale,
            )
            graph = graph.followed_by(self.anchors[node - 1].inverse() @ self.anchors[node], drift)
        return graph

    def corrections(self, graph: PlaceGraph, first_node: int) -> Corrections:
        stops = (*self.starts[1:], self.last + 1)
        return Corrections(
            tuple(
                CorrectedSpan(
                    first_frame=start,
                    last_frame=stop - 1,
                    known_from_said=graph.node(first_node + node) @ self.anchors[node].inverse(),
                )
                for node, (start, stop) in enumerate(zip(self.starts, stops, strict=True))
            )
        )


def _median_depth(take: Take, position: int) -> float:
    depth = take.depth(position)
    usable = depth[depth > 0]
    return float(np.median(usable)) if usable.size else 1.0
