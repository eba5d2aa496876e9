"""Takes of one video, one behind the other, as one walk: what any of them knows of another lays them all straight.

takes    ├──────── 0 ────────┤├──────── 1 ────────┤├──── 2 ────┤     in one world, by the frames that two share
nodes    0 ── 1 ── 2 ── 3 ── 4 ── 5 ── 6 ── 7 ── 8 ── 9 ── 10        spans of frames, each of which moves as a whole
              └──────────── loop ──────────┘

Only one take's descriptors, the places of a bounded index and the pixels of two frames are held at a time.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from longtake.places.index import Candidate, PlaceIndex
from longtake.places.key_view import KeyView, shared_intrinsics
from longtake.places.known_take import is_placed, view_at
from longtake.places.links import Link
from longtake.places.loop_rule import LoopRule
from longtake.places.moved_frames import corrections
from longtake.places.spans import FEWEST_LINKS, Spans, begins_of, solved_alone
from longtake.places.verification import Verifier, median_depth, rigid
from longtake.places.walk import MOST_LOOPS_A_PAIR
from longtake.spatial.similarity import Similarity
from longtake.takes.corrections import Corrections
from longtake.takes.take import Take

_CANDIDATES = 2
"""That are verified of each place; one alone left three walks of 1,200 frames 2 to 16 % worse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaidTake:
    """A take in the world of the first."""

    take: Take
    world_from_take: Similarity
    frames_later: int
    windows_later: int
    sub_maps_later: int
    """By which its frames, windows and sub-maps come after their own numbers."""
    first: int
    stop: int
    """Positions of frames that are its own in the whole."""
    apart: frozenset[int]
    """Its sub-maps, by their own numbers, that are not in the world of the whole."""

    def frame(self, position: int) -> int:
        """Its number in the whole."""
        return self.take.records[position].index + self.frames_later

    def window(self, position: int) -> int:
        """Likewise."""
        return (self.take.records[position].window or 0) + self.windows_later

    def newest_sub_map(self, position: int) -> int:
        """That had begun with a frame, by its number in the whole."""
        tracked = [record.tracking for record in self.take.records[: position + 1] if record.tracking is not None]
        return self.sub_maps_later + max((one.sub_map for one in tracked if one.sub_map is not None), default=0)

    def is_placed(self, position: int) -> bool:
        """Whether it is known where in the world of the whole the camera was."""
        return is_placed(self.take.records[position].tracking, self.apart)

    def camera(self, position: int) -> Float64[Tensor, "4 4"]:
        return self.world_from_take.of_cameras(self.take.trajectory.world_from_camera[position])

    def view(self, position: int, intrinsics: Float64[Tensor, "3 3"]) -> KeyView:
        """A frame as it is verified by, in the unit of the whole."""
        view = view_at(self.take, position, intrinsics)
        return replace(view, frame_index=self.frame(position), depth=view.depth * float(self.world_from_take.scale))


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """What loops make of a chain."""

    moves: Corrections
    """Of all frames, by their numbers in the whole."""
    num_links: int
    """Loops between two takes that are believed when all are weighed together."""


def close_loops(takes: Sequence[LaidTake], verifier: Verifier, rule: LoopRule | None = None) -> Closed | None:
    """None where too few loops between takes are believed: nothing moves then."""
    rule = rule or LoopRule()
    chain = _Chain.of(takes)
    spans = chain.spans(rule)
    links = chain.links(spans, verifier, rule)
    if not links:
        return None
    graph = solved_alone(spans, links, rule)
    loops, take_of = graph.loops, np.array([chain.take_of(frame) for frame in spans.starts])
    is_between = take_of[loops.first] != take_of[loops.second]
    num_links = int((is_between & ~loops.is_withdrawn).sum())
    return Closed(moves=corrections(spans, graph, 0), num_links=num_links) if num_links >= FEWEST_LINKS else None


@dataclass(frozen=True, slots=True, eq=False)
class _Chain:
    takes: tuple[LaidTake, ...]
    intrinsics: Float64[Tensor, "3 3"]
    """Of the one camera that all frames were taken with."""
    places: Mapping[int, tuple[int, int]]
    """Of each frame of the whole, its take and its position there."""

    @classmethod
    def of(cls, takes: Sequence[LaidTake]) -> "_Chain":
        places = {
            one.frame(position): (number, position)
            for number, one in enumerate(takes)
            for position in range(one.first, one.stop)
        }
        return cls(tuple(takes), shared_intrinsics(torch.cat([one.take.intrinsics for one in takes])), places)

    def spans(self, rule: LoopRule) -> Spans:
        """What of it moves as a whole: no two takes."""
        frames, places = list(self.places), list(self.places.values())
        windows = [self.takes[number].window(position) for number, position in places]
        begins = begins_of(frames, windows, rule)
        return Spans(
            tuple(frames[begin] for begin in begins),
            frames[-1],
            tuple(rigid(self.camera(frames[begin])) for begin in begins),
            tuple(median_depth(self.view(frames[begin])) for begin in begins),
        )

    def links(self, spans: Spans, verifier: Verifier, rule: LoopRule) -> list[Link]:
        """Of the places that each looks most like, of any take before it or its own, those that are believed."""
        links, known = list[Link](), Counter[tuple[int, int]]()
        for candidate in self._candidates(rule):
            pair = spans.node_of(candidate.old_frame), spans.node_of(candidate.frame)
            if pair[0] == pair[1] or known[pair] >= MOST_LOOPS_A_PAIR:
                continue
            if (link := self._verified(candidate, verifier)) is not None:
                known[pair] += 1
                links.append(link)
        return links

    def _candidates(self, rule: LoopRule) -> Iterator[Candidate]:
        """In the order of the walk."""
        index: PlaceIndex | None = None
        for take in self.takes:
            for position, descriptor in enumerate(take.take.descriptors()):
                if descriptor is None or not take.first <= position < take.stop or not take.is_placed(position):
                    continue
                index = (index or PlaceIndex.empty(len(descriptor), rule.index)).with_keyframe(
                    descriptor,
                    frame=take.frame(position),
                    window=take.window(position),
                    timestamp_s=take.take.records[position].timestamp_s,
                )
                if index.frame[-1] == take.frame(position):
                    found = index.candidates(_CANDIDATES)
                    yield from (one for one in found if one.similarity >= rule.least_similarity)

    def _verified(self, candidate: Candidate, verifier: Verifier) -> Link | None:
        old, new = self.view(candidate.old_frame), self.view(candidate.frame)
        verdict = verifier.verify(old, new)
        if not verdict.is_accepted:
            return None
        return Link(
            old_frame=candidate.old_frame,
            new_frame=candidate.frame,
            old_camera=self.camera(candidate.old_frame),
            new_camera=self.camera(candidate.frame),
            verdict=verdict,
            median_depth=median_depth(old),
        )

    def take_of(self, frame: int) -> int:
        """The number of its take."""
        return self.places[frame][0]

    def camera(self, frame: int) -> Float64[Tensor, "4 4"]:
        number, position = self.places[frame]
        return self.takes[number].camera(position)

    def view(self, frame: int) -> KeyView:
        number, position = self.places[frame]
        return self.takes[number].view(position, self.intrinsics)
