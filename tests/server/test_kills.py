"""A server that is killed, or asked to end, at any moment leaves folders that the next one goes on from."""

import http.client
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import MAP, until
from server_process import Reply, ServerProcess

import longtake
from longtake.errors import InputError, LongtakeError
from longtake.server.client import RemoteSession
from longtake.server.networks import Networks
from longtake.server.results import geometry_bytes
from longtake.video.frame import VideoFrame

pytest.importorskip("fastapi")
pytest.importorskip("websockets")

from benchmarks.serving.bare_sockets import BINARY, FINAL, bare_socket, wire_frame
from benchmarks.serving.wire import raw_frame

pytestmark = [pytest.mark.extra, pytest.mark.by_hand]
ROUNDS = 6
WORLD = {"source": "world:9?frames=400&size=126x98", "language": None, "memory": MAP.memory_bytes}


@pytest.fixture(scope="module")
def steps(networks: Networks, frames: list[VideoFrame]) -> list[bytes]:
    """What a local session says of each frame."""
    with longtake.GeometrySession.from_pretrained(networks.map_named(MAP.model), memory=MAP.memory_bytes) as session:
        return [geometry_bytes(session.step(frame)) for frame in frames]


@pytest.fixture
def background() -> Iterator[Callable[..., Any]]:
    """Runs what a killed server breaks off."""
    with ThreadPoolExecutor(8) as threads:

        def run(function: Callable[..., Any], *arguments: object) -> None:
            def quietly() -> None:
                with suppress(OSError, http.client.HTTPException, LongtakeError):
                    function(*arguments)

            threads.submit(quietly)

        yield run


def mapping(url: str) -> RemoteSession:
    return longtake.Client(url).open_session(ask=None, memory=MAP.memory_bytes)


def listed(server: ServerProcess) -> dict[str, dict[str, Any]]:
    """All sessions, none of them damaged, and nothing else in the folder."""
    reply = server.call("GET", "/v1/sessions").record
    assert reply["damaged"] == {}
    found = {one["id"]: one for one in reply["sessions"]}
    assert {path.name for path in server.folder.iterdir() if path.is_dir()} == found.keys()
    return found


def film(path: Path, frames: list[VideoFrame]) -> None:
    import av

    with av.open(str(path), "w") as file:
        stream = file.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 126, 98, "yuv420p"
        for frame in frames:
            file.mux(stream.encode(av.VideoFrame.from_ndarray(frame.image, format="rgb24")))
        file.mux(stream.encode())


def test_killed_while_a_video_comes(frames: list[VideoFrame], tmp_path: Path) -> None:
    folder, video = tmp_path / "sessions", tmp_path / "video.mp4"
    film(video, frames[:12])
    with ServerProcess(folder) as first:
        session = first.call("POST", "/v1/sessions", {**WORLD, "source": "upload"}).record["id"]
        connection = http.client.HTTPConnection("127.0.0.1", first.port)
        connection.putrequest("PUT", f"/v1/sessions/{session}/video")
        connection.putheader("Content-Length", str(video.stat().st_size))
        connection.endheaders(video.read_bytes()[:1000])
        until(lambda: (folder / session / "video.unfinished").exists())
        first.kill()
        connection.close()
    with ServerProcess(folder) as second:
        assert listed(second)[session]["num_frames"] == 0
        assert not (folder / session / "video.unfinished").exists()
        assert second.call("PUT", f"/v1/sessions/{session}/video", content=video.read_bytes()).status == 202
        until(lambda: listed(second)[session]["finished"], seconds=120)
        assert listed(second)[session]["problem"] is None


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_killed_while_sessions_are_opened(tmp_path: Path, background: Callable[..., None], seed: int) -> None:
    opened, removed, stops = set[str](), set[str](), threading.Event()

    def open_and_close(server: ServerProcess) -> None:
        while not stops.is_set():
            reply = server.call(
                "POST", "/v1/sessions", {"source": "push", "memory": MAP.memory_bytes, "language": None}
            )
            if reply.status == 201:
                opened.add(id := reply.record["id"])
                if len(opened) % 3 == 0:
                    removed.add(id)  # it may be there or not when the server is killed
                    server.call("DELETE", f"/v1/sessions/{id}")

    with ServerProcess(tmp_path / "sessions") as first:
        for _ in range(4):
            background(open_and_close, first)
        until(lambda: len(opened) > 5 + seed)
        time.sleep(random.Random(seed).random() / 10)
        known = opened - removed
        first.kill()
        stops.set()
    with ServerProcess(tmp_path / "sessions") as second:
        assert known <= listed(second).keys()


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_killed_while_saves_are_written(
    frames: list[VideoFrame], steps: list[bytes], tmp_path: Path, seed: int
) -> None:
    folder, chance = tmp_path / "sessions", random.Random(seed)
    said: list[bytes] = []
    with ServerProcess(folder, "--save-every", "1") as server:
        session, port = mapping(server.url), server.port
        said += [geometry_bytes(session.step(frame)) for frame in frames[:4]]
        killer = threading.Timer(chance.uniform(0.0, 0.5), server.kill)
        killer.start()
        resumed: list[ServerProcess] = []

        def come_back() -> None:
            killer.join()
            resumed.append(ServerProcess(folder, "--save-every", "1", port=port))

        again = threading.Thread(target=come_back)
        again.start()
        said += [geometry_bytes(session.step(frame)) for frame in frames[4:]]
        again.join()
    with resumed[0] as second:
        assert said == steps
        assert listed(second)[session.id]["num_frames"] == len(frames)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_killed_while_it_is_finished_and_downloaded(
    frames: list[VideoFrame], tmp_path: Path, background: Callable[..., None], seed: int
) -> None:
    folder = tmp_path / "sessions"
    with ServerProcess(folder, "--save-every", "5") as first:
        whole, cut = mapping(first.url), mapping(first.url)
        for session in (whole, cut):
            for frame in frames:
                session.step(frame)
        whole.finish()
        expected = first.call("GET", f"/v1/sessions/{whole.id}/take.zip").content
        for session in (whole, cut):
            for name in ("take.zip", "cloud.ply"):
                background(first.call, "GET", f"/v1/sessions/{session.id}/{name}")
        background(first.call, "POST", f"/v1/sessions/{cut.id}/finish")
        time.sleep(random.Random(seed).random() / 5)
        first.kill()
    with ServerProcess(folder, port=first.port) as second:
        assert listed(second).keys() == {whole.id, cut.id}  # and no download is left
        cut.finish()
        assert second.call("GET", f"/v1/sessions/{cut.id}/take.zip").content == expected
        assert second.call("GET", f"/v1/sessions/{whole.id}/take.zip").content == expected


