"""A camera that goes round a hall twice, drawn instead of filmed: which places it believes to know again."""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.loop_bytes import CARD, believed
from longtake.places.key_view import KeyView
from longtake.places.side_look import Clips
from longtake.places.tracking import Tracker, TrackingRule
from longtake.places.verification import Verdict, Verifier, rigid
from longtake.places.walk import Held, Seen, Walk
from longtake.types import FrameKind, Geometry, TrackingReason, TrackingState

ROUND, WINDOW, CHANNELS, SIZE = 300, 48, 24, (8, 8)
LATER = 384
"""Frames after which some loops of the second round have been closed: a node begins there."""


def pose(frame: int) -> Tensor:
    """On a circle of 2 m, looking along it."""
    angle = 2 * math.pi * frame / ROUND
    found = torch.eye(4, dtype=torch.float64)
    found[:3, :3] = turned(angle)
    found[:3, 3] = 2 * torch.tensor([1 - math.cos(angle), 0.0, math.sin(angle)])
    return found


def turned(angle: float) -> Tensor:
    cosine, sine = math.cos(angle), math.sin(angle)
    return torch.tensor([[cosine, 0.0, sine], [0.0, 1.0, 0.0], [-sine, 0.0, cosine]], dtype=torch.float64)


@dataclass(frozen=True, slots=True)
class TurningVerifier(Verifier):
    """Believes every candidate: about where it truly is, but from some frame on turned by so much."""

    turn_deg: float = 0.0
    since_frame: int = 0

    def verify(self, old: KeyView, new: KeyView, clips: Clips | None = None) -> Verdict:
        del clips
        true = torch.linalg.inv(pose(new.frame_index)) @ pose(old.frame_index)
        if new.frame_index >= self.since_frame:
            true[:3, :3] = turned(math.radians(self.turn_deg)) @ true[:3, :3]
        return believed(rigid(true))


def said(frame: int, look: Tensor) -> Geometry:
    return Geometry(
        frame_index=(frame,),
        timestamp_s=(frame / 10,),
        kind=(FrameKind.KEYFRAME,),
        window=(frame // WINDOW,),
        provisional=(False,),
        pose_encoding=torch.zeros(1, 9),
        world_from_camera=pose(frame)[None].float(),
        intrinsics=torch.tensor([[[8.0, 0.0, 4.0], [0.0, 8.0, 4.0], [0.0, 0.0, 1.0]]]),
        depth=torch.full((1, *SIZE), 2.0),
        depth_confidence=torch.full((1, *SIZE), 2.0),
        descriptor=look[None].float(),
    )


@dataclass(frozen=True, slots=True)
class OnceTurnedVerifier(Verifier):
    """Believes every candidate where it truly is, but for the first one after a frame, turned by 90 degrees."""

    after_frame: int = 0
    misled: list[int] = field(default_factory=list)

    def verify(self, old: KeyView, new: KeyView, clips: Clips | None = None) -> Verdict:
        del clips
        true = torch.linalg.inv(pose(new.frame_index)) @ pose(old.frame_index)
        if new.frame_index > self.after_frame and not self.misled:
            self.misled.append(new.frame_index)
            true[:3, :3] = turned(math.pi / 2) @ true[:3, :3]
        return believed(rigid(true))


def walked(verifier: Verifier, *, num_frames: int = 3 * ROUND // 2, lost: range = range(0)) -> Walk:
    """Once round and half of a second time, or longer."""
    random = np.random.default_rng(0)
    looks = torch.from_numpy(np.cumsum(random.normal(size=(ROUND, CHANNELS)), axis=0))
    tracker = Tracker(rule=TrackingRule())
    nowhere = replace(tracker, state=TrackingState.LOST, reason=TrackingReason.DARKNESS)
    walk, nothing = Walk.begun(), said(0, looks[0]).frames(0, 0)
    for frame in range(num_frames):
        seen = Seen(torch.zeros(3, *SIZE, dtype=torch.uint8), nowhere if frame in lost else tracker)
        walk, _ = walk.stepped(seen, said(frame, looks[frame % ROUND]), Held(frame, nothing), verifier)
    return walk


def nodes_of_loops(verifier: Verifier) -> list[int]:
    """Of each loop that was believed, where its later node begins."""
    walk = walked(verifier)
    assert walk.graph is not None
    return [walk.nodes.starts[node] for node in walk.graph.loops.second]


@pytest.mark.parametrize("turn_deg", [0.0, 5.0, -8.0])
def test_loops_that_drift_explains_are_believed(turn_deg: float) -> None:
    begins = nodes_of_loops(TurningVerifier(CARD, turn_deg=turn_deg))
    assert len(begins) >= 4
    assert max(begins) >= LATER


@pytest.mark.parametrize("turn_deg", [45.0, 90.0, 180.0])
def test_a_place_that_only_looks_alike_is_no_loop_once_others_bear_out_where_the_camera_looks(turn_deg: float) -> None:
    begins = nodes_of_loops(TurningVerifier(CARD, turn_deg=turn_deg, since_frame=LATER))
    assert len(begins) >= 3
    assert max(begins) < LATER


def test_where_overlaps_are_worse_than_they_say_loops_that_surprise_are_kept() -> None:
    begins = nodes_of_loops(TurningVerifier(CARD, turn_deg=90.0))
    assert len(begins) >= 4
    assert max(begins) >= LATER


def test_a_first_loop_that_even_far_worse_overlaps_do_not_explain_is_none() -> None:
    assert nodes_of_loops(TurningVerifier(CARD, turn_deg=180.0)) == []


def test_what_joined_a_sub_map_wrongly_keeps_no_right_loop_out() -> None:
    """Three loops and more bear out where the first sub-map lies, and say nothing of the second."""
    verifier = OnceTurnedVerifier(CARD, after_frame=LATER)
    walk = walked(verifier, num_frames=2 * ROUND, lost=range(LATER, LATER + 3))
    assert walk.graph is not None
    loops, begin = walk.graph.loops, walk.nodes.sub_maps[1]
    assert ((loops.first < begin) & (loops.second < begin)).sum() >= 3
    across = (loops.first < begin) & (loops.second > begin - 1)
    assert len(verifier.misled) == 1
    assert across.sum() >= 4
    assert loops.is_withdrawn[across].tolist() == [True, *[False] * (int(across.sum()) - 1)]
    assert walk.graph.islands()[-1] == 0
