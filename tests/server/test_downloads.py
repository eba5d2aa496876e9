"""Results are downloaded while a session runs, when it is on disk, and after a crash: the same bytes each time."""

import io
import zipfile
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NoReturn
from urllib.request import ProxyHandler, build_opener

import numpy as np
import pytest
from full_disk import files_no_longer_than
from PIL import Image
from selected import rest_by_hand
from served import MAP, Start, open_session, push, until
from server_process import Reply, ServerProcess

import longtake
from longtake.server.client import RemoteSession
from longtake.server.downloads import Downloads
from longtake.server.problems import RequestError
from longtake.video.frame import VideoFrame

pytest.importorskip("fastapi")
pytestmark = pytest.mark.extra
FORMATS = ("tum", "kitti", "ply", "take", "colmap", "nerfstudio", "glb")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("downloads") / "sessions", "--save-every", "7") as started:
        yield started


def mapping(url: str) -> RemoteSession:
    return longtake.Client(url).open_session(ask=None, memory=MAP.memory_bytes)


def step(session: RemoteSession, frames: Sequence[VideoFrame]) -> None:
    for frame in frames:
        session.step(frame)


def get(server: ServerProcess, id: str, name: str) -> Reply:
    return server.call("GET", f"/v1/sessions/{id}/{name}")


def downloads(server: ServerProcess, id: str) -> dict[str, bytes]:
    replies = {format: get(server, id, f"export?format={format}") for format in FORMATS}
    assert {reply.status for reply in replies.values()} == {200}
    until(lambda: not list(server.folder.glob("download-*")))
    return {format: reply.content for format, reply in replies.items()}


def test_results_are_the_same_bytes_while_it_runs_on_disk_and_after_a_crash(
    frames: list[VideoFrame], tmp_path: Path
) -> None:
    folder = tmp_path / "sessions"
    with ServerProcess(folder, "--save-every", "5") as first:
        whole, cut = mapping(first.url), mapping(first.url)
        step(whole, frames)
        expected = downloads(first, whole.id)
        step(cut, frames[:13])
        earlier = downloads(first, cut.id)
        first.call("POST", f"/v1/sessions/{whole.id}/evict")
        assert downloads(first, whole.id) == expected
        until(lambda: cut.info["num_unsaved"] == 3)
        first.kill()
    with ServerProcess(folder, port=first.port) as second:
        assert downloads(second, whole.id) == expected
        saved = zipfile.ZipFile(io.BytesIO(get(second, cut.id, "take.zip").content))
        assert saved.read("take/poses.tum").count(b"\n") == 10  # what was saved, not what was lost since
        assert saved.read("take/poses.tum") == b"".join(
            zipfile.ZipFile(io.BytesIO(earlier["take"])).read("take/poses.tum").splitlines(keepends=True)[:10]
        )
        step(cut, frames[13:])
        assert downloads(second, cut.id) == expected
        pictures = [get(second, id, f"frames/{number}.jpg") for id in (whole.id, cut.id) for number in range(24)]
        assert [reply.content for reply in pictures[:24]] == [reply.content for reply in pictures[24:]]
        assert {reply.status for reply in pictures} == {200}


def test_what_is_downloaded_can_be_read(server: ServerProcess, frames: list[VideoFrame], tmp_path: Path) -> None:
    with mapping(server.url) as session:
        step(session, frames)
        session.finish()
        assert get(server, session.id, "cloud.ply").content.startswith(b"ply\n")
        assert get(server, session.id, "export?format=ply").headers["content-disposition"].endswith('"cloud.ply"')
        zipped = get(server, session.id, "take.zip")
        assert zipped.headers["content-type"] == "application/zip"
        zipfile.ZipFile(io.BytesIO(zipped.content)).extractall(tmp_path)
        take = longtake.open_take(tmp_path / "take")
        assert len(take) == 24
        assert take.depth(3).shape == take.image(3).shape[:2] == (98, 126)
        scene = zipfile.ZipFile(io.BytesIO(get(server, session.id, "export?format=colmap").content))
        assert len([name for name in scene.namelist() if name.endswith(".jpg")]) == 24


def test_the_picture_of_a_frame_comes_in_the_size_asked_for(server: ServerProcess, frames: list[VideoFrame]) -> None:
    with longtake.Client(server.url).open_session(map=None, memory="20MB") as session:
        large = np.repeat(np.repeat(np.asarray(frames[0].image), 8, axis=0), 8, axis=1)
        session.step(large, 0.0)
        sizes = {}
        for size in ("", "?size=320", "?size=640", "?size=8"):
            reply = get(server, session.id, f"frames/0.jpg{size}")
            assert reply.headers["content-type"] == "image/jpeg"
            sizes[size] = Image.open(io.BytesIO(reply.content)).size
        assert sizes == {"": (640, 498), "?size=320": (320, 249), "?size=640": (640, 498), "?size=8": (8, 6)}