def test_two_who_push_the_same_frames_get_what_one_would(
    frames: list[VideoFrame], steps: list[bytes], tmp_path: Path
) -> None:
    def pushed(one: RemoteSession) -> list[bytes | None]:
        return [result_or_none(one, frame) for frame in frames]

    def result_or_none(one: RemoteSession, frame: VideoFrame) -> bytes | None:
        try:
            return geometry_bytes(one.step(frame))
        except InputError as error:
            if "lost what became known with it" not in str(error):  # as where the other was one frame further
                raise
            return None

    with ServerProcess(tmp_path / "sessions", "--save-every", "3") as server:
        first = mapping(server.url)
        second = longtake.Client(server.url).session(first.id)
        with ThreadPoolExecutor(2) as threads:
            told = list(threads.map(pushed, (first, second)))
        assert listed(server)[first.id]["num_frames"] == len(frames)
    for said in told:
        assert all(one in (None, expected) for one, expected in zip(said, steps, strict=True))
    assert all(one is not None or other is not None for one, other in zip(*told, strict=True))


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_session_that_is_removed_while_it_is_compared_is_no_failure_of_the_server(
    frames: list[VideoFrame], tmp_path: Path, seed: int
) -> None:
    replies: list[Reply] = []
    with ServerProcess(tmp_path / "sessions") as server, ThreadPoolExecutor(4) as threads:
        session = longtake.Client(server.url).open_session(map=None, memory="20MB")
        for frame in frames:
            session.step(frame)
        body = {"question": "Where is the red ball now?"}
        path = f"/v1/sessions/{session.id}"
        told = [threads.submit(server.call, "POST", f"{path}/compare", body) for _ in range(3)]
        time.sleep(random.Random(seed).random() / 3)
        assert server.call("DELETE", path).status == 204
        replies = [one.result() for one in told]
        assert {reply.status for reply in replies} <= {200, 404, 409}
        assert listed(server) == {}
        assert server.call("GET", "/metrics").content.find(b"longtake_memory_bytes 0.0") > 0


@pytest.mark.parametrize("wait_s", [None, 0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8])
def test_asked_to_end_while_it_starts(frames: list[VideoFrame], tmp_path: Path, wait_s: float | None) -> None:
    """At once, or so long after it has begun to list its sessions."""
    folder = tmp_path / "sessions"
    with ServerProcess(folder, "--save-every", "5") as first:
        session = mapping(first.url)
        for frame in frames[:9]:
            session.step(frame)
        world = first.call("POST", "/v1/sessions", WORLD).record["id"]
        until(lambda: listed(first)[world]["num_frames"] > 5)
        first.kill()
    command = [sys.executable, "-m", "longtake", "serve", "--port", "0", "--folder", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        if wait_s is not None:
            assert "session.resumed" in process.stderr.readline()
            time.sleep(wait_s)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    before = -signal.SIGTERM if wait_s is None else 130  # before there is anything to hear it
    assert process.returncode in ({0} if "Serving on" in out else {before, 130})
    assert "Traceback" not in err
    with ServerProcess(folder) as second:
        assert listed(second).keys() == {session.id, world}


def takes_connections(server: ServerProcess) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", server.port)):
            return True
    except ConnectionRefusedError:
        return False


def test_asked_twice_to_end_it_ends_at_once(frames: list[VideoFrame], tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    with ServerProcess(folder) as first:
        session = mapping(first.url).id
        with bare_socket(first.port, f"/v1/sessions/{session}/live") as connection:
            for number, frame in enumerate(frames * 8):  # for which an end waits
                connection.sendall(wire_frame(FINAL | BINARY, raw_frame(number, number / 10, np.asarray(frame.image))))
            until(lambda: listed(first)[session]["num_frames"] > 10)
            first.process.send_signal(signal.SIGTERM)
            until(lambda: not takes_connections(first))
            asked_s = time.monotonic()
            first.process.send_signal(signal.SIGTERM)
            assert first.process.wait(60) == 130
            assert time.monotonic() - asked_s < 1.0
    with ServerProcess(folder) as second:
        assert listed(second).keys() == {session}
