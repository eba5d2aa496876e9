"""What a session leaves on disk is to the byte that of one that nothing happened to, and its take that of `map`."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from full_disk import files_no_longer_than
from PIL import Image
from served import ASK, BOTH, MAP, Start, ask, await_save, events_of, open_session, push, until

import longtake
from longtake.errors import InputError
from longtake.pipeline.events import Frame
from longtake.server.downloads import Downloads
from longtake.server.engine import Engine
from longtake.server.networks import Networks
from longtake.server.pictures import read_jpeg
from longtake.server.problems import RequestError
from longtake.server.results import geometry_bytes
from longtake.server.session import ServedSession
from longtake.server.settings import ServerSettings
from longtake.server.shelf import PICTURES_NAME, TAKE_NAME, VIDEO_NAME
from longtake.server.spec import SessionSpec
from longtake.takes.take import read_take
from longtake.video.frame import VideoFrame

pytestmark = pytest.mark.extra
LONG_WALK = "world:9?frames=72&size=126x98"
"""Long enough for a second window, and results that move."""
ALONE = replace(MAP, memory_bytes=BOTH.map_bytes)
OF_THE_RUN = ("run.json", "progress.jsonl", "events.jsonl", "report.html", "summary.json")
"""What `map` writes beside a take."""
Files = dict[str, bytes]


@pytest.fixture(scope="module")
def walk() -> list[VideoFrame]:
    return list(longtake.open_video(LONG_WALK))


@pytest.fixture(scope="module")
def undisturbed(networks: Networks, walk: Sequence[VideoFrame], tmp_path_factory: pytest.TempPathFactory) -> Files:
    """What a session leaves that is never saved before its end."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return left_by(folder, networks, MAP, walk)


