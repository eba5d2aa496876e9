"""A walk, darkness, and the same way once more: lost and found, the same whatever happens to the session on the way."""

import itertools
import random
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import pytest
import torch
from broken import Break
from torch import Tensor

from longtake.geometry.model import GeometryModel
from longtake.hub.load import load_model, loop_card_of
from longtake.places.build import resume_session, with_loops
from longtake.places.looped_session import LoopedSession
from longtake.runtime.build import open_session, usual_settings
from longtake.spatial.similarity import Similarity
from longtake.types import Geometry, Moved, Tracking, TrackingReason, TrackingState
from longtake.world.tour import Tour

pytestmark = pytest.mark.extra

SIZE = (98, 126)
NUM_BEFORE, NUM_DARK, AGAIN = 52, 6, 4
LOST, LIGHT = NUM_BEFORE + 2, NUM_BEFORE + NUM_DARK
"""The frame with which it is lost, and the first one after the darkness, which is frame AGAIN of the walk."""
DARK = torch.zeros(3, *SIZE, dtype=torch.uint8)


@cache
def model() -> GeometryModel:
    return load_model("micro-map")


def opened() -> LoopedSession:
    inner = open_session(model(), usual_settings(model().config), SIZE, reserve_frames=64)
    session = with_loops(inner, loop_card_of("micro-map"))
    assert isinstance(session, LoopedSession)
    return session


def resumed(path: Path) -> LoopedSession:
    session = resume_session(path, model())
    assert isinstance(session, LoopedSession)
    return session


@dataclass(frozen=True)
class Walked:
    """A walk to its end; it was saved before the frame with which it is lost."""

    images: list[Tensor]
    steps: list[Geometry]
    session: LoopedSession
    file: Path


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Walked:
    views = itertools.islice(Tour(seed=8, width=SIZE[1], height=SIZE[0]).views(), NUM_BEFORE)
    seen = [(view.image * 255).round().byte() for view in views]
    images = [*seen, *[DARK] * NUM_DARK, *seen[AGAIN:]]
    session, steps = opened(), []
    file = tmp_path_factory.mktemp("walked") / "session.safetensors"
    for number, image in enumerate(images):
        if number == LOST:
            session.save(file)
        steps.append(session.step(image))
    return Walked(images, [*steps, session.finish()], session, file)


def tracking(steps: list[Geometry]) -> dict[int, Tracking]:
    return {frame: one for step in steps for frame, one in zip(step.frame_index, step.tracking or (), strict=True)}


def require_same(one: Geometry, other: Geometry) -> None:
    """Every field, every bit."""
    for field in fields(Geometry):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if isinstance(mine, Moved):
            assert mine.version == theirs.version
            for a, b in zip(mine.spans, theirs.spans, strict=True):
                assert (a.first_frame, a.last_frame) == (b.first_frame, b.last_frame)
                assert torch.equal(a.now_from_before, b.now_from_before)
            require_same(mine.geometry, theirs.geometry)
        else:
            assert torch.equal(mine, theirs) if isinstance(mine, Tensor) else mine == theirs, field.name


def test_darkness_is_lost_and_a_known_place_is_found(walked: Walked) -> None:
    said = tracking(walked.steps)
    assert list(said) == list(range(len(walked.images)))
    lost = [frame for frame, one in said.items() if one.state is TrackingState.LOST]
    assert lost[0] == LOST
    assert LIGHT - 1 <= lost[-1] <= LIGHT
    assert lost == list(range(lost[0], lost[-1] + 1))
    assert {said[frame].reason for frame in lost} == {TrackingReason.DARKNESS}
    assert [said[frame].sub_map for frame in (0, LOST - 1, LOST, lost[-1] + 1)] == [0, 0, None, 1]
    found = [frame for frame, one in said.items() if one.state is TrackingState.RELOCALISED]
    assert len(found) == 1
    graph = walked.session.walk.graph
    assert graph is not None
    assert graph.islands()[-1] == 0


