"""Saves that are written while a session goes on: of one moment, one at a time, told once they are on the disk."""

import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import pytest
from served import MAP, Outputs, Start, ask, events_of, open_session, push, pushed, until

from longtake.errors import InputError
from longtake.memory.saved import TensorFile
from longtake.server import shelf
from longtake.server.engine import Engine
from longtake.server.machine import steady_time
from longtake.server.networks import Networks
from longtake.server.problems import RequestError
from longtake.server.settings import ServerSettings
from longtake.server.watchers import MapWatcher
from longtake.takes.atomic_files import replace_file
from longtake.video.frame import VideoFrame


class HeldUp:
    """A disk that takes nothing before it may."""

    def __init__(self) -> None:
        self.may_write, self.is_writing = threading.Event(), threading.Event()
        self.num_at_once = self.most_at_once = 0
        self._save = TensorFile.save

    def save(self, file: TensorFile, path: str | Path) -> None:
        self.num_at_once += 1
        self.most_at_once = max(self.most_at_once, self.num_at_once)
        self.is_writing.set()
        assert self.may_write.wait(60)
        self._save(file, path)
        self.num_at_once -= 1


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldUp]:
    held_up = HeldUp()
    monkeypatch.setattr(TensorFile, "save", lambda file, path: held_up.save(file, path))
    yield held_up
    held_up.may_write.set()


def test_frames_taken_while_a_save_is_written_are_no_part_of_it(
    start: Start, frames: Sequence[VideoFrame], local: Outputs, tmp_path: Path, networks: Networks, disk: HeldUp
) -> None:
    session = open_session(start(save_every_frames=8))
    steps = push(session, frames[:14])
    assert disk.is_writing.is_set()
    assert events_of(session, "session.saved") == []
    assert session.shelf.read().number == 0
    assert session.num_unsaved == 14
    disk.may_write.set()
    until(lambda: bool(events_of(session, "session.saved")))
    assert [event["next_sequence"] for event in events_of(session, "session.saved")] == [8]
    assert session.num_unsaved == 6
    session.settle()
    shutil.copytree(tmp_path / "sessions", tmp_path / "crashed")  # as the disk is when the program is killed now
    with Engine(ServerSettings(folder=tmp_path / "crashed"), networks) as engine:
        again = engine.session(session.id)
        assert again.lost == (8, 13)
        assert push(again, frames[8:14], first=8) == steps[8:14]
        assert Outputs((*steps, *push(again, frames[14:], first=14)), ask(again)) == local


def test_a_save_that_is_written_slowly_ends_before_the_next_begins(
    start: Start, frames: Sequence[VideoFrame], disk: HeldUp
) -> None:
    session = open_session(start(save_every_frames=2), MAP)
    push(session, frames[:3])
    waits = session.push(pushed(frames[3], 3))  # taken, but the next save is due with it
    until(lambda: session.record.num_frames == 4)
    assert not waits.done()
    disk.may_write.set()
    waits.result(timeout=60)
    push(session, frames[4:9], first=4)
    session.save().result(timeout=60)
    assert disk.most_at_once == 1
    saved = [event["next_sequence"] for event in events_of(session, "session.saved")]
    assert saved == sorted(set(saved))
    assert saved[:2] == [2, 4]
    assert saved[-1] == 9


def test_what_is_changed_while_a_save_is_written_stays_changed(
    start: Start, frames: Sequence[VideoFrame], disk: HeldUp
) -> None:
    session = open_session(start(save_every_frames=3), MAP)
    push(session, frames[:3])
    session.pause(is_paused=True).result(timeout=60)
    disk.may_write.set()
    until(lambda: session.num_unsaved == 0)
    assert session.shelf.read().is_paused
    assert session.shelf.read().num_frames == 3


@pytest.mark.parametrize("ending", ["evict", "close"])
def test_a_session_leaves_when_its_save_is_written(
    start: Start, frames: Sequence[VideoFrame], disk: HeldUp, ending: str
) -> None:
    engine = start(save_every_frames=3)
    session = open_session(engine, MAP)
    push(session, frames[:3])
    leaving = session.evict() if ending == "evict" else engine.close(session.id)
    assert disk.is_writing.wait(60)
    assert not leaving.done()
    disk.may_write.set()
    leaving.result(timeout=60)
    assert session.shelf.folder.exists() == (ending == "evict")
    if ending == "evict":
        push(session, frames[3:5], first=3)


def _no_memory(*_: object) -> NoReturn:
    raise MemoryError