@pytest.fixture(scope="module")
def shorter(networks: Networks, frames: Sequence[VideoFrame], tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The same of a short walk, with as much memory as the map has beside questions."""
    return left_by(tmp_path_factory.mktemp("shorter"), networks, ALONE, frames)


def left_by(folder: Path, networks: Networks, spec: SessionSpec, frames: Sequence[VideoFrame]) -> Files:
    settings = ServerSettings(folder=folder, save_every_frames=1000, save_every_s=1000.0)
    with Engine(settings, networks) as engine:
        session = open_session(engine, spec)
        push(session, frames)
        return ended(session)


def ended(session: ServedSession) -> Files:
    """All that is recorded of a session when it has finished and left memory."""
    session.finish().result(timeout=60)
    session.evict().result(timeout=60)
    return recorded(session.shelf.folder)


def recorded(folder: Path) -> Files:
    found = [folder / "poses.bin", *(folder / PICTURES_NAME).rglob("*"), *(folder / TAKE_NAME).rglob("*")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found if path.is_file()}


def names(files: Files, expected: Files) -> list[str]:
    """Of the files that differ."""
    return sorted(name for name in files.keys() | expected.keys() if files.get(name) != expected.get(name))


@pytest.fixture(scope="module")
def steps(networks: Networks, frames: Sequence[VideoFrame]) -> list[bytes]:
    """What a local session says of each frame."""
    with longtake.GeometrySession.from_pretrained(networks.map_named(MAP.model), memory=MAP.memory_bytes) as session:
        session.close_loops_by(networks.loops_of(MAP))
        return [geometry_bytes(session.step(frame)) for frame in frames]


def test_the_take_of_a_session_is_to_the_byte_that_of_map(undisturbed: Files, tmp_path: Path) -> None:
    longtake.map(LONG_WALK, tmp_path / "map", memory=MAP.memory_bytes, format="depth,confidence,images", device="cpu")
    mapped = {
        str(Path(TAKE_NAME) / path.relative_to(tmp_path / "map")): path.read_bytes()
        for path in (tmp_path / "map").rglob("*")
        if path.is_file() and path.name not in OF_THE_RUN
    }
    take = {name: content for name, content in undisturbed.items() if name.startswith(TAKE_NAME)}
    assert names(take, mapped) == []
    assert len(take) == 4 + 3 * 72


def test_saves_evictions_and_a_crash_leave_the_same_files(
    start: Start, walk: Sequence[VideoFrame], undisturbed: Files, tmp_path: Path, networks: Networks
) -> None:
    session = open_session(start(save_every_frames=7), MAP)
    push(session, walk[:5])
    session.evict().result(timeout=60)  # while the first frames wait for their scale
    push(session, walk[5:60], first=5)
    session.evict().result(timeout=60)  # while the next window may still move the newest
    push(session, walk[60:68], first=60)
    await_save(session, 1)
    session.settle()
    shutil.copytree(tmp_path / "sessions", tmp_path / "crashed")  # as the disk is when the program is killed now
    with Engine(ServerSettings(folder=tmp_path / "crashed"), networks) as engine:
        again = engine.session(session.id)
        assert again.lost is not None
        push(again, walk[again.lost[0] :], first=again.lost[0])
        assert names(ended(again), undisturbed) == []


def test_a_crash_before_the_first_save_leaves_nothing_of_what_was(
    start: Start, frames: Sequence[VideoFrame], shorter: Files, tmp_path: Path, networks: Networks
) -> None:
    session = open_session(start(save_every_frames=1000), ALONE)
    push(session, [replace(frame, image=np.asarray(frame.image)[::-1].copy()) for frame in frames[:12]])
    session.settle()
    shutil.copytree(tmp_path / "sessions", tmp_path / "crashed")
    with Engine(ServerSettings(folder=tmp_path / "crashed"), networks) as engine:
        again = engine.session(session.id)
        push(again, frames)
        assert names(ended(again), shorter) == []


def test_a_fork_and_its_parent_record_each_for_itself(
    start: Start, walk: Sequence[VideoFrame], undisturbed: Files
) -> None:
    engine = start()
    session = open_session(engine, MAP)
    push(session, walk[:60])
    fork = engine.fork(session.id).result(timeout=60)
    push(session, walk[60:66], first=60)
    push(fork, walk[60:], first=60)
    assert names(ended(fork), undisturbed) == []
    push(session, walk[66:], first=66)
    assert names(ended(session), undisturbed) == []


def test_with_questions_beside_it_the_take_is_the_same(
    start: Start, frames: Sequence[VideoFrame], shorter: Files
) -> None:
    session = open_session(start(), BOTH)
    push(session, frames[:12])
    ask(session)
    session.evict().result(timeout=60)
    push(session, frames[12:], first=12)
    assert names(ended(session), shorter) == []


@pytest.mark.parametrize("spec", [MAP, ASK, BOTH], ids=["map", "ask", "both"])
def test_every_frame_leaves_a_picture(start: Start, frames: Sequence[VideoFrame], spec: SessionSpec) -> None:
    session = open_session(start(), spec)
    push(session, frames[:3])
    session.evict().result(timeout=60)
    push(session, frames[3:5], first=3)
    session.settle()
    folder = session.shelf.folder / PICTURES_NAME
    for number, frame in enumerate(frames[:5]):
        jpeg = read_jpeg(folder, number)
        assert jpeg is not None
        (folder / "one.jpg").write_bytes(jpeg)
        with Image.open(folder / "one.jpg") as image:
            difference = np.asarray(image).astype(int) - np.asarray(frame.image).astype(int)
        assert np.abs(difference).mean() < 4
    assert read_jpeg(folder, 5) is None


def test_listeners_hear_of_each_frame_once_it_is_known(start: Start, frames: Sequence[VideoFrame]) -> None:
    session = open_session(start(), MAP)
    heard: list[tuple[int, list[int]]] = []
    session.listen(lambda step, results: heard.append((step.index, [r.index for r in results if isinstance(r, Frame)])))
    push(session, frames[:9])
    session.evict().result(timeout=60)
    push(session, frames[9:11], first=9)
    session.settle()
    assert [index for index, _ in heard] == list(range(11))
    assert [index for _, known in heard for index in known] == list(range(11))


def test_beyond_the_quota_recording_stops_and_the_session_goes_on(
    start: Start, frames: Sequence[VideoFrame], steps: list[bytes]
) -> None:
    engine = start(quota_bytes=MAP.memory_bytes, save_every_frames=1000)
    session = open_session(engine, MAP)
    (session.shelf.folder / VIDEO_NAME).write_bytes(bytes(MAP.memory_bytes - 500_000))
    engine.quota.require(0)
    assert push(session, frames) == steps
    session.settle()
    (stopped,) = events_of(session, "recording.stopped")
    assert "goes on, but nothing more is recorded" in stopped["message"]
    assert events_of(session, "error") == []
    num_recorded = session.description["num_recorded"]
    assert 0 < num_recorded < 24
    session.evict().result(timeout=60)
    assert session.description["recording"] is False
    assert len(read_take(session.shelf.folder / TAKE_NAME)) == num_recorded
    session.finish().result(timeout=60)
    assert session.description["num_recorded"] == num_recorded


def test_a_recording_that_stopped_before_its_first_frame_says_so_and_why(
    start: Start, frames: Sequence[VideoFrame]
) -> None:
    engine = start(quota_bytes=MAP.memory_bytes)
    session = open_session(engine, MAP)
    (session.shelf.folder / VIDEO_NAME).write_bytes(bytes(MAP.memory_bytes))
    with pytest.raises(RequestError, match="on the disk"):
        engine.quota.require(0)
    push(session, frames[:9])
    session.finish().result(timeout=60)
    engine.drain()
    again = start()
    for one in (session, again.session(session.id)):
        with pytest.raises(RequestError, match="Recording of this session stopped before a frame") as refused:
            Downloads(engine.settings.folder).make(one, "ply")
        assert (refused.value.code, refused.value.status) == ("not_recorded", 409)
        assert "part of the disk is full; close sessions that are no longer needed." in str(refused.value)
        assert str(refused.value).endswith("open another session and send its frames again.")


def test_a_disk_that_takes_no_more_is_one_error_and_the_session_goes_on(
    start: Start, frames: Sequence[VideoFrame], steps: list[bytes]
) -> None:
    session = open_session(start(save_every_frames=12), MAP)
    said = push(session, frames[:10])
    session.settle()
    with files_no_longer_than(2_000):
        said += push(session, frames[10:12], first=10)
        until(lambda: len(events_of(session, "error")) == 2)
        session.settle()
    (failed, unsaved) = events_of(session, "error")
    assert [failed["code"], unsaved["code"]] == ["recording", "storage"]
    assert "cannot be written" in failed["message"]
    assert len(events_of(session, "recording.stopped")) == 1
    assert said + push(session, frames[12:], first=12) == steps
    session.evict().result(timeout=60)
    assert len(read_take(session.shelf.folder / TAKE_NAME)) == session.description["num_recorded"]
    assert len(events_of(session, "error")) == 2


def test_a_session_whose_take_was_changed_goes_on_without_recording(
    start: Start, frames: Sequence[VideoFrame], steps: list[bytes]
) -> None:
    session = open_session(start(), MAP)
    said = push(session, frames[:12])
    session.evict().result(timeout=60)
    (session.shelf.folder / TAKE_NAME / "poses.tum").write_text("changed")
    assert said + push(session, frames[12:], first=12) == steps
    session.settle()
    assert len(events_of(session, "recording.stopped")) == 1
    assert session.description["recording"] is False


def test_a_frame_that_could_not_be_noted_was_taken_all_the_same(
    start: Start, frames: Sequence[VideoFrame], shorter: Files
) -> None:
    session = open_session(start(), ALONE)
    push(session, frames[:10])
    noted = session.shelf.folder / "taken"
    noted.unlink()
    noted.mkdir()  # in whose place no file can be written
    push(session, frames[10:11], first=10)
    noted.rmdir()
    noted.symlink_to(noted)
    push(session, frames[11:], first=11)
    assert events_of(session, "error") == []
    assert names(ended(session), shorter) == []


def test_a_fork_of_a_session_that_a_crash_cut_off_shares_nothing_that_changes(
    start: Start, frames: Sequence[VideoFrame], shorter: Files, tmp_path: Path, networks: Networks
) -> None:
    session = open_session(start(save_every_frames=11), ALONE)
    push(session, frames[:16])
    await_save(session, 5)
    session.settle()
    shutil.copytree(tmp_path / "sessions", tmp_path / "crashed")
    with Engine(ServerSettings(folder=tmp_path / "crashed"), networks) as engine:
        parent = engine.session(session.id)
        fork = engine.fork(session.id).result(timeout=60)
        push(parent, [replace(frame, image=np.asarray(frame.image)[::-1].copy()) for frame in frames[11:16]], first=11)
        push(fork, frames[11:], first=11)
        assert names(ended(fork), shorter) == []


def test_a_fork_that_finds_no_room_leaves_nothing(start: Start, frames: Sequence[VideoFrame]) -> None:
    engine = start()
    session = open_session(engine, MAP)
    push(session, frames[:9])
    session.save().result(timeout=60)
    with files_no_longer_than(1_000), pytest.raises(InputError, match="cannot be written"):
        engine.fork(session.id).result(timeout=60)
    assert [path.name for path in engine.settings.folder.iterdir() if path.is_dir()] == [session.id]
