"""What viewers can be sent of a session, made beside its worker: the same results with and without them."""

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from served import ASK, MAP, Outputs, Start, ask, events_of, open_session, push, until
from shown import Shown, mapped_frame

import longtake
from longtake.pipeline.events import Frame
from longtake.server.machine import PushedFrame, Step
from longtake.server.session import ServedSession
from longtake.server.view import SessionView
from longtake.server.view_thread import ViewThread
from longtake.server.viewer import MOST_CREDIT, ViewBudget, Viewer
from longtake.spatial.pinhole import unproject
from longtake.types import Geometry
from longtake.video.frame import VideoFrame

pytestmark = pytest.mark.extra


def heard() -> None:
    """Somebody watches."""


def points_of(session: ServedSession) -> list[Shown]:
    """All that a viewer would be sent now, in the order of the chunks."""
    viewer = Viewer(session.view.points)
    viewer.set_budget(ViewBudget(points=10**7))
    viewer.add_credit({"bytes": MOST_CREDIT})
    found = [Shown.read(message) for message in iter(viewer.next_message, None)]
    return sorted(found, key=lambda one: one.sequence)


def until_shown(session: ServedSession, frame: int) -> None:
    def is_shown() -> bool:
        snapshot = session.view.snapshot
        return snapshot is not None and snapshot.frame == frame

    until(is_shown)


def test_results_are_the_same_to_the_bit_with_viewers(
    start: Start, frames: Sequence[VideoFrame], local: Outputs
) -> None:
    session = open_session(start())
    told = threading.Event()
    session.view.listen(told.set)
    assert Outputs(tuple(push(session, frames)), ask(session)) == local
    until_shown(session, 23)
    assert told.is_set()
    assert len(points_of(session)) >= 20
    session.view.stop_listening(told.set)
    assert session.view.num_listeners == 0


def test_points_are_where_depth_pose_and_intrinsics_say(start: Start, frames: Sequence[VideoFrame]) -> None:
    engine = start()
    session, known = open_session(engine, MAP), {}
    session.view.listen(heard)
    for sequence, frame in enumerate(frames[:12]):
        push(session, [frame], first=sequence)
        assert session.last is not None
        geometry = session.last.geometry
        assert isinstance(geometry, Geometry)
        known |= {index: geometry.frames(place, place + 1) for place, index in enumerate(geometry.frame_index)}
    until_shown(session, 11)
    told = {event["index"]: event for event in events_of(session, "frame.known")}
    assert [told[index]["kind"] for index in (0, 7, 8, 11)] == ["scale", "scale", "keyframe", "passing"]
    shown = points_of(session)
    assert [one.fields["frame"] for one in shown] == list(range(12))
    for one in shown:
        truth, event = known[one.fields["frame"]], told[one.fields["frame"]]
        assert one.fields["pose"] == pytest.approx(event["pose"], abs=1e-7)
        camera = event["intrinsics"]
        assert (camera["height"], camera["width"]) == tuple(truth.depth.shape[1:])
        x, y, z = one.positions.T
        column = np.rint(x / z * camera["fx"] + camera["cx"]).astype(int)
        row = np.rint(y / z * camera["fy"] + camera["cy"]).astype(int)
        picture = frames[one.fields["frame"]].image
        assert picture is not None
        assert np.array_equal(picture[row, column], one.colours)
        pose = np.array(one.fields["pose"]).reshape(4, 4)
        world = unproject(truth.depth.double(), truth.intrinsics.double(), truth.world_from_camera.double())[0].numpy()
        moved = one.positions @ pose[:3, :3].T + pose[:3, 3]
        assert np.abs(moved - world[row, column]).max() <= one.fields["scale"] * 1.01


def test_a_session_without_a_map_shows_its_picture_and_no_points(start: Start, frames: Sequence[VideoFrame]) -> None:
    session = open_session(start(), ASK)
    push(session, frames[:3])
    session.view.listen(heard)
    until_shown(session, 2)
    snapshot = session.view.snapshot
    assert snapshot is not None
    assert snapshot.known is None
    assert np.array_equal(snapshot.image, frames[2].image)
    assert points_of(session) == []


def test_who_leaves_memory_keeps_its_points_only_while_somebody_watches_and_has_them_again_from_the_take(
    start: Start, frames: Sequence[VideoFrame]
) -> None:
    session = open_session(start(), MAP)
    push(session, frames[:9])
    session.view.listen(heard)
    until_shown(session, 8)
    session.evict().result(timeout=60)
    assert points_of(session)
    session.view.stop_listening(heard)
    push(session, frames[9:10], first=9)
    session.evict().result(timeout=60)
    assert points_of(session) == []
    session.view.listen(heard)
    push(session, frames[10:12], first=10)
    until(lambda: sorted(one.fields["frame"] for one in points_of(session)) == list(range(12)))


def test_while_nobody_watches_one_frame_in_four_is_looked_at_and_the_newest_when_somebody_comes(
    start: Start, frames: Sequence[VideoFrame]
) -> None:
    session = open_session(start(), MAP)
    push(session, frames[:14])
    session.settle()
    until_shown(session, 11)
    first = [0, 1, 2, 3, 4, 5, 6, 7]  # which are answered together
    assert [one.fields["frame"] for one in points_of(session)] == [*first, 11]
    session.view.listen(heard)
    until_shown(session, 13)
    assert [one.fields["frame"] for one in points_of(session)] == [*first, 11, 13]
    push(session, frames[14:16], first=14)
    until_shown(session, 15)
    assert [one.fields["frame"] for one in points_of(session)] == [*first, 11, 13, 14, 15]


