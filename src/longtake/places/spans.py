"""One walk or two in one graph, by places that are known again: spans of frames, each of which moves as a whole.

nodes   0 ── 1 ── 2 ┄┄ 3 ── 4 ── 5         spans of the old walk, then of the new one, which is a sub-map of its own
        └─────────┼────┘         │
                  └── links ─────┘
"""

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from longtake.places.graph import PlaceGraph
from longtake.places.links import Link
from longtake.places.loop_rule import LoopRule
from longtake.places.loops import Spread
from longtake.places.solver import Solving
from longtake.places.verification import between_windows
from longtake.spatial.similarity import Similarity

FEWEST_LINKS = 2
"""That are believed when all are weighed together, of two walks in one world."""


@dataclass(frozen=True, slots=True)
class Spans:
    """Neighbouring frames of a walk that move as a whole."""

    starts: tuple[int, ...]
    last: int
    anchors: tuple[Similarity, ...]
    """The first camera of each."""
    units: tuple[float, ...]
    """Median depth that each begins with."""
    is_settled: bool = False
    """Whether loops laid them: their ends are then as sure of one another as neighbours are."""

    def node_of(self, frame: int) -> int:
        return bisect.bisect_right(self.starts, frame) - 1

    def chained(self, graph: PlaceGraph, rule: LoopRule) -> PlaceGraph:
        """A graph that ends with the first span, with all others behind it."""
        share = 1 / math.sqrt(max(1, len(self.anchors) - 1)) if self.is_settled else 1.0
        for node in range(1, len(self.anchors)):
            drift = Spread(
                translation=rule.drift.translation * share * self.units[node],
                rotation_rad=rule.drift.rotation_rad * share,
                log_scale=rule.drift.log_scale * share,
            )
            graph = graph.followed_by(self.anchors[node - 1].inverse() @ self.anchors[node], drift)
        return graph

    def moves(self, graph: PlaceGraph, first_node: int) -> list[Similarity]:
        """What moves each from where it was said to be, in a graph in which the first of them is that node."""
        return [graph.node(first_node + node) @ anchor.inverse() for node, anchor in enumerate(self.anchors)]


def begins_of(frames: Sequence[int], windows: Sequence[int], rule: LoopRule) -> list[int]:
    """Positions with which spans begin: one for each window, or for so many frames where windows are longer."""
    begins = [0]
    for position, (frame, window) in enumerate(zip(frames, windows, strict=True)):
        start = begins[-1]
        if window > windows[start] or frame - frames[start] >= rule.longest_node:
            begins.append(position)
    return begins


def solved_together(old: Spans, new: Spans, links: Sequence[Link], rule: LoopRule) -> PlaceGraph:
    """Where all spans lie in the world of the old ones, by links that agree."""
    graph = old.chained(PlaceGraph.of_first(old.anchors[0]), rule)
    graph = graph.followed_by_sub_map(links[0].old_from_new @ new.anchors[0])
    return _solved(new.chained(graph, rule), old, new, links, len(old.anchors))


def solved_alone(walk: Spans, links: Sequence[Link], rule: LoopRule) -> PlaceGraph:
    """Where the spans of one walk lie, by links from one to a later one."""
    return _solved(walk.chained(PlaceGraph.of_first(walk.anchors[0]), rule), walk, walk, links, 0)


def _solved(graph: PlaceGraph, old: Spans, new: Spans, links: Sequence[Link], first_new: int) -> PlaceGraph:
    """Of nodes that the new spans are from `first_new` on."""
    for link in links:
        first, second = old.node_of(link.old_frame), new.node_of(link.new_frame)
        old_camera = old.anchors[first].inverse().of_cameras(link.old_camera)
        new_camera = new.anchors[second].inverse().of_cameras(link.new_camera)
        noise = link.verdict.noise
        assert noise is not None
        lever = float(new_camera[:3, 3].norm())
        spread = replace(noise, translation=math.hypot(noise.translation, noise.rotation_rad * lever))
        measured = between_windows(link.verdict.new_from_old, old_camera, new_camera)
        graph = graph.with_loop(first, first_new + second, measured, spread)
    return Solving.of(graph).solved().adopted_by(graph)
