"""A frame with which its sequence ends: what follows knows nothing of it, and is counted on."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from smallest import SMALLEST, smallest_model

from longtake.memory.policies.lockstep import ContextRetention
from longtake.runtime.memory_plan import MemoryPlan
from longtake.runtime.session import SequenceSession
from longtake.runtime.steps import VideoSession
from longtake.runtime.windowed import WindowedSession, resume_session
from longtake.runtime.windows import Windows
from longtake.types import Geometry

SIZE, NUM_SCALE = (28, 28), 3
FRAMES = torch.rand(24, 3, *SIZE, generator=torch.Generator().manual_seed(1))
WINDOWS = {"one sequence": None, "windows": Windows(size=6, overlap_frames=2)}


def opened(name: str) -> VideoSession:
    retention = ContextRetention(anchors=2, window=3, history=8)
    plan = MemoryPlan(
        config=SMALLEST, size=SIZE, retention=retention, num_scale_frames=NUM_SCALE, reserve_frames=NUM_SCALE
    )
    session = SequenceSession(smallest_model(), plan)
    windows = WINDOWS[name]
    return session if windows is None else WindowedSession(session, windows)


def last(session: VideoSession, number: int) -> Geometry:
    with session.look_last(FRAMES[number]) as look:
        look.take()
    return look.geometry


def numbered_from(geometry: Geometry, first: int) -> Geometry:
    """Frames as a session of their own counts them."""
    moved = geometry.moved
    if moved is not None:
        moved = replace(moved, geometry=numbered_from(moved.geometry, first))
    return replace(geometry, frame_index=tuple(frame - first for frame in geometry.frame_index), moved=moved)


def require_same(one: Geometry, other: Geometry) -> None:
    assert (one.frame_index, one.kind, one.provisional) == (other.frame_index, other.kind, other.provisional)
    for name in ("world_from_camera", "depth", "depth_confidence", "intrinsics"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert (one.moved is None) == (other.moved is None)
    if one.moved is not None and other.moved is not None:
        require_same(one.moved.geometry, other.moved.geometry)


@pytest.mark.parametrize("num_before", [1, 5, 9])
@pytest.mark.parametrize("name", WINDOWS)
def test_what_follows_is_as_in_a_session_of_its_own(name: str, num_before: int, tmp_path: Path) -> None:
    """Within a scale block, in a window and in a later one; saved between the two, and on the way."""
    session, alone = opened(name), opened(name)
    for frame in FRAMES[:num_before]:
        session.step(frame)
    end = last(session, num_before)
    assert end.frame_index[-1] == num_before
    assert session.num_final == num_before + 1
    assert not len(session.provisional)
    for number, frame in enumerate(FRAMES[num_before + 1 :]):
        if number in (0, 1, 8):
            session.save(tmp_path / "session.safetensors")
            session = resume_session(tmp_path / "session.safetensors", smallest_model())
        require_same(numbered_from(session.step(frame), num_before + 1), alone.step(frame))
    require_same(numbered_from(session.finish(), num_before + 1), alone.finish())


@pytest.mark.parametrize("name", WINDOWS)
def test_nothing_has_changed_before_it_is_taken(name: str) -> None:
    session, plain = opened(name), opened(name)
    for frame in FRAMES[:7]:
        session.step(frame)
        plain.step(frame)
    with session.look_last(FRAMES[0]):
        pass
    for frame in FRAMES[7:]:
        require_same(session.step(frame), plain.step(frame))


def test_frames_alone_are_answered_at_once_and_take_no_room() -> None:
    session = opened("windows")
    assert isinstance(session, WindowedSession)
    for frame in FRAMES[:4]:
        session.step(frame)
    for number in range(4, 20):
        assert last(session, number).frame_index == (number,)
    assert [(span.first_frame, span.num_frames) for span in session.windows] == [(0, 20), (20, 0)]
