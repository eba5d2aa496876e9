"""A snapshot saves, whenever that is, what its session would have saved when it was taken."""

from collections.abc import Callable
from pathlib import Path

import pytest
from walked import WALK

import longtake

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


def _files(path: Path) -> dict[str, bytes]:
    if path.is_file():
        return {"": path.read_bytes()}
    return {file.name: file.read_bytes() for file in sorted(path.iterdir())}
