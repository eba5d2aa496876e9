"""A removal that the disk breaks into: a session is wholly gone, also after a restart, or wholly there and goes on."""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn

import pytest
from served import MAP, Start, events_of, open_session, push, until

from longtake.server.problems import RequestError
from longtake.server.shelf import Shelf
from longtake.video.frame import VideoFrame


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], Any]:
    """While it lasts, one call of a function of the operating system fails; tells whether that was made."""

    @contextmanager
    def broken(name: str, number: int) -> Iterator[list[object]]:
        whole, calls, made = getattr(os, name), iter(range(1_000_000)), list[object]()

        def fail_once(*values: object, **options: object) -> object:
            if next(calls) == number:
                made.append(values[0])
                raise OSError(errno.EACCES, "Permission denied")
            return whole(*values, **options)

        with monkeypatch.context() as patched:
            patched.setattr(os, name, fail_once)
            yield made

    return broken


def refuse(*_: object) -> NoReturn:
    raise OSError(errno.EACCES, "Permission denied")


@pytest.mark.parametrize("name", ["replace", "unlink", "rmdir", "open", "scandir"])
def test_a_removal_that_the_disk_breaks_into_is_whole_or_has_not_happened(
    start: Start, frames: Sequence[VideoFrame], breaks: Callable[[str, int], Any], name: str
) -> None:
    engine = start()
    twin = open_session(engine, MAP)
    said, there = push(twin, frames[:2]), {twin.id}
    for number in range(100):
        session = open_session(engine, MAP)
        assert push(session, frames[:1]) == said[:1]
        with breaks(name, number) as broken:
            refused = engine.close(session.id).exception(timeout=60)
        if refused is not None:
            assert isinstance(refused, RequestError)
            assert (refused.code, refused.status) == ("storage", 507)
            assert "(Permission denied): it is still there and goes on" in str(refused)
            there.add(session.id)
            assert engine.session(session.id) is session
            assert not events_of(session, "session.closed")
            assert push(session, frames[1:2], first=1) == said[1:]
        else:
            assert events_of(session, "session.closed")
            until(lambda: {each.id for each in engine.sessions} == there)
            assert not session.holds_room
        if not broken:
            break
    assert number > 0
    assert (len(there) > 1) == (name == "replace")
    engine.drain()
    again = start()
    assert {each.id: each.record.num_frames for each in again.sessions} == dict.fromkeys(there, 2)
    assert {path.name for path in again.settings.folder.iterdir()} == there
    for id in there:
        again.close(id).result(timeout=60)
    assert list(again.settings.folder.iterdir()) == []


def test_a_session_on_disk_that_cannot_be_removed_comes_back_with_the_same_bits(
    start: Start, frames: Sequence[VideoFrame], breaks: Callable[[str, int], Any]
) -> None:
    engine = start()
    session, twin = open_session(engine, MAP), open_session(engine, MAP)
    said = push(twin, frames[:5])
    assert push(session, frames[:3]) == said[:3]
    session.evict().result(timeout=60)
    with breaks("replace", 0), pytest.raises(RequestError, match="still there and goes on"):
        engine.close(session.id).result(timeout=60)
    assert session.description["state"] == "saved"
    assert push(session, frames[3:5], first=3) == said[3:]


def test_a_source_whose_session_could_not_be_removed_goes_on_to_its_end(
    start: Start, breaks: Callable[[str, int], Any]
) -> None:
    engine = start()
    session = open_session(engine, replace(MAP, source="world:9?frames=40&size=126x98"))
    engine.feed(session.id)
    until(lambda: session.record.num_frames > 2)
    with breaks("replace", 0), pytest.raises(RequestError, match="still there and goes on"):
        engine.close(session.id).result(timeout=60)
    until(lambda: session.record.is_finished, seconds=60)
    assert session.record.num_frames == 40


def test_a_session_that_is_too_old_and_cannot_be_removed_is_tried_again_later(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(retention_s=0.2)
    tried: list[Shelf] = []

    def give_up_name(shelf: Shelf) -> None:
        tried.append(shelf)
        refuse()

    with monkeypatch.context() as failing:
        failing.setattr(Shelf, "give_up_name", give_up_name)
        session = open_session(engine, MAP)
        until(lambda: bool(session.removable_from_s))
        for _ in range(3):
            engine.keep_house()
        session.save().result(timeout=60)
        assert len(tried) == 1
    assert engine.sessions == [session]
    session.removable_from_s = 0.0
    until(lambda: not engine.sessions)


def test_what_could_not_be_opened_is_told_also_where_its_folder_cannot_be_removed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start()

    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Shelf, "write", full)
    monkeypatch.setattr(Shelf, "give_up_name", refuse)
    with pytest.raises(OSError, match="No space left"):
        open_session(engine, MAP)
    assert engine.admission.num_bytes == 0
