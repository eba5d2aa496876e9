"""Where a part fails, or two things happen at once, the rest of a server goes on, ends and is saved as ever."""

import json
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from io import BufferedWriter
from pathlib import Path
from typing import Any, NoReturn

import pytest
from served import ASK, MAP, PLAIN, QUESTION, Outputs, Start, ask, events_of, open_session, push, pushed, until

from longtake.errors import BusyError, InputError, SavedSessionError
from longtake.pipeline.scheduler import Served
from longtake.server import shelf as shelf_module
from longtake.server.engine import Engine
from longtake.server.feeder import Feeder
from longtake.server.life import Life
from longtake.server.machine import SessionState
from longtake.server.networks import Networks
from longtake.server.problems import RequestError
from longtake.server.recorder import Recorder
from longtake.server.session import ServedSession
from longtake.server.settings import ServerSettings
from longtake.server.shelf import VIDEO_NAME, Recorded, Shelf
from longtake.server.watchers import Watcher
from longtake.server.watches import Watch
from longtake.takes import atomic_files
from longtake.takes.atomic_files import GrowingFile
from longtake.takes.sealed_json import sealed
from longtake.video.frame import VideoFrame


def _full(*_: object, **__: object) -> NoReturn:
    raise OSError(28, "No space left on device")


_close = Recorder.close


def _close_and_fail(recorder: Recorder) -> NoReturn:
    _close(recorder)
    _full()


def _refused(*_: object, **__: object) -> NoReturn:
    raise InputError("The disk is full.")


