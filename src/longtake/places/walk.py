"""What a session remembers of its way, to know a place again: nodes, places, loops; a value that a step replaces.

frames   0 ........ 52 ........ 104 ....... 156          a node begins with each window, and half-way through it
                                 ▲ looks like frame 20: a candidate
                                   verified, one candidate in a few frames
                                     believed: the graph is solved, one step a frame
                                       ▲ adopted so many frames after it was believed: what was said moves

Frames that are lost are a node of their own, of which nothing is known; the node after it begins a sub-map, which lies
where the camera was last known until a loop joins it.

Nothing here depends on how long anything took: the same frames give the same corrections, to the bit.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, UInt8
from torch import Tensor

from longtake.evaluation.motion import rotation_angle_deg
from longtake.places.graph import PlaceGraph
from longtake.places.index import Candidate, PlaceIndex
from longtake.places.kept_view import KeptView
from longtake.places.key_view import shared_intrinsics
from longtake.places.loop_rule import LoopRule
from longtake.places.loops import Spread
from longtake.places.nodes import Nodes
from longtake.places.overlay import Cover, Overlay, left_out
from longtake.places.solver import Solving, surprise
from longtake.places.tracking import Tracker
from longtake.places.verification import Verifier, between_windows, rigid
from longtake.runtime.alignment import place as placed_by
from longtake.spatial.similarity import Similarity
from longtake.types import FrameKind, Geometry, Moved, MovedSpan, Tracking, TrackingReason, TrackingState

MOST_LOOPS_A_PAIR = 2
"""Of nodes."""
_MOST_WAITING = 4
_FEW_LOOPS, _BORNE_OUT = 3, 0.75
"""Loops, and the share of them that has to be believed, before they bear out where the camera is."""
_SOONER = 2
"""While the last sub-map is not joined, so many times as many candidates wait, and are verified as often."""


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """A frame that a session was shown, and what was thought of it."""

    picture: UInt8[Tensor, "3 height width"]
    tracker: Tracker


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """What a session had answered before a step."""

    num_final: int
    """Frames, from the first one on, whose results no window looks at again."""
    results: Geometry | None
    """Those that are not final, as the session has them; None where no solution is adopted with the step."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Walk:
    """How far a session has come on its way."""

    rule: LoopRule
    tracker: Tracker
    states: tuple[tuple[TrackingState, TrackingReason | None], ...] = ()
    """Of the newest frames, those that may still change among them."""
    covers: tuple[Cover, ...] = ()
    """Overlays in the same frames, as they were known when each was shown; one object as long as they are the same."""
    num_frames: int = 0
    waiting: tuple[UInt8[Tensor, "3 height width"], ...] = ()
    """Pictures of the newest frames, those that are not answered yet among them."""
    index: PlaceIndex | None = None
    """Once there was a keyframe."""
    views: tuple[KeptView, ...] = ()
    """Of the places of the index, in their order."""
    nodes: Nodes = Nodes()  # noqa: RUF009 (a frozen value)
    last_camera: Similarity | None = None
    """Where the last frame was said to be."""
    graph: PlaceGraph | None = None
    candidates: tuple[Candidate, ...] = ()
    solving: Solving | None = None
    adopts_at: int = 0
    """With so many frames, if a solution is on its way."""
    num_loops_seen: int = 0
    """Loops of the graph that a solution has taken up."""
    num_corrections: int = 0
    is_joined: bool = True
    """Whether the last sub-map was joined to an earlier one, or is the first."""

    @classmethod
    def begun(cls, rule: LoopRule | None = None) -> "Walk":
        """Before its first frame."""
        rule = rule or LoopRule()
        return cls(rule=rule, tracker=Tracker(rule=rule.tracking))

    @property
    def num_bytes(self) -> int:
        """Of all that is kept."""
        index, graph = self.index, self.graph
        pictures = sum(picture.numel() for picture in self.waiting)
        return (
            pictures
            + (len(self.views) * self.views[0].num_bytes if self.views else 0)
            + self.tracker.overlay.num_bytes
            + self._cover_bytes
            + (0 if index is None else index.num_bytes)
            + (0 if graph is None else graph.num_bytes)
        )

    @property
    def _cover_bytes(self) -> int:
        runs = (cover for cover, before in zip(self.covers, (None, *self.covers), strict=False) if cover is not before)
        return sum(cover.nbytes for cover in runs if cover is not None)

    def most_bytes(self, size: tuple[int, int]) -> int:
        """Of all that is kept with as many places and loops as there may be, of frames of this height and width.

        Nodes come for as long as the walk goes on: those of now are counted. So are overlays.
        """
        index, graph = self.index, self.graph
        pictures = sum(picture.numel() for picture in self.waiting)
        return (
            pictures
            + max(self.tracker.overlay.num_bytes, Overlay.most_bytes(size))
            + self._cover_bytes
            + self.rule.index.max_places * KeptView.bytes_for(size)
            + (0 if index is None else self.rule.index.num_bytes(index.num_channels))
            + (0 if graph is None else graph.most_bytes)
        )

    def stepped(self, seen: Seen | None, geometry: Geometry, held: Held, verifier: Verifier) -> tuple["Walk", Geometry]:
        """After one more frame, or without one at the end, and what becomes known with it."""
        walk = self if seen is None else self._with_frame(seen, held.num_final)
        walk = walk._told(geometry)
        walk = walk._thinking(verifier) if seen is not None else walk._thinking_to_the_end()
        known = walk.corrected(geometry)
        moved = known.moved
        if walk._is_adopting(is_over=seen is None):
            walk, moves = walk._adopted()
            known = walk.corrected(geometry)
            spans = (*(() if moved is None else moved.spans), *moves)
            again = held.results if geometry.moved is None else geometry.moved.geometry
            assert again is not None
            moved = Moved(version=0, spans=spans, geometry=walk.corrected(again))
        if moved is not None:
            walk = replace(walk, num_corrections=walk.num_corrections + 1)
            moved = replace(moved, version=walk.num_corrections)
        return walk, replace(known, moved=moved)

    @property
    def may_adopt(self) -> bool:
        """Whether what was said may move with the next frame."""
        return self.solving is not None and self.num_frames + 1 >= self.adopts_at

    def corrected(self, geometry: Geometry) -> Geometry:
        """Frames as they are known by the loops that were adopted, and how each was tracked."""
        graph = self.graph
        if graph is None:
            return geometry
        geometry = self._tracked(self._without_overlays(geometry))
        if not (graph.strain.any() or graph.is_broken.any()) or not len(geometry):
            return geometry
        count = len(geometry)
        single = [geometry] if count == 1 else [geometry.frames(place, place + 1) for place in range(count)]
        parts = [
            placed_by(one, _like(self.known_from_said(frame), geometry))
            for one, frame in zip(single, geometry.frame_index, strict=True)
        ]
        moved = geometry.moved
        if moved is not None:
            moved = Moved(
                version=moved.version,
                spans=tuple(self._conjugated(span) for span in moved.spans),
                geometry=self.corrected(moved.geometry),
            )
        return replace(parts[0] if len(parts) == 1 else Geometry.join(parts), moved=moved)

    def known_from_said(self, frame: int) -> Similarity:
        """What moves a frame from where it was first said to be to where it is known to be."""
        return self._known_from_said(self.nodes.of_frame(frame))

    @property
    def apart(self) -> tuple[int, ...]:
        """Numbers of the sub-maps that no loop joins to the first."""
        if self.graph is None:
            return ()
        islands, begins = self.graph.islands(), self.nodes.sub_maps
        return tuple(number for number, node in enumerate(begins) if islands[node] != islands[begins[0]])

    def _tracked(self, geometry: Geometry) -> "Geometry":
        """With the state of each frame."""
        tracking = []
        for frame in geometry.frame_index:
            state, reason = self._state_of(frame)
            sub_map = self.nodes.sub_map_of(self.nodes.of_frame(frame))
            tracking.append(Tracking(state=state, reason=reason, sub_map=sub_map))
        moved = geometry.moved
        if moved is not None:
            moved = replace(moved, geometry=self._tracked(self._without_overlays(moved.geometry)))
        return replace(geometry, tracking=tuple(tracking), moved=moved)

    def _without_overlays(self, geometry: Geometry) -> Geometry:
        """Whenever a frame is told, without what was known to lie over it when it was shown."""
        later = len(self.covers) - self.num_frames
        return left_out(geometry, [self.covers[later + frame] for frame in geometry.frame_index])

    def _state_of(self, frame: int) -> tuple[TrackingState, TrackingReason | None]:
        return self.states[len(self.states) - (self.num_frames - frame)]

    def _with_frame(self, seen: Seen, num_final: int) -> "Walk":
        """With its picture and state; states of frames that were final before are left out."""
        num_open = max(len(self.waiting), self.num_frames - num_final)
        cover, before = seen.tracker.overlay.covered, self.covers[-1] if self.covers else None
        if cover is not None and before is not None and np.array_equal(cover, before):
            cover = before
        return replace(
            self,
            num_frames=self.num_frames + 1,
            waiting=(*self.waiting, seen.picture),
            tracker=seen.tracker,
            states=(*self.states[len(self.states) - num_open :], (seen.tracker.state, seen.tracker.reason)),
            covers=(*self.covers[len(self.covers) - num_open :], cover),
        )

    def _told(self, geometry: Geometry) -> "Walk":
        """With nodes that begin, and keyframes as places."""
        walk = self
        for given in (() if geometry.moved is None else (geometry.moved.geometry,)) + (geometry,):
            for place, frame in enumerate(given.frame_index):
                walk = walk._with_node_of(given, place)
                if given is geometry and given.kind[place] is not FrameKind.PASSING and not walk.nodes.is_lost[-1]:
                    walk = walk._with_keyframe(given, place, frame)
        num_unanswered = self.num_frames - (geometry.frame_index[-1] + 1) if len(geometry) else len(walk.waiting)
        return replace(walk, waiting=walk.waiting[len(walk.waiting) - num_unanswered :] if num_unanswered else ())

    def _with_node_of(self, geometry: Geometry, place: int) -> "Walk":
        frame, window = geometry.frame_index[place], geometry.window[place]
        is_lost = self._state_of(frame)[0] is TrackingState.LOST
        is_break = len(self.nodes) > 0 and is_lost != self.nodes.is_lost[-1]
        if len(self.nodes) and not is_break and (is_lost or not self._is_over(geometry, place)):
            return replace(self, last_camera=self._last_camera(geometry, place))
        anchor = rigid(geometry.world_from_camera[place])
        return replace(
            self,
            nodes=self.nodes.followed_by(start=frame, window=window, is_lost=is_lost, anchor=anchor),
            graph=self._graph_with(anchor, geometry.depth[place], is_break=is_break),
            is_joined=self.is_joined and not is_break,
            last_camera=self._last_camera(geometry, place),
        )

    def _last_camera(self, geometry: Geometry, place: int) -> Similarity:
        """Where the camera was known to be with this frame, or before it where it was dark."""
        is_dark = self._state_of(geometry.frame_index[place]) == (TrackingState.WEAK, TrackingReason.DARKNESS)
        if is_dark and self.last_camera is not None:
            return self.last_camera
        return rigid(geometry.world_from_camera[place])

    def _is_over(self, geometry: Geometry, place: int) -> bool:
        """Whether the last node is, where frames go on; never within frames that the next window begins with."""
        frame, window = geometry.frame_index[place], geometry.window[place]
        nodes = self.nodes
        if window > nodes.windows[-1]:
            return frame > nodes.starts[-1]
        return not geometry.provisional[place] and frame - nodes.starts[-1] >= self.rule.longest_node

    def _graph_with(self, anchor: Similarity, depth: Float[Tensor, "height width"], *, is_break: bool) -> PlaceGraph:
        if self.graph is None:
            return PlaceGraph.of_first(anchor)
        if is_break:
            assert self.last_camera is not None
            return self.graph.followed_by_sub_map(self._known_from_said(len(self.nodes) - 1) @ self.last_camera)
        depth = depth.detach().double()
        unit = float(depth[depth.isfinite() & (depth > 0)].median().cpu()) if bool((depth > 0).any()) else 1.0
        drift = replace(self.rule.drift, translation=self.rule.drift.translation * unit)
        return self.graph.followed_by(self.nodes.anchors[-1].inverse() @ anchor, drift)

    def _with_keyframe(self, geometry: Geometry, place: int, frame: int) -> "Walk":
        if geometry.descriptor is None:
            return self
        descriptor = geometry.descriptor[place].detach().float().cpu().numpy()
        index = self.index or PlaceIndex.empty(len(descriptor), self.rule.index)
        before = index.frame[-1] if len(index) else -1
        index = index.with_keyframe(
            descriptor, frame=frame, window=self.nodes.of_frame(frame), timestamp_s=geometry.timestamp_s[place]
        )
        if index.frame[-1] == before:
            return replace(self, index=index)
        picture = self.waiting[len(self.waiting) - (self.num_frames - frame)]
        views = (*self.views, KeptView.of(self._without_overlays(geometry), place, picture))
        if len(index) < len(views):
            kept = set(index.frame.tolist())
            views = tuple(view for view in views if view.frame in kept)
        return replace(self, index=index, views=views)._with_candidates()

    def _with_candidates(self) -> "Walk":
        assert self.index is not None
        since = self.nodes.starts[self._begin_of_sub_map]
        found = self.index.candidates(2 if self.is_joined else 2 * _SOONER, since=since)
        new = [one for one in found if one.similarity >= self.rule.least_similarity]
        waiting = (*new, *self.candidates)
        if self.is_joined:
            return replace(self, candidates=waiting[:_MOST_WAITING])
        waiting = tuple(sorted(waiting, key=lambda one: one.similarity, reverse=True))
        return replace(self, candidates=waiting[: _SOONER * _MOST_WAITING])

    def _thinking(self, verifier: Verifier) -> "Walk":
        """One piece of work of bounded time."""
        if self.solving is not None and not self.solving.is_done:
            return replace(self, solving=self.solving.stepped())
        every = self.rule.verify_every if self.is_joined else max(1, self.rule.verify_every // _SOONER)
        if self.num_frames % every == 0:
            return self._verified(verifier)._solving_if_due()
        return self

    def _thinking_to_the_end(self) -> "Walk":
        graph = self.graph
        if graph is None or not len(graph.loops) or (self.solving is None and not self._has_new_loops):
            return self
        return replace(self, solving=Solving.of(graph).solved(), num_loops_seen=self._newest_loop)

    def _verified(self, verifier: Verifier) -> "Walk":
        """With the next candidate judged; those that are known enough are passed over."""
        for number, candidate in enumerate(self.candidates):
            rest = replace(self, candidates=self.candidates[number + 1 :])
            views = {view.frame: view for view in self.views}
            old, new = views.get(candidate.old_frame), views.get(candidate.frame)
            if old is not None and new is not None and not self._is_known(candidate):
                return rest._judged(verifier, old, new)
        return replace(self, candidates=())

    def _judged(self, verifier: Verifier, old: KeptView, new: KeptView) -> "Walk":
        assert self.graph is not None
        assert self.index is not None
        islands, nodes = self.graph.islands(), self.nodes
        first, second = nodes.of_frame(old.frame), nodes.of_frame(new.frame)
        of_places = islands[np.searchsorted(nodes.starts, self.index.frame, side="right") - 1]
        is_known = np.isin(of_places, (islands[first], islands[second]))
        intrinsics = shared_intrinsics([self.views[place].intrinsics for place in np.flatnonzero(is_known)])
        verdict = verifier.verify(old.as_view(intrinsics), new.as_view(intrinsics))
        if not verdict.is_accepted:
            return self
        cameras = [
            anchor.inverse().of_cameras(view.world_from_camera)
            for anchor, view in ((nodes.anchors[first], old), (nodes.anchors[second], new))
        ]
        noise = verdict.noise
        assert noise is not None
        lever = max(float(camera[:3, 3].norm()) for camera in cameras)
        spread = Spread(
            translation=math.hypot(noise.translation, noise.rotation_rad * lever),
            rotation_rad=noise.rotation_rad,
            log_scale=noise.log_scale,
        )
        measured = between_windows(verdict.new_from_old, *cameras)
        if self._contradicts(first, second, measured, spread):
            return self
        return replace(self, graph=self.graph.with_loop(first, second, measured, spread))

    def _contradicts(self, first: int, second: int, measured: Similarity, spread: Spread) -> bool:
        """Whether a loop is farther from where its nodes lie than drift explains.

        Until some loops are believed, and where most are withdrawn, overlaps may be worse than they say. Across a break
        they say nothing at all: only loops over the same break tell where its sides lie, once those were moved by them.
        """
        assert self.graph is not None
        graph, rule, loops = self.graph, self.rule, self.graph.loops
        part = np.cumsum(graph.is_broken)
        is_across = bool(part[first] != part[second])
        is_alike = (part[loops.first] == part[first]) & (part[loops.second] == part[second])
        if is_across:
            is_alike &= loops.number < (self.num_loops_seen if self.solving is None else 0)
        is_borne_out = int((is_alike & ~loops.is_withdrawn).sum()) >= max(_FEW_LOOPS, _BORNE_OUT * int(is_alike.sum()))
        known = graph.node(first).inverse() @ graph.node(second)
        if is_borne_out and float(rotation_angle_deg(known.rotation.T @ measured.rotation)) > rule.most_turn_deg:
            return True
        if is_across:
            return False
        drifting = graph if is_borne_out else replace(graph, spread=rule.unproven_drift * graph.spread)
        return surprise(drifting, first, second, measured, spread) > rule.most_surprise

    def _solving_if_due(self) -> "Walk":
        if self.solving is not None or not self._has_new_loops:
            return self
        assert self.graph is not None
        return replace(
            self,
            solving=Solving.of(self.graph),
            adopts_at=self.num_frames + self.rule.adopt_after,
            num_loops_seen=self._newest_loop,
        )

    def _is_adopting(self, *, is_over: bool) -> bool:
        return self.solving is not None and self.solving.is_done and (is_over or self.num_frames >= self.adopts_at)

    def _adopted(self) -> tuple["Walk", tuple[MovedSpan, ...]]:
        """With all that was said laid by the solution, and what moved."""
        assert self.solving is not None
        assert self.graph is not None
        graph = self.solving.adopted_by(self.graph)
        moves = graph.now_from(self.graph)
        stops = (*self.nodes.starts[1:], self.num_frames)
        spans = tuple(
            MovedSpan(first_frame=start, last_frame=stop - 1, now_from_before=moves.one(node).matrix)
            for node, (start, stop) in enumerate(zip(self.nodes.starts, stops, strict=True))
            if stop > start
        )
        walk = replace(self, graph=graph, solving=None)
        if self.is_joined or int(graph.islands()[-1]) == self._begin_of_sub_map:
            return walk, spans
        return replace(walk, is_joined=True, states=(*self.states[:-1], (TrackingState.RELOCALISED, None))), spans

    @property
    def _begin_of_sub_map(self) -> int:
        """The first node that overlaps connect with the last one."""
        assert self.graph is not None
        broken = self.graph.is_broken.nonzero()[0]
        return int(broken[-1]) if len(broken) else 0

    @property
    def _newest_loop(self) -> int:
        return 0 if self.graph is None else int(self.graph.loops.number.max(initial=-1)) + 1

    @property
    def _has_new_loops(self) -> bool:
        return self._newest_loop > self.num_loops_seen

    def _is_known(self, candidate: Candidate) -> bool:
        assert self.graph is not None
        first, second = (self.nodes.of_frame(frame) for frame in (candidate.old_frame, candidate.frame))
        loops = self.graph.loops
        return first == second or int(((loops.first == first) & (loops.second == second)).sum()) >= MOST_LOOPS_A_PAIR

    def _known_from_said(self, node: int) -> Similarity:
        assert self.graph is not None
        return self.graph.node(node) @ self.nodes.anchors[node].inverse()

    def _conjugated(self, span: MovedSpan) -> MovedSpan:
        """A move among what was said, as one among what is known."""
        known = self.known_from_said(span.first_frame)
        moved = known.matrix @ span.now_from_before.double().cpu() @ known.inverse().matrix
        return replace(span, now_from_before=moved)


def _like(similarity: Similarity, geometry: Geometry) -> Similarity:
    tensor = geometry.world_from_camera
    return Similarity(similarity.scale.to(tensor), similarity.rotation.to(tensor), similarity.translation.to(tensor))
