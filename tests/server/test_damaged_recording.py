"""Whatever fails while a session is recorded, or was done to its files, it goes on to the bit, and says so once."""

import errno
import json
import logging
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from selected import rest_by_hand
from served import BOTH, MAP, Start, events_of, open_session, push, pushed, until

import longtake
from longtake.errors import SavedSessionError
from longtake.server import life, recorder, saving
from longtake.server.downloads import Downloads
from longtake.server.networks import Networks
from longtake.server.pictures import read_jpeg
from longtake.server.results import geometry_bytes
from longtake.server.session import ServedSession
from longtake.server.shelf import PICTURES_NAME, TAKE_NAME
from longtake.server.take_recording import OwedResults, TakeRecording
from longtake.takes.sealed_json import sealed
from longtake.takes.take import read_take
from longtake.types import Geometry
from longtake.video.frame import VideoFrame

pytestmark = pytest.mark.extra
NUM_FRAMES, FAILS_AT = 14, 10
Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def steps(networks: Networks, frames: Sequence[VideoFrame]) -> list[bytes]:
    """What a local session says of each frame."""
    with longtake.GeometrySession.from_pretrained(networks.map_named(MAP.model), memory=MAP.memory_bytes) as session:
        session.close_loops_by(networks.loops_of(MAP))
        return [geometry_bytes(session.step(frame)) for frame in frames[:NUM_FRAMES]]


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Callable[[object, str, Exception], None]:
    """Lets a function fail once, when it is called for the eleventh time."""

    def patch(owner: object, name: str, error: Exception) -> None:
        whole, num_calls = getattr(owner, name), iter(range(1_000_000))

        def broken(*values: object, **options: object) -> object:
            if next(num_calls) == FAILS_AT:
                raise error
            return whole(*values, **options)

        monkeypatch.setattr(owner, name, broken)

    return patch


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def deleted(path: Path) -> None:
    path.unlink()


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def flipped(path: Path) -> None:
    """One bit in its middle, as a disk that grows old does."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def pictures_of(session: ServedSession) -> list[bytes | None]:
    return [read_jpeg(session.shelf.folder / PICTURES_NAME, number) for number in range(NUM_FRAMES)]


@pytest.mark.parametrize(
    ("owner", "name", "error"),
    rest_by_hand(
        [
            (recorder, "as_jpeg", MemoryError()),
            (TakeRecording, "write", OSError(errno.EIO, "EIO")),
            (OwedResults, "take", MemoryError()),
            (life, "on_cpu", MemoryError()),
        ],
        keep=2,
    ),
    ids=["as_jpeg", "take", "results", "on_cpu"],
)
def test_what_fails_while_recording_stops_it_with_a_sentence_and_nothing_else(
    start: Start,
    frames: Sequence[VideoFrame],
    steps: list[bytes],
    fails: Callable[[object, str, Exception], None],
    caplog: pytest.LogCaptureFixture,
    owner: object,
    name: str,
    error: Exception,
) -> None:
    engine = start()
    whole, session = open_session(engine, MAP), open_session(engine, MAP)
    push(whole, frames[:NUM_FRAMES])
    whole.settle()
    fails(owner, name, error)
    assert push(session, frames[:12]) == steps[:12]
    session.evict().result(timeout=60)
    assert push(session, frames[12:NUM_FRAMES], first=12) == steps[12:]
    session.finish().result(timeout=60)
    (stopped,) = events_of(session, "recording.stopped")
    assert stopped["message"].startswith("The server failed to record it. This session goes on")
    assert events_of(session, "error") == []
    assert session.description["recording"] is False
    kept = [picture for picture in pictures_of(session) if picture is not None]
    assert FAILS_AT <= len(kept) <= FAILS_AT + 1
    assert kept == pictures_of(whole)[: len(kept)]
    assert len(read_take(session.shelf.folder / TAKE_NAME)) == session.description["num_recorded"]
    (logged,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert logged.exc_info is not None
    assert logged.exc_info[1] is error


def test_a_listener_that_fails_keeps_neither_files_nor_other_listeners_from_a_step(
    start: Start, frames: Sequence[VideoFrame], caplog: pytest.LogCaptureFixture
) -> None:
    session = open_session(start(), MAP)
    heard: list[int] = []

    def fail(*_: object) -> None:
        raise MemoryError

    session.listen(fail)
    session.listen(lambda step, _: heard.append(step.index))
    push(session, frames[:10])
    session.settle()
    assert heard == list(range(10))
    assert None not in pictures_of(session)[:10]
    assert session.description["recording"] is True
    assert len([record for record in caplog.records if record.exc_info]) == 10


@pytest.mark.parametrize("damage", rest_by_hand([truncated, as_folder, emptied, deleted, as_loop], keep=1))
def test_damaged_poses_stop_the_recording_and_no_frame(
    start: Start, frames: Sequence[VideoFrame], steps: list[bytes], damage: Damage
) -> None:
    session = open_session(start(), MAP)
    push(session, frames[:10])
    session.evict().result(timeout=60)
    damage(session.shelf.folder / "poses.bin")
    assert push(session, frames[10:12], first=10) == steps[10:12]
    session.evict().result(timeout=60)
    assert push(session, frames[12:NUM_FRAMES], first=12) == steps[12:]
    (stopped,) = events_of(session, "recording.stopped")
    assert "--" not in stopped["message"]  # options are for who is at the server
    assert session.description["recording"] is False


@pytest.mark.parametrize("damage", rest_by_hand([flipped, truncated, deleted], keep=1))
def test_damaged_poses_of_a_session_on_disk_are_not_given_away(
    start: Start, frames: Sequence[VideoFrame], damage: Damage
) -> None:
    session = open_session(start(), MAP)
    push(session, frames[:10])
    session.evict().result(timeout=60)
    damage(session.shelf.folder / "poses.bin")
    with pytest.raises(SavedSessionError, match="poses of this session were damaged"):
        session.poses()


def test_poses_after_the_last_save_are_of_frames_that_the_session_does_not_have(
    start: Start, frames: Sequence[VideoFrame]
) -> None:
    session = open_session(start(), MAP)
    push(session, frames[:10])
    session.evict().result(timeout=60)
    _, before = session.poses()
    with (session.shelf.folder / "poses.bin").open("ab") as poses:
        poses.write(struct.pack("<qd16f", 40, 4.0, *range(16)))  # as a killed server leaves them
    assert session.poses()[1] == before
    assert len(before.splitlines()) == 10


def test_a_file_that_is_no_picture_stops_the_recording_and_no_frame(
    start: Start, frames: Sequence[VideoFrame], steps: list[bytes]
) -> None:
    session = open_session(start(), MAP)
    push(session, frames[:10])
    session.evict().result(timeout=60)
    (session.shelf.folder / PICTURES_NAME / "mine.jpegs").touch()
    assert push(session, frames[10:12], first=10) == steps[10:12]
    assert len(events_of(session, "recording.stopped")) == 1


@pytest.mark.parametrize("name", ["live-1-map.safetensors", "live-1-dialogue.safetensors", "live.json"])
def test_what_is_told_of_a_damaged_save_is_what_a_client_can_do(
    start: Start, frames: Sequence[VideoFrame], name: str
) -> None:
    session = open_session(start(), BOTH)
    push(session, frames[:3])
    session.evict().result(timeout=60)
    (session.shelf.state_folder(1) / name).write_bytes(b"damaged")
    with pytest.raises(SavedSessionError):
        session.push(pushed(frames[3], 3)).result(timeout=60)
    until(lambda: bool(events_of(session, "error")))
    (told,) = events_of(session, "error")
    assert told["code"] == "saved_session"
    assert told["message"].startswith(("state-1/", "Expected"))
    assert told["message"].endswith("; open another session and send its frames again, or tell the server's operator.")
    assert "save" not in told["message"].rpartition("; ")[2]


@pytest.mark.parametrize("damage", rest_by_hand([truncated, as_folder, emptied, deleted, as_loop], keep=1))
def test_a_session_can_do_without_its_last_result(
    start: Start, frames: Sequence[VideoFrame], steps: list[bytes], damage: Damage
) -> None:
    engine = start()
    session = open_session(engine, MAP)
    push(session, frames[:10])
    engine.drain()
    damage(session.shelf.state_folder(session.record.number) / "last.safetensors")
    again = start().session(session.id)
    assert push(again, frames[10:12], first=10) == steps[10:12]
    assert again.description["recording"] is True


def test_a_last_result_with_a_changed_bit_is_not_told_again(start: Start, frames: Sequence[VideoFrame]) -> None:
    engine = start()
    session = open_session(engine, MAP)
    push(session, frames[:10])
    engine.drain()
    flipped(session.shelf.state_folder(session.record.number) / "last.safetensors")
    again = start().session(session.id)
    again.push(pushed(frames[9], 9)).result(timeout=60)
    assert again.last is None


def test_a_changed_bit_in_what_is_owed_makes_a_session_damaged_and_no_other(
    start: Start, frames: Sequence[VideoFrame], steps: list[bytes], tmp_path: Path
) -> None:
    engine = start()
    broken, resting, whole = (open_session(engine, MAP) for _ in range(3))
    for session in (broken, resting, whole):
        push(session, frames[:10])
    resting.evict().result(timeout=60)
    flipped(resting.shelf.state_folder(resting.record.number) / "owed.safetensors")
    with pytest.raises(SavedSessionError, match=r"owed\.safetensors was damaged or changed .*: open another"):
        resting.push(pushed(frames[10], 10)).result(timeout=60)
    engine.drain()
    flipped(broken.shelf.state_folder(broken.record.number) / "owed.safetensors")
    again = start()
    assert again.damaged.keys() == {broken.id, resting.id}
    assert again.damaged[broken.id].startswith("state-1/owed.safetensors was damaged or changed on the server's disk")
    assert str(tmp_path) not in again.damaged[broken.id]
    assert push(again.session(whole.id), frames[10:12], first=10) == steps[10:12]


@pytest.mark.parametrize(
    "name", rest_by_hand(["depth/000003.png", "images/000000.jpg", "confidence/000009.npz"], keep=1)
)
def test_a_changed_bit_in_the_pixels_of_a_take_is_noticed_when_the_session_comes_back(
    start: Start, frames: Sequence[VideoFrame], steps: list[bytes], tmp_path: Path, name: str
) -> None:
    engine = start()
    broken, whole = open_session(engine, MAP), open_session(engine, MAP)
    for session in (broken, whole):
        push(session, frames[:12])
        session.finish().result(timeout=60)
    engine.drain()
    flipped(broken.shelf.folder / TAKE_NAME / name)
    again = start()
    downloads = Downloads(tmp_path / "sessions")
    with pytest.raises(SavedSessionError, match=rf"take was damaged or changed on the server's disk \({name}"):
        downloads.make(again.session(broken.id), "take")
    assert list((tmp_path / "sessions").glob("download-*")) == []
    downloads.remove(downloads.make(again.session(whole.id), "take"))
    for session in (again.session(broken.id), again.session(whole.id)):
        session.push(pushed(frames[11], 11)).result(timeout=60)  # which brings it back
    until(lambda: bool(events_of(again.session(broken.id), "recording.stopped")))
    assert again.session(broken.id).description["recording"] is False
    assert again.session(whole.id).description["recording"] is True


@pytest.mark.parametrize("name", ["poses.tum", "descriptors.txt"])
def test_changed_lines_of_a_take_on_disk_are_not_given_away(
    start: Start, frames: Sequence[VideoFrame], tmp_path: Path, name: str
) -> None:
    session = open_session(start(), MAP)
    push(session, frames[:12])
    session.finish().result(timeout=60)
    session.evict().result(timeout=60)
    lines, downloads = session.shelf.folder / TAKE_NAME / name, Downloads(tmp_path / "sessions")
    downloads.remove(downloads.make(session, "take"))
    content = bytearray(lines.read_bytes())
    content[content.index(b"\n") + 12] ^= 1  # a digit becomes another
    lines.write_bytes(content)
    with pytest.raises(SavedSessionError, match=f"take was damaged or changed on the server's disk .{name}"):
        downloads.make(session, "take")


@pytest.mark.by_hand
def test_pixels_of_a_session_of_before_there_were_digests_are_taken_as_they_are(
    start: Start, frames: Sequence[VideoFrame], steps: list[bytes]
) -> None:
    engine = start()
    session = open_session(engine, MAP)
    push(session, frames[:10])
    engine.drain()
    path = session.shelf.state_folder(session.record.number) / "recording.json"
    record = json.loads(path.read_text())
    path.write_bytes(sealed({name: record[name] for name in record.keys() - {"sha256", "files", "digests"}}))
    (session.shelf.folder / "take.sha256").unlink()
    again = start().session(session.id)
    assert push(again, frames[10:12], first=10) == steps[10:12]
    assert again.description["recording"] is True


def test_a_last_result_that_cannot_be_written_is_one_sentence(
    start: Start, frames: Sequence[VideoFrame], steps: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session(start(save_every_frames=10), MAP)

    def in_the_way(geometry: Geometry) -> bytes:
        for state in session.shelf.folder.glob("state-*"):
            (state / "last.safetensors").mkdir()
        return geometry_bytes(geometry)

    with monkeypatch.context() as full:
        full.setattr(saving, "geometry_bytes", in_the_way)
        assert push(session, frames[:12]) == steps[:12]
        until(lambda: bool(events_of(session, "error")))
    (unsaved,) = events_of(session, "error")
    assert unsaved["code"] == "storage"
    assert "cannot be written" in unsaved["message"]
    assert session.description["recording"] is True


@pytest.mark.parametrize("damage", rest_by_hand([emptied, as_folder, deleted, as_loop], keep=1))
def test_a_session_whose_record_is_damaged_keeps_what_it_recorded(
    start: Start, frames: Sequence[VideoFrame], damage: Damage
) -> None:
    engine = start()
    session = open_session(engine, MAP)
    push(session, frames[:10])
    engine.drain()
    damage(session.shelf.folder / "session.json")
    again = start()
    assert list(again.damaged) == [session.id]
    assert again.sessions == []
    assert None not in pictures_of(session)[:10]
    assert (session.shelf.folder / TAKE_NAME).is_dir()


def test_what_is_left_of_a_copy_or_a_removal_is_removed_at_the_start(
    start: Start, frames: Sequence[VideoFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start()
    session = open_session(engine, MAP)
    push(session, frames[:10])
    with monkeypatch.context() as killed:
        killed.setattr("longtake.server.shelf.shutil.rmtree", lambda *_, **__: None)
        engine.close(session.id).result(timeout=60)
    left = session.shelf.unfinished_folder
    assert (left / TAKE_NAME).is_dir()
    engine.drain()
    again = start()
    assert not left.exists()
    assert again.damaged == {}
