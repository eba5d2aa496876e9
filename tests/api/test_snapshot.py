"""A snapshot saves, whenever that is, what its session would have saved when it was taken."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import pytest
from walked import WALK

import longtake
from longtake.memory.saved import TensorFile
from longtake.server.results import geometry_bytes

FRAMES = 9


def _map() -> longtake.GeometrySession:
    return longtake.GeometrySession.from_pretrained("micro-map", memory="5MB", device="cpu")


def _dialogue() -> longtake.DialogueSession:
    return longtake.DialogueSession.from_pretrained("micro-vqa", memory="4MB", device="cpu")


def _live() -> longtake.LiveSession:
    return longtake.LiveSession.from_pretrained(map="micro-map", ask="micro-vqa", memory="20MB", device="cpu")


@pytest.mark.parametrize("opened", [_map, _dialogue, _live])
def test_a_snapshot_is_saved_to_the_byte_as_the_session_was_then(
    opened: Callable[[], longtake.GeometrySession | longtake.DialogueSession | longtake.LiveSession], tmp_path: Path
) -> None:
    frames = list(longtake.open_video(WALK))
    with opened() as session:
        take = session.see if isinstance(session, longtake.DialogueSession) else session.step
        for frame in frames[:FRAMES]:
            take(frame)
        session.save(tmp_path / "at once")
        snapshot = session.snapshot()
        for frame in frames[FRAMES:]:  # enough of them to take the places of what was remembered
            take(frame)
        session.save(tmp_path / "at the end")
    snapshot.save(tmp_path / "later")
    assert _files(tmp_path / "later") == _files(tmp_path / "at once")
    assert _files(tmp_path / "later") != _files(tmp_path / "at the end")


@pytest.fixture(scope="module")
def told() -> list[bytes]:
    """What a map says of which no snapshot is taken."""
    with _map() as session:
        return [geometry_bytes(session.step(frame)) for frame in longtake.open_video(WALK)]


def test_a_snapshot_holds_what_it_is_of_until_a_full_memory_needs_the_room(told: list[bytes], tmp_path: Path) -> None:
    with _map() as session:
        for number, frame in enumerate(longtake.open_video(WALK)):
            if number == FRAMES:
                snapshot = session.snapshot()
                session.save(tmp_path / "at once")
                assert not snapshot.is_own
            assert geometry_bytes(session.step(frame)) == told[number]
        assert snapshot.is_own
    snapshot.save(tmp_path / "later")
    assert _files(tmp_path / "later") == _files(tmp_path / "at once")


def test_snapshots_that_are_copied_while_frames_come_are_of_their_moments(told: list[bytes], tmp_path: Path) -> None:
    saves = {}
    with _map() as session, ThreadPoolExecutor(1) as saver:
        for number, frame in enumerate(longtake.open_video(WALK)):
            assert geometry_bytes(session.step(frame)) == told[number]
            if number % 3 == 2:
                session.save(tmp_path / f"{number} at once")
                saves[number] = saver.submit(session.snapshot().save, tmp_path / f"{number} later")
    for number, save in saves.items():
        save.result()
        assert _files(tmp_path / f"{number} later") == _files(tmp_path / f"{number} at once"), number


def test_a_snapshot_that_cannot_be_copied_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = list(longtake.open_video(WALK))
    with _map() as session:
        for frame in frames[:FRAMES]:
            session.step(frame)
        snapshot = session.snapshot()
        with monkeypatch.context() as full:
            full.setattr(TensorFile, "copied", _no_memory)
            for frame in frames[FRAMES:]:
                session.step(frame)
        assert snapshot.is_own
        with pytest.raises(MemoryError):
            snapshot.save(tmp_path / "later")
        assert not (tmp_path / "later").exists()
        session.snapshot().save(tmp_path / "later")


def _no_memory(*_: object) -> NoReturn:
    raise MemoryError


def _files(path: Path) -> dict[str, bytes]:
    if path.is_file():
        return {"": path.read_bytes()}
    return {file.name: file.read_bytes() for file in sorted(path.iterdir())}