def _no_room(*_: object) -> NoReturn:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("part", "name", "fails"),
    [(TensorFile, "save", _no_memory), (TensorFile, "save", _no_room), (MapWatcher, "snapshot", _no_memory)],
)
def test_a_save_that_fails_is_told_once_and_tried_again(
    start: Start,
    frames: Sequence[VideoFrame],
    monkeypatch: pytest.MonkeyPatch,
    part: type,
    name: str,
    fails: object,
) -> None:
    session = open_session(start(save_every_frames=3), MAP)
    with monkeypatch.context() as failing:
        failing.setattr(part, name, fails)
        push(session, frames[:3])
        until(lambda: bool(events_of(session, "error")))
    push(session, frames[3:5], first=3)
    assert events_of(session, "session.saved") == []
    push(session, frames[5:6], first=5)
    until(lambda: bool(events_of(session, "session.saved")))
    assert [error["code"] for error in events_of(session, "error")] == ["internal"]
    session.save().result(timeout=60)  # nobody is told of what failed before
    assert session.num_unsaved == 0


def test_a_save_that_fails_when_its_record_counts_already_is_not_written_over(
    start: Start, frames: Sequence[VideoFrame], tmp_path: Path, networks: Networks, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session(start(save_every_frames=100), MAP)
    push(session, frames[:2])
    session.save().result(timeout=60)
    push(session, frames[2:4], first=2)

    def write_and_fail(path: Path, content: bytes) -> NoReturn:
        replace_file(path, content)
        raise InputError("The folder cannot be synced.")

    with monkeypatch.context() as failing:
        failing.setattr(shelf, "replace_file", write_and_fail)
        with pytest.raises(InputError, match="synced"):
            session.save().result(timeout=60)
    assert (session.shelf.read().number, session.record.number) == (2, 1)

    def fail(_: TensorFile, path: str | Path) -> NoReturn:
        raise InputError(f"{path} cannot be written.")

    with monkeypatch.context() as failing:
        failing.setattr(TensorFile, "save", fail)
        with pytest.raises(InputError, match="cannot be written"):
            session.save().result(timeout=60)
    session.settle()
    shutil.copytree(tmp_path / "sessions", tmp_path / "crashed")
    with Engine(ServerSettings(folder=tmp_path / "crashed"), networks) as engine:
        again = engine.session(session.id)
        assert again.record.num_frames == 4
        known = push(again, frames[4:6], first=4)
    assert push(session, frames[4:6], first=4) == known
    session.save().result(timeout=60)
    assert session.shelf.read().number == session.record.number == 3


def test_a_save_that_follows_another_does_not_read_what_that_wrote(
    start: Start, frames: Sequence[VideoFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session(start(save_every_frames=100), MAP)
    push(session, frames[:1])
    with monkeypatch.context() as unread:
        unread.delattr(shelf.Shelf, "read")
        session.save().result(timeout=60)
        push(session, frames[1:2], first=1)
        session.save().result(timeout=60)
    assert session.shelf.read().number == session.record.number == 2


def test_what_comes_while_a_session_is_being_closed_finds_nothing_and_leaves_nothing(
    start: Start, frames: Sequence[VideoFrame], disk: HeldUp
) -> None:
    engine = start(save_every_frames=1)
    other, session = open_session(engine, MAP), open_session(engine, MAP)
    push(session, frames[:1])
    held = session.evict()  # waits for the disk, and what comes after it in turn
    assert disk.is_writing.wait(60)
    closing = engine.close(session.id)
    coming = [session.push(pushed(frames[1], 1)), session.finish(), engine.fork(session.id)]
    disk.may_write.set()
    held.result(timeout=60)
    closing.result(timeout=60)
    for done in coming:
        with pytest.raises(RequestError, match="closed"):
            done.result(timeout=60)
    assert not session.shelf.folder.exists()
    assert [each.id for each in engine.sessions] == [other.id]
    assert not session.holds_room


def test_a_clock_that_is_set_makes_no_session_old(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = start()
    session = open_session(engine, MAP)
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + 400 * 86400)
    assert abs(steady_time() - now_s) < 3600
    later = open_session(engine, MAP)
    assert abs(later.active_s - session.active_s) < 3600
    engine.keep_house()
    assert {each.id for each in engine.sessions} == {session.id, later.id}


def test_an_end_that_cannot_be_saved_still_gives_the_results_that_were_owed(
    start: Start, frames: Sequence[VideoFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(save_every_frames=100)
    session, twin = open_session(engine, MAP), open_session(engine, MAP)
    for each in (session, twin):
        push(each, frames[:3])
    owed = twin.finish().result(timeout=60)

    def fail(_: TensorFile, path: str | Path) -> NoReturn:
        raise InputError(f"{path} cannot be written.")

    with monkeypatch.context() as failing:
        failing.setattr(TensorFile, "save", fail)
        given = session.finish().result(timeout=60)
        engine.keep_house()
        session.rest()
        until(lambda: len(events_of(session, "error")) == 2)
    assert given.frame_index == owed.frame_index != ()
    assert session.holds_room
    session.save().result(timeout=60)
    assert session.shelf.read().is_finished
