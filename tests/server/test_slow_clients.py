"""Who is slow, or goes away in the middle, holds up nobody else."""

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from http.client import HTTPConnection
from typing import Any

import pytest
from served import MAP, Start, open_session, push, until
from server_process import ServerProcess

import longtake
from longtake.server.access import AccessRules
from longtake.server.client import RemoteSession
from longtake.video.frame import VideoFrame

pytest.importorskip("fastapi")
pytest.importorskip("websockets.sync.client")
from websockets.sync import client as connecting

from benchmarks.serving.wire import raw_frame
from longtake.server import download_routes, run
from longtake.server.app import create_app
from longtake.server.run import http_server, listen

pytestmark = pytest.mark.extra
MANY = 40
"""More than there are threads for requests."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("slow") / "sessions") as started:
        yield started


def mapping(server: ServerProcess) -> RemoteSession:
    return longtake.Client(server.url).open_session(ask=None, memory=MAP.memory_bytes)


def begun(server: ServerProcess, request: str) -> socket.socket:
    """A connection on which a request was begun, and no more comes."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    connection.sendall(request.replace("HOST", f"127.0.0.1:{server.port}").encode())
    return connection


def called(port: int, method: str, path: str) -> int:
    """The status of a reply."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path)
        return connection.getresponse().status
    finally:
        connection.close()


def acknowledged(listening: Any, num_times: int) -> list[tuple[int, bool]]:
    """Sequence numbers as a socket hears of them, and whether each was new."""
    heard: list[tuple[int, bool]] = []
    while len(heard) < num_times:
        event = json.loads(listening.recv(timeout=60))
        if event["type"] == "input_frame.ack":
            heard.append((event["sequence"], "duplicate" not in event))
    return heard


def test_bodies_that_never_end_hold_up_nobody(server: ServerProcess, frames: list[VideoFrame]) -> None:
    head = "POST /v1/sessions HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\nContent-Length: 90\r\n"
    upload = server.call("POST", "/v1/sessions", {"source": "upload", "language": None}).record["id"]
    video = f"PUT /v1/sessions/{upload}/video HTTP/1.1\r\nHost: HOST\r\nContent-Length: 90000\r\n\r\nabc"
    with ExitStack() as slow:
        for request in (head, head + "\r\n{", video):
            for _ in range(MANY):
                slow.enter_context(begun(server, request))
        with mapping(server) as session:
            for frame in frames[:3]:
                session.step(frame)
            assert server.call("GET", f"/v1/sessions/{session.id}/frames/0.jpg").status == 200
        assert server.call("GET", "/metrics").status == 200
    assert server.call("DELETE", f"/v1/sessions/{upload}").status == 204
    until(lambda: server.call("GET", "/v1/sessions").record["sessions"] == [])


def test_a_session_that_is_closed_while_it_is_downloaded_is_sent_to_the_end(
    server: ServerProcess, frames: list[VideoFrame]
) -> None:
    session = mapping(server)
    for frame in frames[:9]:
        session.step(frame)
    whole = server.call("GET", f"/v1/sessions/{session.id}/take.zip").content
    asked = f"GET /v1/sessions/{session.id}/take.zip HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n"
    with begun(server, asked) as reading:
        content = reading.recv(100)
        session.close()
        while part := reading.recv(1 << 16):
            content += part
    assert content.partition(b"\r\n\r\n")[2] == whole
    assert server.call("GET", f"/v1/sessions/{session.id}/take.zip").status == 404
    until(lambda: not list(server.folder.glob("download-*")))


def test_a_frame_that_two_sockets_push_is_taken_once(server: ServerProcess, frames: list[VideoFrame]) -> None:
    with mapping(server) as alone:
        for frame in frames[:6]:
            alone.step(frame)
        expected = server.call("GET", f"/v1/sessions/{alone.id}/poses.tum").content
    id = server.call("POST", "/v1/sessions", {"language": None, "memory": "10MB"}).record["id"]
    live = f"{server.socket_url}/v1/sessions/{id}/live"
    with connecting.connect(live, proxy=None) as one, connecting.connect(live, proxy=None) as other:
        for sequence, frame in enumerate(frames[:6]):
            for pushing in (one, other):
                assert frame.image is not None
                pushing.send(raw_frame(sequence, frame.timestamp_s, frame.image))
        heard = [acknowledged(listening, 2 * 6) for listening in (one, other)]
    assert heard[0] == heard[1]
    assert sorted(sequence for sequence, is_new in heard[0] if is_new) == list(range(6))
    assert server.call("GET", f"/v1/sessions/{id}").record["num_frames"] == 6
    assert server.call("GET", f"/v1/sessions/{id}/poses.tum").content == expected
    assert server.call("DELETE", f"/v1/sessions/{id}").status == 204


def test_downloads_that_take_long_hold_up_no_frame_and_no_figure(
    start: Start, frames: Sequence[VideoFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All threads for downloads are held up; what else needs a thread finds one."""
    engine = start()
    session = open_session(engine, MAP)
    push(session, frames[:1])
    may_end = threading.Event()
    monkeypatch.setattr(download_routes, "picture", lambda *_: may_end.wait(60) and b"")
    with listen("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        is_ready = threading.Event()
        running = http_server(create_app(engine, AccessRules.local(port)), is_ready.set)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        assert is_ready.wait(60)
        asked = f"GET /v1/sessions/{session.id}/frames/0.jpg HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"
        with ExitStack() as slow:
            for _ in range(MANY):
                connection = slow.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
                connection.sendall(asked.encode())
            assert called(port, "GET", "/metrics") == 200
            assert called(port, "POST", f"/v1/sessions/{session.id}/fork") == 201
            assert called(port, "GET", f"/v1/sessions/{session.id}/poses.tum") == 200
            assert called(port, "DELETE", f"/v1/sessions/{session.id}") == 204
            may_end.set()
        running.stop()
        thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize("sent", ["", "GET /heal", "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: "])
def test_a_request_whose_first_lines_do_not_end_is_closed(
    start: Start, monkeypatch: pytest.MonkeyPatch, sent: str
) -> None:
    monkeypatch.setattr(run, "_HEADER_S", 0.2)
    with listen("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        is_ready = threading.Event()
        running = http_server(create_app(start(), AccessRules.local(port)), is_ready.set)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        assert is_ready.wait(60)
        whole = HTTPConnection("127.0.0.1", port, timeout=60)
        whole.request("GET", "/health")
        assert whole.getresponse().read()
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(sent.encode())
            assert connection.recv(1) == b""
        whole.request("GET", "/health")  # one that waits between two requests stays
        assert whole.getresponse().status == 200
        whole.close()
        running.stop()
        thread.join(60)
    assert not thread.is_alive()