def test_what_cannot_be_downloaded_is_one_sentence(server: ServerProcess, frames: list[VideoFrame]) -> None:
    client = longtake.Client(server.url)
    with mapping(server.url) as session, client.open_session(map=None, memory="20MB") as asked:
        wrong = [
            (session.id, "cloud.ply", 409, "no_frames"),
            (session.id, "take.zip", 409, "no_frames"),
            (asked.id, "cloud.ply", 409, "wrong_kind"),
            (session.id, "export", 422, "bad_request"),
            (session.id, "export?format=obj", 400, "unknown_format"),
            (session.id, "export?format=os:system", 400, "unknown_format"),
            (session.id, "export?format=../take", 400, "unknown_format"),
            (session.id, "frames/0.jpg", 404, "unknown_frame"),
            (session.id, "frames/-1.jpg", 422, "bad_request"),
            (session.id, "frames/x.jpg", 422, "bad_request"),
            (session.id, "frames/0.jpg?size=641", 422, "bad_request"),
            (session.id, "frames/0.jpg?size=0", 422, "bad_request"),
            ("0" * 16, "take.zip", 404, "unknown_session"),
            ("0" * 16, "frames/0.jpg", 404, "unknown_session"),
        ]
        for id, name, status, code in wrong:
            reply = get(server, id, name)
            assert (reply.status, reply.code) == (status, code), (name, reply.content)
            assert reply.record["error"]["message"].endswith(".")
        message = get(server, session.id, "export?format=obj").record["error"]["message"]
        assert all(name in message for name in FORMATS)
        step(session, frames[:9])
        assert get(server, session.id, "take.zip").status == 200


def test_a_reader_that_goes_away_leaves_nothing(server: ServerProcess, frames: list[VideoFrame]) -> None:
    with mapping(server.url) as session:
        step(session, frames[:12])
        for _ in range(10):
            with build_opener(ProxyHandler({})).open(f"{server.url}/v1/sessions/{session.id}/take.zip") as reply:
                reply.read(10)
        assert get(server, session.id, "take.zip").status == 200
        until(lambda: not list(server.folder.glob("download-*")))


def test_downloads_beyond_eight_at_once_are_refused(start: Start, frames: Sequence[VideoFrame]) -> None:
    engine = start()
    session = open_session(engine, MAP)
    push(session, frames[:9])
    made, used_s = Downloads(engine.settings.folder), session.active_s
    kept = [made.make(session, "tum") for _ in range(8)]
    assert session.active_s > used_s  # who fetches from a session uses it
    with pytest.raises(RequestError, match="Too many downloads") as refused:
        made.make(session, "tum")
    assert refused.value.status == 429
    made.remove(kept.pop())
    kept.append(made.make(session, "tum"))
    for download in kept:
        made.remove(download)
    assert [path.name for path in engine.settings.folder.iterdir()] == [session.id]


@pytest.mark.parametrize(("format", "most_bytes"), rest_by_hand(product(["take", "colmap", "ply"], [5_000, 0]), keep=1))
def test_a_full_disk_is_the_servers_own_problem_and_leaves_nothing(
    start: Start, frames: Sequence[VideoFrame], format: str, most_bytes: int
) -> None:
    engine = start()
    session = open_session(engine, MAP)
    push(session, frames[:9])
    session.settle()
    made = Downloads(engine.settings.folder)
    for _ in range(9):  # more than may be under way, so that each is seen to end
        with files_no_longer_than(most_bytes), pytest.raises(RequestError, match="disk has no room") as refused:
            made.make(session, format)
    assert (refused.value.code, refused.value.status) == ("storage", 507)
    assert [path.name for path in engine.settings.folder.iterdir()] == [session.id]
    made.remove(made.make(session, format))


def test_a_disk_without_room_for_a_folder_is_told_in_a_sentence(
    start: Start, frames: Sequence[VideoFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session(start(), MAP)
    push(session, frames[:9])

    def full(**_: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("longtake.server.downloads.tempfile.mkdtemp", full)
    with pytest.raises(RequestError) as refused:
        Downloads(session.shelf.folder.parent).make(session, "tum")
    assert refused.value.status == 507


def test_what_a_killed_server_left_is_removed(start: Start, frames: Sequence[VideoFrame]) -> None:
    engine = start()
    session = open_session(engine, MAP)
    push(session, frames[:9])
    Downloads(engine.settings.folder).make(session, "ply")
    Downloads(engine.settings.folder).clear()
    assert [path.name for path in engine.settings.folder.iterdir()] == [session.id]
