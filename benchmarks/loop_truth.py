"""A walk that closes loops, watched: what was verified, what of it was believed, and whether that is true."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.shared_views import JudgedPlace, TruePlace, judge_place, shares
from longtake.evaluation.motion import rotation_angle_deg
from longtake.places.key_view import KeyView
from longtake.places.side_look import Clips
from longtake.places.verification import Verdict, Verifier
from longtake.places.walk import Walk
from longtake.world.tour import View

WRONG_M, WRONG_DEG = 0.3, 5.0
"""From which on a loop that is believed is wrong: between its two cameras, against the truth."""
_CANDIDATES = 4
"""As many as a walk ever takes of one place."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One candidate that was verified."""

    old_frame: int
    new_frame: int
    verdict: Verdict
    depth: Float[Tensor, "height width"]
    """Of the new view, as the session said it."""


@dataclass(frozen=True, slots=True)
class WatchedVerifier(Verifier):
    """Notes all that it is asked."""

    asked: list[Asked] = field(default_factory=list)

    def verify(self, old: KeyView, new: KeyView, clips: Clips | None = None) -> Verdict:
        verdict = Verifier.verify(self, old, new, clips)
        self.asked.append(Asked(old.frame_index, new.frame_index, verdict, new.depth))
        return verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedLoop:
    """One candidate that was verified, and the truth."""

    old_frame: int
    new_frame: int
    similarity: float | None
    """By which the index proposed it."""
    is_accepted: bool
    """By its points, and by where the walk knows the two places to be."""
    shared: float
    """Part of both pictures that the two truly have in common."""
    turn_deg: float | None = None
    shift_m: float | None = None
    """Of one that was accepted: how far it is from the truth between the two cameras."""


@dataclass(slots=True)
class LoopWatch:
    """What is gathered while a walk goes on."""

    verifier: WatchedVerifier
    places: dict[int, TruePlace] = field(default_factory=dict)
    judged: list[JudgedPlace] = field(default_factory=list)
    similarities: dict[tuple[int, int], float] = field(default_factory=dict)
    seen: dict[int, TruePlace] = field(default_factory=dict)
    """Frames whose results may still be waited for."""
    believed: list[bool] = field(default_factory=list)
    """Of each candidate that was verified, whether the walk has it as a loop."""
    num_loops: int = 0
    """That the walk has come to believe."""

    def see(self, view: View, walk: Walk) -> None:
        """After the step that a frame was shown in, with which one candidate was verified, or none."""
        self.note_loops(0 if walk.graph is None else int(walk.graph.loops.number.max(initial=-1)) + 1)
        self.seen[view.index] = TruePlace.of(view)
        index = walk.index
        come = [] if index is None else [int(frame) for frame in index.frame if int(frame) not in self.places]
        if index is None or not come:
            return
        self.places |= {frame: self.seen[frame] for frame in come}
        self.seen = {frame: place for frame, place in self.seen.items() if frame > come[-1]}
        if found := index.candidates(_CANDIDATES, since=_begin_of_sub_map(walk)):
            self.similarities |= {(one.old_frame, one.frame): one.similarity for one in found}
            self.judged.append(judge_place(found, self.places, walk.rule.index))

    def loops(self) -> list[JudgedLoop]:
        """All that were verified."""
        return [self._judged(asked, is_loop) for asked, is_loop in zip(self.verifier.asked, self.believed, strict=True)]

    def note_loops(self, num_loops: int) -> None:
        """So many are believed by now: one more than before if what was verified last is."""
        self.believed += [num_loops > self.num_loops] * (len(self.verifier.asked) - len(self.believed))
        self.num_loops = num_loops

    def _judged(self, asked: Asked, is_loop: bool) -> JudgedLoop:
        old, new = self.places[asked.old_frame], self.places[asked.new_frame]
        errors: Mapping[str, Any] = _errors(asked, old, new) if is_loop else {}
        return JudgedLoop(
            old_frame=asked.old_frame,
            new_frame=asked.new_frame,
            similarity=self.similarities.get((asked.old_frame, asked.new_frame)),
            is_accepted=is_loop,
            shared=float(shares(new, [old])[0]),
            **errors,
        )


def _begin_of_sub_map(walk: Walk) -> int:
    assert walk.graph is not None
    broken = walk.graph.is_broken.nonzero()[0]
    return walk.nodes.starts[int(broken[-1]) if len(broken) else 0]


def _errors(asked: Asked, old: TruePlace, new: TruePlace) -> dict[str, float]:
    """In metres by the true depth of the new view."""
    found, depth = asked.verdict.new_from_old, asked.depth.double()
    usable = new.depth.isfinite() & depth.isfinite() & (depth > 0)
    metres = float((new.depth.double()[usable] / depth[usable]).median())
    true = torch.linalg.inv(new.world_from_camera.double()) @ old.world_from_camera.double()
    return {
        "turn_deg": float(rotation_angle_deg(true[:3, :3].T @ found.rotation)),
        "shift_m": float((metres * found.translation - true[:3, 3]).norm()),
    }


def is_wrong(loop: Mapping[str, Any]) -> bool:
    """Of a loop as a row has it, accepted or not."""
    return bool(loop["is_accepted"]) and (loop["shift_m"] > WRONG_M or loop["turn_deg"] > WRONG_DEG)
