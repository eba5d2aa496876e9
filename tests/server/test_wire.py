"""A server over its real socket, beside its sessions: many events, slow readers, uploads at once, long comparisons."""

import http.client
import json
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from served import ASK, MAP, QUESTION, Start, open_session, until

from longtake.server.engine import Engine
from longtake.server.session import ServedSession

pytest.importorskip("fastapi")
connecting = pytest.importorskip("websockets.sync.client")
pytestmark = pytest.mark.extra

UPLOADED = replace(MAP, source="upload")


class Listening:
    """A server in this process, so that a test has its engine."""

    def __init__(self, engine: Engine) -> None:
        from longtake.server.access import AccessRules
        from longtake.server.app import create_app
        from longtake.server.run import http_server, listen

        bound, is_ready = listen("127.0.0.1", 0), threading.Event()
        self.port = bound.getsockname()[1]
        rules = AccessRules.named(("127.0.0.1",), self.port, token=None)
        self.server = http_server(create_app(engine, rules), is_ready.set)
        self.server.config.timeout_graceful_shutdown = 1
        self.thread = threading.Thread(target=lambda: self.server.run(sockets=[bound]), daemon=True)
        self.thread.start()
        assert is_ready.wait(30)

    def call(self, method: str, path: str, body: bytes | Iterable[bytes] | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        is_whole = body is None or isinstance(body, bytes)
        headers = {"Content-Type": "application/json"} | ({} if is_whole else {"Transfer-Encoding": "chunked"})
        connection.request(method, path, body, headers, encode_chunked=not is_whole)
        reply = connection.getresponse()
        content = reply.read()
        connection.close()
        return reply.status, json.loads(content) if content.startswith(b"{") else content

    def stop(self, seconds: float) -> bool:
        """Whether it has ended within this time."""
        self.server.stop()
        self.thread.join(seconds)
        return not self.thread.is_alive()

    def live(self, session: ServedSession, after: int) -> Any:
        url = f"ws://127.0.0.1:{self.port}/v1/sessions/{session.id}/live?after={after}&client=ab"
        return connecting.connect(url, proxy=None)


@contextmanager
def listening(engine: Engine) -> Iterator[Listening]:
    server = Listening(engine)
    try:
        yield server
    finally:
        assert server.stop(30)


def heard(socket: Any, until_id: int) -> list[int]:
    """Ids of what comes, up to this one or the end of the connection; what is for this client alone is no event."""
    from websockets.exceptions import ConnectionClosed

    ids: list[int] = []
    while not ids or ids[-1] < until_id:
        try:
            event = json.loads(socket.recv(timeout=20))
        except ConnectionClosed:
            break
        if "client" not in event:
            ids.append(event["id"])
    return ids


def test_history_of_any_length_comes_whole_and_in_order_while_more_happens(start: Start) -> None:
    engine = start()
    session = open_session(engine, MAP)
    for number in range(3000):
        session.events.add("told", number=number)

    def go_on() -> None:
        for number in range(500):
            session.events.add("told", number=number)
            time.sleep(0.0005)

    with listening(engine) as server, server.live(session, 0) as socket:
        telling = threading.Thread(target=go_on)
        telling.start()
        assert heard(socket, 3501) == list(range(1, 3502))
        telling.join()
        assert [event.type for event in session.events.after(3501)] == []


def test_a_slow_reader_that_is_closed_comes_back_and_hears_every_event_once(start: Start) -> None:
    engine = start()
    session = open_session(engine, MAP)
    with listening(engine) as server:
        ids: list[int] = []
        with server.live(session, 0) as socket:
            until(lambda: session.events.num_listeners == 1)
            for _ in range(3500):
                session.events.add("told", text="x" * 5000)
            until(lambda: session.events.num_listeners == 0)
            ids += heard(socket, 3501)
        assert 0 < len(ids) < 3501
        session.events.add("told")
        with server.live(session, ids[-1]) as socket:
            ids += heard(socket, 3502)
        assert ids == list(range(1, 3503))


def test_who_connects_is_greeted_alone_with_an_id_from_which_it_can_go_on(start: Start) -> None:
    engine = start()
    session = open_session(engine, MAP)
    session.events.add("told")
    with listening(engine) as server:
        for _ in range(3):
            with server.live(session, 1) as socket:
                told, greeting = (json.loads(socket.recv(timeout=20)) for _ in range(2))
        assert (told["type"], told["id"]) == ("told", 2)
        assert (greeting["type"], greeting["id"], greeting["client"]) == ("session.updated", 2, "ab")
        assert greeting["session"]["id"] == session.id
    assert [event.type for event in session.events.after(0)][:2] == ["session.created", "told"]
    assert all("client" not in event.fields for event in session.events.after(0))


def test_of_two_uploads_at_once_the_second_is_refused_and_the_first_is_whole(start: Start) -> None:
    engine = start()
    session = open_session(engine, UPLOADED)
    (session.shelf.folder / "video.unfinished").write_bytes(b"of a server that was killed")
    with listening(engine) as server:
        assert not (session.shelf.folder / "video.unfinished").exists()
        has_begun, may_end, replies = threading.Event(), threading.Event(), list[int]()

        def slowly() -> Iterator[bytes]:
            yield b"A" * 100_000
            has_begun.set()
            may_end.wait(30)
            yield b"A" * 100_000

        path = f"/v1/sessions/{session.id}/video"
        first = threading.Thread(target=lambda: replies.append(server.call("PUT", path, slowly())[0]))
        first.start()
        assert has_begun.wait(30)
        until((session.shelf.folder / "video.unfinished").exists)
        status, reply = server.call("PUT", path, b"B" * 1000)
        assert (status, reply["error"]["code"]) == (409, "wrong_source")
        may_end.set()
        first.join(30)
        assert replies == [202]
        assert (session.shelf.folder / "video").read_bytes() == b"A" * 200_000


def test_an_upload_that_does_not_say_its_length_is_held_to_the_quota(start: Start) -> None:
    engine = start(quota_bytes=MAP.memory_bytes + 1_000_000)
    session = open_session(engine, UPLOADED)
    with listening(engine) as server:
        parts = (b"x" * 100_000 for _ in range(115))
        status, reply = server.call("PUT", f"/v1/sessions/{session.id}/video", parts)
        assert (status, reply["error"]["code"]) == (429, "quota")
        assert not list(session.shelf.folder.glob("video*"))
        assert server.call("PUT", f"/v1/sessions/{session.id}/video", b"x" * 1000)[0] == 202


def test_comparisons_that_read_for_minutes_hold_up_neither_requests_nor_the_end(start: Start) -> None:
    engine = start()
    session = open_session(engine, replace(ASK, source="world:9?frames=100000&size=640x480"))
    engine.feed(session.id)
    until(lambda: session.record.num_frames >= 3)
    session.pause(is_paused=True).result(timeout=20)
    until(lambda: not session.is_busy)
    # as where frames could not be read, so that all are read again
    session._life._standing.know(next_sequence=50_000)
    statuses: list[int] = []

    def compare() -> None:
        try:
            body = json.dumps({"question": QUESTION}).encode()
            statuses.append(server.call("POST", f"/v1/sessions/{session.id}/compare", body)[0])
        except (OSError, http.client.HTTPException):
            statuses.append(0)

    server = Listening(engine)
    asking = [threading.Thread(target=compare, daemon=True) for _ in range(8)]
    for one in asking:
        one.start()
    until(lambda: len(statuses) == 4)
    assert statuses == [429] * 4
    began_s = time.monotonic()
    assert server.call("GET", "/metrics")[0] == 200
    assert time.monotonic() - began_s < 5
    assert server.stop(15)
    assert engine.is_draining
    until(
        lambda: (
            not any(thread.name.startswith("longtake-compare") and _reads(thread) for thread in threading.enumerate())
        )
    )


def _reads(thread: threading.Thread) -> bool:
    """Whether it is within a picture, and not waiting for work."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        if frame.f_code.co_name == "pictures_to_compare":
            return True
        frame = frame.f_back
    return False