def test_windows_that_move_take_their_points_along_and_are_forgotten(start: Start) -> None:
    """The pose of a chunk is that of its frame, moved by all that was told; a latecomer needs no history."""
    engine = start()
    session = open_session(engine, MAP)
    session.view.listen(heard)
    walk = list(longtake.open_video("world:9?frames=122&size=126x98"))
    push(session, walk[:-1])
    time.sleep(0.5)  # after which the memory is told again
    push(session, walk[-1:], first=121)
    until_shown(session, 121)
    poses: dict[int, np.ndarray] = {}
    version = 0
    for event in session.events.after(0):
        if event.type == "frame.known":
            poses[event.fields["index"]] = np.array(event.fields["pose"]).reshape(4, 4)
        if event.type == "window.moved":
            version = event.fields["version"]
            for span in event.fields["spans"]:
                for index in range(span["first"], span["last"] + 1):
                    poses[index] = np.array(span["matrix"]).reshape(4, 4) @ poses[index]
    assert version > 0
    for one in points_of(session):
        assert one.fields["version"] == version
        assert np.array(one.fields["pose"]).reshape(4, 4) == pytest.approx(poses[one.fields["frame"]], abs=1e-5)
    memory = events_of(session, "memory")
    (gone,) = [span for event in memory for span in event["forgotten"]]
    assert (gone["of"], gone["first"], gone["last"]) == ("map", 0, 103)
    assert (gone["start_s"], gone["end_s"]) == (walk[0].timestamp_s, walk[103].timestamp_s)
    assert memory[-1]["map"] == {"kept": 13, "capacity": memory[0]["map"]["capacity"], "window": 1}


def test_a_past_that_is_not_here_is_made_of_the_take(tmp_path: Path, frames: Sequence[VideoFrame]) -> None:
    longtake.map("world:9?frames=10&size=126x98", tmp_path / "mapped", memory="10MB")
    thread = ViewThread()
    view = SessionView("s", thread, take=tmp_path / "mapped", lacks_past=True)
    assert view.points.num_points == 0
    view.listen(lambda: None)
    assert thread.wait()
    found = [view.points.newest_within(number, number + 1) for number in range(view.points.next_sequence)]
    assert [one.chunk.frame for one in found if one is not None] == list(range(10))
    take, snapshot = longtake.open_take(tmp_path / "mapped"), view.snapshot
    assert snapshot is not None
    assert snapshot.known is not None
    assert (snapshot.frame, snapshot.time_s) == (9, take.records[-1].timestamp_s)
    assert np.array_equal(snapshot.image, take.image(-1))
    assert np.array_equal(snapshot.known.depth, take.depth(-1))
    absent = SessionView("t", thread, take=tmp_path / "nothing", lacks_past=True)
    absent.listen(lambda: None)
    assert thread.wait()
    assert absent.points.num_points == 0
    thread.close()


def test_a_slow_view_thread_holds_nobody_up_and_drops_the_oldest() -> None:
    thread, going_on, done = ViewThread(most_waiting=3), threading.Event(), []
    thread.submit("a", going_on.wait)
    time.sleep(0.05)
    for number in range(100):
        thread.submit("a", lambda number=number: done.append(("a", number)))
    thread.submit("b", lambda: done.append(("b", 0)))
    going_on.set()
    assert thread.wait()
    assert done == [("a", 97), ("a", 98), ("a", 99), ("b", 0)]
    thread.close()
    thread.submit("a", lambda: done.append(("a", 100)))
    assert len(done) == 4


def step_of(index: int, picture: np.ndarray) -> Step:
    return Step(index, PushedFrame(index, float(index), picture), None, None, 0)


def test_a_frame_that_cannot_be_shown_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    thread = ViewThread()
    view = SessionView("s", thread)
    picture, broken = np.zeros((8, 8, 3), np.uint8), replace(mapped_frame(0), intrinsics=torch.zeros(3, 3))
    view.listen(heard)
    view.take(step_of(0, picture), [Frame(index=0, timestamp_s=0.0, mapped=broken)])
    view.take(step_of(1, picture), [])
    assert thread.wait()
    assert view.snapshot is not None
    assert view.snapshot.frame == 1
    assert "could not be made" in caplog.text
    thread.close()


def test_a_step_waits_less_than_a_millisecond_for_its_view() -> None:
    thread = ViewThread()
    view = SessionView("s", thread)
    picture, mapped = np.zeros((378, 504, 3), np.uint8), mapped_frame(size=(378, 504))
    view.listen(heard)
    seconds = []
    for index in range(60):
        started_s = time.perf_counter()
        view.take(step_of(index, picture), [Frame(index=index, timestamp_s=float(index), mapped=mapped)])
        seconds.append(time.perf_counter() - started_s)
        time.sleep(0.002)
    thread.close()
    assert sorted(seconds)[30] < 0.001