def _is_ended(engine: Engine) -> bool:
    return not any(name.startswith("longtake-worker") for name in _threads()) and engine.is_draining


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def test_a_session_that_is_being_closed_keeps_no_other_from_being_saved(
    start: Start, frames: Sequence[VideoFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start()
    closing, other = open_session(engine, MAP), open_session(engine, MAP)
    push(closing, frames[:3])
    push(other, frames[:3])
    begun = threading.Event()

    def slow(recorder: Recorder) -> None:
        begun.set()
        time.sleep(1.0)
        _close(recorder)

    monkeypatch.setattr(Recorder, "close", slow)
    engine.close(closing.id)
    begun.wait(60)
    engine.drain()
    assert other.num_unsaved == 0
    assert _is_ended(engine)
    assert [session.id for session in start().sessions] == [other.id]


def test_what_comes_while_a_server_ends_is_refused(start: Start, frames: Sequence[VideoFrame]) -> None:
    engine = start()
    session = open_session(engine)
    push(session, frames[:3])
    engine.drain()
    for late in (
        lambda: session.ask("late", QUESTION),
        lambda: session.push(pushed(frames[3], 3)),
        lambda: engine.open(MAP),
        lambda: engine.fork(session.id),
    ):
        with pytest.raises(RequestError, match="shutting down") as refused:
            late()
        assert refused.value.code == "draining"


def test_a_session_with_a_question_under_way_is_saved_and_stays(
    start: Start, frames: Sequence[VideoFrame], local: Outputs
) -> None:
    session = open_session(start())
    steps = push(session, frames[:12])
    asked = session.ask("under way", QUESTION)
    session.evict().result(timeout=60)
    assert session.num_unsaved == 0
    asked.result(timeout=60)
    assert Outputs((*steps, *push(session, frames[12:], first=12)), ask(session)) == local


@pytest.mark.parametrize(
    "odd",
    [
        {"spec": {"share": 1.5}},
        {"spec": {"model": None}},
        {"watches": [{"id": "w", "question": "q", "expected": "x", "every_s": 1.0, "hold_s": -1.0, "webhook": None}]},
    ],
)
def test_an_odd_record_keeps_no_server_from_starting(start: Start, odd: dict[str, Any]) -> None:
    engine = start()
    broken, whole = open_session(engine, MAP), open_session(engine, MAP)
    engine.drain()
    path = broken.shelf.folder / "session.json"
    record = json.loads(path.read_text())
    del record["sha256"]
    path.write_bytes(sealed({**record, **odd, "spec": {**record["spec"], **odd.get("spec", {})}}))
    again = start()
    assert list(again.damaged) == [broken.id]
    assert [session.id for session in again.sessions] == [whole.id]


def test_a_server_that_fails_to_start_lets_another_have_its_folder(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as failing:
        failing.setattr("longtake.server.engine.remove_unfinished", _full)
        with pytest.raises(OSError, match="No space"):
            start()
    open_session(start(), MAP)


def test_a_session_that_could_not_be_opened_takes_no_room(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine = start()
    with monkeypatch.context() as failing:
        failing.setattr(shelf_module, "replace_file", _full)
        with pytest.raises(OSError, match="No space"):
            open_session(engine, MAP)
    assert engine.admission.num_bytes == 0
    assert list((tmp_path / "sessions").iterdir()) == []


def test_a_world_that_has_ended_leaves_memory_and_is_removed_as_others_are(start: Start) -> None:
    engine = start(idle_s=0.2, retention_s=2.0)
    session = open_session(engine, replace(MAP, source="world:9?frames=3&size=126x98"))
    engine.feed(session.id)
    until(lambda: session.state is SessionState.SAVED)
    until(lambda: not engine.sessions)


def test_a_source_that_fails_is_told_of(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = start()
    session = open_session(engine, replace(MAP, source="world:9?frames=3&size=126x98"))
    monkeypatch.setattr(Feeder, "_feed", _full)
    engine.feed(session.id)
    until(lambda: bool(events_of(session, "error")))
    assert events_of(session, "error")[0]["code"] == "internal"


def test_a_session_whose_files_cannot_be_closed_is_removed(
    start: Start, frames: Sequence[VideoFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start()
    session = open_session(engine, MAP)
    push(session, frames[:3])
    monkeypatch.setattr(Recorder, "close", _close_and_fail)
    engine.close(session.id).result(timeout=60)
    assert not session.shelf.folder.exists()
    assert engine.admission.num_bytes == 0
    assert events_of(session, "session.closed")


def test_a_session_whose_files_cannot_be_closed_goes_on_after_an_eviction(
    start: Start, frames: Sequence[VideoFrame], local: Outputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session(start())
    steps = push(session, frames[:12])
    with monkeypatch.context() as failing:
        failing.setattr(Recorder, "close", _close_and_fail)
        session.evict().result(timeout=60)
    assert session.state is SessionState.SAVED
    assert Outputs((*steps, *push(session, frames[12:], first=12)), ask(session)) == local


def test_a_spare_session_that_cannot_be_saved_is_no_reason_to_refuse_another(
    start: Start, frames: Sequence[VideoFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(budget_bytes=20_000_000, session_bytes=10_000_000, spare_idle_s=0.001)
    first, second = open_session(engine, PLAIN), open_session(engine, PLAIN)
    save = Life.save
    with monkeypatch.context() as failing:
        failing.setattr(Life, "leave_memory", lambda life: _refused() if life.id == first.id else save(life))
        with pytest.raises(BusyError):
            open_session(engine, PLAIN)
    failed = Life.leave_memory
    monkeypatch.setattr(Life, "leave_memory", lambda life: _refused() if life.id == first.id else failed(life))
    open_session(engine, PLAIN)
    assert first.holds_room
    assert not second.holds_room


def test_a_change_that_the_disk_does_not_take_is_not_made(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    session = open_session(start(), ASK)
    with monkeypatch.context() as failing:
        failing.setattr(Shelf, "write", _refused)
        for change in (
            session.pause(is_paused=True),
            session.watch(Watch(id="w", question=QUESTION, expected="left")),
        ):
            with pytest.raises(InputError, match="disk is full"):
                change.result(timeout=60)
    assert not session.is_paused
    assert session.description["watches"] == []


def test_nothing_is_kept_of_the_turns_of_closed_sessions(start: Start, frames: Sequence[VideoFrame]) -> None:
    engine = start()
    session = open_session(engine)
    push(session, frames[:1])
    session.ask("q", QUESTION)
    engine.close(session.id).result(timeout=60)
    until(lambda: engine.scheduler.served(session.id) == Served())


def test_what_cannot_be_saved_at_the_end_is_logged_and_all_else_ends(
    start: Start, frames: Sequence[VideoFrame], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = start()
    broken, whole = open_session(engine, MAP), open_session(engine, MAP)
    push(broken, frames[:3])
    push(whole, frames[:3])
    save = Recorder.save

    def save_or_fail(recorder: Recorder, folder: Path) -> "Future[Recorded]":
        if broken.id in folder.parts:
            _close(recorder)
            _refused()
        return save(recorder, folder)

    monkeypatch.setattr(Recorder, "save", save_or_fail)
    engine.drain()
    assert whole.num_unsaved == 0
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == ["3 frames not saved"]
    assert _is_ended(engine)


@pytest.mark.parametrize("is_in_memory", [True, False])
def test_a_session_whose_folder_became_a_file_is_closed(
    start: Start, frames: Sequence[VideoFrame], *, is_in_memory: bool
) -> None:
    engine = start()
    session = open_session(engine, MAP)
    push(session, frames[:3])
    if not is_in_memory:
        session.evict().result(timeout=60)
    session.settle()
    shutil.rmtree(session.shelf.folder)
    session.shelf.folder.write_text("no folder")
    engine.close(session.id).result(timeout=60)
    assert engine.sessions == []
    assert list(engine.settings.folder.iterdir()) == []


def test_what_is_told_of_damaged_files_names_no_place_of_the_server(
    start: Start, frames: Sequence[VideoFrame], tmp_path: Path
) -> None:
    engine = start()
    session, other = open_session(engine, MAP), open_session(engine, MAP)
    push(session, frames[:3])
    push(other, frames[:3])
    session.evict().result(timeout=60)
    (session.shelf.state_folder(1) / "map.safetensors").write_bytes(b"damaged")
    with pytest.raises(SavedSessionError):
        session.push(pushed(frames[3], 3)).result(timeout=60)
    until(lambda: bool(events_of(session, "error")))
    (told,) = events_of(session, "error")
    assert told["code"] == "saved_session"
    assert told["message"].startswith("state-1/map.safetensors is not a complete saved session")
    engine.drain()
    (other.shelf.folder / "session.json").write_bytes(b"damaged")
    damaged = start().damaged
    assert damaged.keys() == {other.id}
    assert "session.json" in damaged[other.id]
    assert str(tmp_path) not in damaged[other.id]


def test_event_ids_do_not_begin_again_after_crashes_without_a_save(
    start: Start, networks: Networks, tmp_path: Path
) -> None:
    session = open_session(start(), MAP)
    folder = tmp_path / "sessions"
    with ExitStack() as running:
        for number in range(3):  # killed before the first frame, and again before a save
            for is_paused in (True, False):
                session.pause(is_paused=is_paused).result(timeout=60)
            told, crashed = session.events.next_id - 1, tmp_path / f"crashed-{number}"
            shutil.copytree(folder, crashed)  # as the disk is when the program is killed now
            folder = crashed
            engine = running.enter_context(Engine(ServerSettings(folder=folder), networks))
            session = engine.session(session.id)
            missed = session.events.after(told)
            assert [event.type for event in missed] == ["history.gone", "session.resumed"]
            assert all(event.id > told for event in missed)


def held_up(session: ServedSession) -> threading.Event:
    """Lets the worker do nothing until this is set."""
    begun, goes_on = threading.Event(), threading.Event()
    session._do(lambda: (begun.set(), goes_on.wait(60)))
    begun.wait(60)
    return goes_on


def test_a_frame_that_comes_while_a_pause_is_under_way_is_not_taken(start: Start, frames: Sequence[VideoFrame]) -> None:
    session = open_session(start(), MAP)
    goes_on = held_up(session)
    paused, late = session.pause(is_paused=True), session.push(pushed(frames[0], 0))
    goes_on.set()
    paused.result(timeout=60)
    with pytest.raises(RequestError, match="paused"):
        late.result(timeout=60)
    assert session.record.num_frames == 0
    session.pause(is_paused=False).result(timeout=60)
    push(session, frames[:1])


@pytest.mark.parametrize("ends", [False, True], ids=["pause", "end"])
def test_a_source_whose_session_is_paused_or_ended_between_its_frames_loses_and_adds_none(
    start: Start, frames: Sequence[VideoFrame], *, ends: bool
) -> None:
    engine = start()
    session = open_session(engine, replace(MAP, source="world:9?frames=12&size=126x98"))
    push(session, frames[:9])
    goes_on = held_up(session)
    changed = session.finish() if ends else session.pause(is_paused=True)
    engine.feed(session.id)
    until(lambda: session.is_busy)  # its first frame is let in, and waits behind the change
    goes_on.set()
    changed.result(timeout=60)
    until(lambda: not session.is_busy)
    assert session.record.num_frames == 9
    if not ends:
        session.pause(is_paused=False).result(timeout=60)
        until(lambda: bool(events_of(session, "session.finished")), seconds=60)
    until(lambda: session.id not in engine._feeders)
    assert session.record.num_frames == (9 if ends else 12)
    assert session.description["problem"] is None
    assert events_of(session, "error") == []


def test_a_source_whose_session_finds_no_room_waits_for_it(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = start()
    session = open_session(engine, replace(MAP, source="world:9?frames=12&size=126x98"))
    awake, refused = Life.awake, list[str]()

    def awake_later(life: Life) -> Watcher:
        if life.id == session.id and len(refused) < 3:
            refused.append(life.id)
            raise BusyError("Expected room for another session, but there is none now; try again later.")
        return awake(life)

    monkeypatch.setattr(Life, "awake", awake_later)
    engine.feed(session.id)
    until(lambda: bool(events_of(session, "session.finished")), seconds=60)
    assert len(refused) == 3
    assert session.record.num_frames == 12
    assert session.description["problem"] is None
    assert events_of(session, "error") == []


def test_a_fork_shares_an_uploaded_video_and_keeps_it(start: Start, frames: Sequence[VideoFrame]) -> None:
    engine = start()
    session = open_session(engine, replace(MAP, source="upload"))
    video = session.shelf.folder / VIDEO_NAME
    video.write_bytes(b"a video")
    push(session, frames[:2])
    fork = engine.fork(session.id).result(timeout=60)
    shared = fork.shelf.folder / VIDEO_NAME
    assert shared.samefile(video)  # however long it is, the worker copies nothing of it
    engine.close(session.id).result(timeout=60)
    assert shared.read_bytes() == b"a video"


def test_a_disk_that_is_full_for_one_session_harms_no_other(
    start: Start, frames: Sequence[VideoFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(save_every_frames=4)
    poor, rich = open_session(engine, MAP), open_session(engine, MAP)
    write, replace_whole = GrowingFile._write, atomic_files.replacing

    def write_or_fail(file: GrowingFile, piece: bytes) -> None:
        if poor.id in Path(file._file.name).parts:
            _full()
        write(file, piece)

    @contextmanager
    def replacing_or_fail(path: Path) -> Iterator[BufferedWriter]:
        with replace_whole(path) as file:
            if poor.id in path.parts:
                _full()
            yield file

    with monkeypatch.context() as full:
        full.setattr(GrowingFile, "_write", write_or_fail)
        full.setattr(atomic_files, "replacing", replacing_or_fail)
        said = [(push(poor, [frame], number), push(rich, [frame], number)) for number, frame in enumerate(frames[:5])]
        until(lambda: bool(events_of(rich, "session.saved")))
        until(lambda: "storage" in [error["code"] for error in events_of(poor, "error")])
    assert [one for one, _ in said] == [other for _, other in said]
    assert events_of(rich, "error") == []
    assert rich.description["recording"] is True
    assert len(events_of(poor, "recording.stopped")) == 1
    assert events_of(poor, "session.saved") == []
    assert push(poor, frames[5:9], first=5) == push(rich, frames[5:9], first=5)
    until(lambda: bool(events_of(poor, "session.saved")))  # there is room again
    poor.evict().result(timeout=60)
    assert push(poor, frames[9:10], first=9) == push(rich, frames[9:10], first=9)


def test_a_pause_behind_a_removal_finds_no_session(start: Start) -> None:
    session = open_session(start(), MAP)
    goes_on = held_up(session)
    closed, paused = session.close(), session.pause(is_paused=True)
    goes_on.set()
    closed.result(timeout=60)
    with pytest.raises(RequestError, match="was closed; open another"):
        paused.result(timeout=60)
