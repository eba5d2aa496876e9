"""A walk that comes back, through public sessions: as `map` has it, and no trace of saves, forks and refusals."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from returning import SESSION, TORN, WIDTH, easy_loops, pictures, run
from torch import Tensor

from longtake import GeometrySession
from longtake.api.camera_trail import CameraTrail
from longtake.errors import InputError
from longtake.geometry.model import GeometryModel
from longtake.hub.load import load_model
from longtake.pipeline.map_results import MapResults, Prepared, Stepped
from longtake.pipeline.mapper import on_cpu
from longtake.pipeline.video_map import preprocessor
from longtake.takes.fields import JsonObject
from longtake.takes.take import read_take
from longtake.types import Geometry
from longtake.video.frame import VideoFrame
from longtake.world.tour import Tour

SOLVING, LATE = 24, 38
"""Frames after which a loop is being solved, and after which one was adopted."""


@pytest.fixture(scope="module")
def model() -> GeometryModel:
    return load_model("tiny")


@pytest.fixture(scope="module")
def images() -> list[np.ndarray]:
    return [image for number, image in enumerate(pictures()) if number not in TORN]


def opened(model: GeometryModel, reserve_frames: int = 0) -> GeometrySession:
    return GeometrySession(model, SESSION, reserve_frames=reserve_frames, loops=easy_loops())


def rest(session: GeometrySession, images: Sequence[np.ndarray]) -> list[Geometry]:
    return [*(session.step(image) for image in images), session.finish()]


@pytest.fixture(scope="module")
def whole(model: GeometryModel, images: list[np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> list[Geometry]:
    return rest(opened(model), images)


def require_same(ours: Sequence[Geometry], theirs: Sequence[Geometry]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert one.frame_index == other.frame_index
        assert torch.equal(one.world_from_camera, other.world_from_camera)
        assert torch.equal(one.depth, other.depth)
        assert (one.moved is None) == (other.moved is None)
        if one.moved is not None and other.moved is not None:
            assert one.moved.version == other.moved.version
            for mine, its in zip(one.moved.spans, other.moved.spans, strict=True):
                assert torch.equal(mine.now_from_before, its.now_from_before)
            require_same([one.moved.geometry], [other.moved.geometry])


def adoptions(steps: Sequence[Geometry]) -> list[int]:
    return [number for number, step in enumerate(steps) if step.moved is not None and len(step.moved.spans) > 1]


def test_steps_say_what_map_writes(
    model: GeometryModel, whole: list[Geometry], images: list[np.ndarray], tmp_path: Path
) -> None:
    assert adoptions(whole)
    list(run(model, tmp_path / "out"))
    take, results = read_take(tmp_path / "out"), MapResults()
    prepare, session = preprocessor(SESSION, model.config), opened(model)
    for record, image in zip(take.records, images, strict=True):
        taken = Prepared(VideoFrame(record.index, record.timestamp_s, image), prepare(image))
        list(results.take(Stepped(taken=taken, geometry=on_cpu(session.step(image)), num_final=session.num_final)))
    list(results.take(Stepped(taken=None, geometry=on_cpu(session.finish()), num_final=session.num_final)))
    corrections = results.corrections
    assert corrections is not None
    assert take.corrections is not None
    for ours, theirs in zip(corrections.spans, take.corrections.spans, strict=True):
        assert (ours.first_frame, ours.last_frame) == (theirs.first_frame, theirs.last_frame)
        assert torch.equal(ours.known_from_said.matrix, theirs.known_from_said.matrix)


@pytest.mark.parametrize("number", [SOLVING, pytest.param(LATE, marks=pytest.mark.extra)])
def test_saved_and_resumed_it_goes_on_as_if_never_stopped(
    model: GeometryModel, whole: list[Geometry], images: list[np.ndarray], tmp_path: Path, number: int
) -> None:
    session = opened(model)
    before = [session.step(image) for image in images[:number]]
    session.save(tmp_path / "session.safetensors")
    snapshot = session.snapshot()
    require_same([*before, *rest(session, images[number:])], whole)  # a save leaves no trace
    snapshot.save(tmp_path / "snapshot.safetensors")
    for name in ("session", "snapshot"):
        resumed = GeometrySession.resume(tmp_path / f"{name}.safetensors", model)
        assert resumed.info.loops is not None
        assert resumed.info.num_frames == number
        require_same(rest(resumed, images[number:]), whole[number:])


def test_a_fork_and_what_is_refused_leave_no_trace(
    model: GeometryModel, whole: list[Geometry], images: list[np.ndarray]
) -> None:
    session = opened(model, reserve_frames=40)
    steps = [session.step(image) for image in images[:SOLVING]]
    with session.fork() as branch:
        for image in images[:8]:  # elsewhere than the session goes
            branch.step(image)
        assert branch.info.loops is not None
    with pytest.raises(InputError, match="Expected pictures of"):
        session.step(np.zeros((10, 10, 3), np.uint8))
    steps += rest(session, images[SOLVING:])
    assert adoptions(steps) == adoptions(whole)
    for one, other in zip(steps, whole, strict=True):  # what two share is read as two blocks, to rounding
        torch.testing.assert_close(one.world_from_camera, other.world_from_camera, rtol=1e-3, atol=1e-3)


def test_loops_are_closed_of_a_model_by_its_name_and_can_be_declined(model: GeometryModel) -> None:
    (view,) = Tour(seed=3, width=126, height=98).views_at([0])

    def loops_of(*arguments: object, **words: object) -> object:
        with GeometrySession.from_pretrained(*arguments, **words) as session:  # type: ignore[arg-type]
            session.step(view.image)
            return session.info.loops

    assert loops_of("micro-map") is not None
    assert loops_of("micro-map", loops=False) is None
    assert loops_of(model, size=WIDTH) is None


def test_poses_of_answers_follow_the_corrected_map(whole: list[Geometry], images: list[np.ndarray]) -> None:
    """Evidence of an answer is a look long past, whose pose was final; newest is where the camera is."""
    trail = CameraTrail(fps=0.5)
    known: dict[int, Tensor] = {}
    for number, step in enumerate(whole):
        trail = trail.after(float(number), step) if number < len(images) else trail.with_poses(step)
        if number == SOLVING:
            trail = CameraTrail.from_record(JsonObject(trail.to_record(), "a trail"))
        if step.moved is not None:
            for span in step.moved.spans:
                for frame in range(span.first_frame, span.last_frame + 1):
                    if frame in known:
                        known[frame] = _moved(known[frame], span.now_from_before)
            known |= dict(zip(step.moved.geometry.frame_index, step.moved.geometry.world_from_camera, strict=True))
        known |= dict(zip(step.frame_index, step.world_from_camera, strict=True))
    assert len(trail.poses) > 10
    for time_s, pose in trail.poses.items():
        torch.testing.assert_close(pose, known[int(time_s)], rtol=0, atol=1e-5)
    assert trail.newest is not None
    torch.testing.assert_close(trail.newest, known[len(images) - 1], rtol=0, atol=1e-5)


def _moved(pose: Tensor, now_from_before: Tensor) -> Tensor:
    """By hand: the centre moves with the similarity, the camera turns with its rotation."""
    matrix = now_from_before.double()
    scale = matrix[:3, :3].det() ** (1 / 3)
    moved = matrix @ pose.double()
    moved[:3, :3] /= scale
    return moved.to(pose.dtype)