def test_what_is_lost_lies_where_the_camera_was_before_it_was_dark(walked: Walked) -> None:
    """Not where the network took it to be in the dark."""
    step = walked.steps[LOST]
    assert step.frame_index == (LOST,)
    known = dict(zip(range(NUM_BEFORE), cameras_after(walked.steps[:NUM_BEFORE]), strict=True))
    torch.testing.assert_close(step.world_from_camera[0].double(), known[NUM_BEFORE - 1], atol=1e-5, rtol=0)


def test_a_sub_map_that_was_joined_lies_where_the_same_pictures_were_taken(walked: Walked) -> None:
    known = cameras_after(walked.steps)
    first = torch.stack([known[frame][:3, 3] for frame in range(AGAIN + 2, NUM_BEFORE)])
    again = torch.stack([known[frame][:3, 3] for frame in range(LIGHT + 2, len(walked.images))])
    apart, extent = (first - again).norm(dim=1).median(), (first - first.mean(dim=0)).norm(dim=1).max()
    assert apart < 0.1 * extent, (apart, extent)


def cameras_after(steps: list[Geometry]) -> list[Tensor]:
    """Of all frames, as they are known after the last of these steps."""
    known: dict[int, Tensor] = {}
    for step in steps:
        for span in () if step.moved is None else step.moved.spans:
            moved = Similarity.of_matrix(span.now_from_before.double())
            for frame in range(span.first_frame, span.last_frame + 1):
                if frame in known:
                    known[frame] = moved.of_cameras(known[frame])
        for geometry in (step,) if step.moved is None else (step.moved.geometry, step):
            known |= dict(zip(geometry.frame_index, geometry.world_from_camera.double(), strict=True))
    return [known[frame] for frame in sorted(known)]


def test_a_session_saved_and_resumed_in_every_state_equals_one_never_stopped(walked: Walked, tmp_path: Path) -> None:
    """Weak, lost, while the first frames of a sub-map wait, not joined, solving, found."""
    session, path = resumed(walked.file), tmp_path / "session.safetensors"
    for image, step in zip(walked.images[LOST:], walked.steps[LOST:-1], strict=True):
        require_same(session.step(image), step)
        session.save(path)
        session = resumed(path)
    require_same(session.finish(), walked.steps[-1])


def test_a_frame_that_is_lost_and_not_taken_leaves_no_trace(walked: Walked) -> None:
    session = resumed(walked.file)
    before = session.walk
    with session.look(DARK) as look:
        assert look.geometry.tracking is not None
        assert look.geometry.tracking[-1].state is TrackingState.LOST
    branch = session.fork()
    branch.step(DARK)
    branch.close()
    assert session.walk is before
    for image, step in zip(walked.images[LOST : LOST + 3], walked.steps[LOST : LOST + 3], strict=True):
        require_same(session.step(image), step)


def test_an_interrupt_while_it_is_lost_leaves_no_trace_or_the_frame_taken(walked: Walked) -> None:
    rooms = ("places", "runtime/session", "runtime/windowed")
    whole, session = Break(None, rooms), resumed(walked.file)
    whole.during(lambda: session.step(walked.images[LOST]))
    for number in random.Random(1).sample(whole.first_and_last(), 3):
        session, broken = resumed(walked.file), Break(number, rooms, KeyboardInterrupt)
        broken.during(lambda session=session: session.step(walked.images[LOST]))  # type: ignore[misc]
        assert broken.at != "nowhere"
        taken = session.walk.num_frames
        assert session.num_final == taken if taken > LOST else session.num_final <= LOST
        for image, step in zip(walked.images[taken : LOST + 2], walked.steps[taken : LOST + 2], strict=True):
            require_same(session.step(image), step)


def test_who_shows_the_frames_may_say_where_one_ends(walked: Walked) -> None:
    session = resumed(walked.file)
    with session.look_last(walked.images[0]) as look:
        look.take()
    assert look.geometry.tracking is not None
    assert look.geometry.tracking[-1].reason is TrackingReason.CUT
    for image in walked.images[:8]:
        geometry = session.step(image)
    assert geometry.tracking is not None
    assert {one.sub_map for one in geometry.tracking} == {1}
