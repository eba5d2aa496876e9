"""States of frames by their pictures and by what the network says, without a network."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from longtake.errors import SettingError
from longtake.places.saved_tracker import tracker_of, tracker_tensors
from longtake.places.tracking import Tracker, TrackingRule
from longtake.types import FrameKind, Geometry, TrackingReason, TrackingState

SIZE = (42, 56)
BLACK = torch.zeros(3, *SIZE, dtype=torch.uint8)
OK = (TrackingState.OK, None)


def wall(tint: int, shift: int = 0) -> Tensor:
    """Stripes of two colours; another shift is the same wall from another place."""
    column = (torch.arange(SIZE[1]) + shift) // 14 % 2
    stripe = 60 + 80 * column.expand(SIZE)
    return torch.stack([stripe + tint, stripe, 200 - stripe]).clamp(0, 255).byte()


def floor() -> Tensor:
    """The colours of the wall, in stripes that lie across."""
    row = (torch.arange(SIZE[0]) + 7) // 14 % 2
    stripe = 60 + 80 * row[:, None].expand(SIZE)
    return torch.stack([stripe, stripe, 200 - stripe]).byte()


def said(
    *, angle: float = 0.0, turn_deg: float = 0.0, x: float = 0.0, sureness: float = 1.0, focal: float = 1.0
) -> Geometry:
    """Of one frame, whose descriptor lies so far from the usual one."""
    turn, pose = np.radians(turn_deg), torch.eye(4)[None].clone()
    pose[0, :2, :2] = torch.tensor([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    pose[0, 0, 3] = x
    return Geometry(
        frame_index=(0,),
        timestamp_s=(0.0,),
        kind=(FrameKind.KEYFRAME,),
        window=(0,),
        provisional=(False,),
        pose_encoding=torch.zeros(1, 9),
        world_from_camera=pose,
        intrinsics=torch.diag(torch.tensor([focal, focal, 1.0]))[None],
        depth=torch.ones(1, *SIZE),
        depth_confidence=torch.full((1, *SIZE), 1 + sureness),
        descriptor=torch.tensor([[np.cos(angle), np.sin(angle)]]),
    )


def walking(num_frames: int = 8) -> Tracker:
    """After so many ordinary frames."""
    tracker = Tracker(rule=TrackingRule())
    for number in range(num_frames):
        tracker = tracker.seeing(wall(0, number)).told(said(x=0.01 * number))
        assert (tracker.state, tracker.reason) == OK
    return tracker


def state(tracker: Tracker) -> tuple[TrackingState, TrackingReason | None]:
    return tracker.state, tracker.reason


def test_another_scene_is_a_cut_and_the_frame_after_it_is_tracked() -> None:
    cut = walking().seeing(wall(90))
    assert state(cut) == (TrackingState.LOST, TrackingReason.CUT)
    assert state(cut.lost(said()).seeing(wall(90, 1))) == OK


def test_the_same_colours_with_nothing_in_common_are_no_common_view() -> None:
    seen = walking().seeing(floor())
    assert state(seen) == OK
    assert state(seen.told(said(angle=0.1, x=0.08))) == OK
    assert state(seen.told(said(angle=0.6))) == (TrackingState.LOST, TrackingReason.NO_COMMON_VIEW)


def test_a_turn_away_from_all_that_was_seen_is_no_common_view_unless_pixels_are_found_again() -> None:
    """As a cut is that the network takes for a turn: 56 pixels at a focal length of 50 are 58 degrees."""
    turned = said(x=0.08, turn_deg=70, focal=50)
    assert state(walking().seeing(floor()).told(turned)) == (TrackingState.LOST, TrackingReason.NO_COMMON_VIEW)
    assert state(walking().seeing(wall(0, 9)).told(turned)) == (TrackingState.WEAK, TrackingReason.TOO_FAST)
    within = said(x=0.08, turn_deg=50, focal=50)
    assert state(walking().seeing(floor()).told(within)) == (TrackingState.WEAK, TrackingReason.TOO_FAST)


def test_pixels_that_are_found_again_outweigh_a_network_that_finds_two_frames_apart() -> None:
    seen = walking().seeing(wall(0, 9))
    told = seen.told(said(angle=0.6, x=0.08))
    assert state(told) == OK
    assert told.before is None
    strict = replace(seen, rule=replace(seen.rule, least_common=1.1))
    assert state(strict.told(said(angle=0.6))) == (TrackingState.LOST, TrackingReason.NO_COMMON_VIEW)


def test_darkness_is_weak_and_then_lost_until_there_is_light() -> None:
    tracker = walking()
    for number in range(6):
        tracker = tracker.seeing(BLACK)
        want = TrackingState.LOST if number >= 2 else TrackingState.WEAK
        assert state(tracker) == (want, TrackingReason.DARKNESS)
        tracker = tracker.lost(said()) if tracker.is_lost else tracker.told(said())
    assert state(tracker.seeing(wall(0, 9))) == OK
    elsewhere = tracker.seeing(wall(90))
    assert state(elsewhere) == (TrackingState.LOST, TrackingReason.DARKNESS)
    assert state(elsewhere.lost(said()).seeing(wall(90))) == OK


def test_one_dark_picture_is_passed_over() -> None:
    tracker = walking().seeing(BLACK).told(said())
    assert state(tracker.seeing(wall(0, 9)).told(said())) == OK


def test_pictures_that_stay_the_same_are_standing_still() -> None:
    tracker = walking()
    states = []
    for _ in range(25):
        tracker = tracker.seeing(wall(0, 8)).told(said())
        states.append(tracker.reason)
    assert states[:20] == [None] * 20
    assert set(states[20:]) == {TrackingReason.STANDING_STILL}
    assert state(tracker.seeing(wall(0, 9)).told(said())) == OK


@pytest.mark.parametrize(
    ("geometry", "reason"),
    [
        (said(x=0.07, turn_deg=20), TrackingReason.TOO_FAST),
        (said(x=2.0), TrackingReason.TOO_FAST),
        (said(x=0.08, sureness=0.01), TrackingReason.NO_COMMON_VIEW),
    ],
)
def test_a_leap_or_little_confidence_is_weak(geometry: Geometry, reason: TrackingReason) -> None:
    assert state(walking().seeing(wall(0, 9)).told(geometry)) == (TrackingState.WEAK, reason)


def test_pictures_that_were_hardly_alike_before_are_too_fast() -> None:
    tracker = walking()
    tracker = replace(tracker, recent=replace(tracker.recent, likeness=(0.5,) * 8))
    fast = tracker.seeing(wall(90))
    assert state(fast) == (TrackingState.LOST, TrackingReason.TOO_FAST)
    assert state(fast.lost(said()).seeing(wall(0))) == (TrackingState.LOST, TrackingReason.TOO_FAST)


@pytest.mark.parametrize("frames", [0, 8])
def test_a_tracker_is_saved_to_the_bit(frames: int) -> None:
    for tracker in (walking(frames), walking(frames).seeing(BLACK), walking(frames).seeing(wall(90)).lost(said())):
        tensors = tracker_tensors(tracker)
        back = tracker_tensors(tracker_of(tensors, tracker.rule))
        assert back.keys() == tensors.keys()
        assert all(torch.equal(back[name], tensor) for name, tensor in tensors.items())


def test_a_rule_without_frames_is_refused() -> None:
    with pytest.raises(SettingError, match="numbers of frames from 1 on"):
        TrackingRule(dark_frames=0)
