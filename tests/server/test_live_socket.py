"""A session's socket against readers that take little, or nothing."""

import asyncio
import json
from unittest.mock import create_autospec

import numpy as np
import pytest
from served import ASK, MAP, QUESTION, Start, open_session
from shown import mapped_frame

from longtake.server.points import PointMaker
from longtake.server.settings import Limits

pytest.importorskip("starlette")
pytestmark = pytest.mark.extra


async def for_ever(*_: object) -> None:
    await asyncio.Event().wait()


def test_who_takes_nothing_is_closed_with_1013_and_no_longer_listens(start: Start) -> None:
    from starlette.websockets import WebSocket

    from longtake.server.live_socket import LiveSocket

    session, reader = open_session(start(), MAP), create_autospec(WebSocket, instance=True)
    reader.send_text.side_effect = reader.receive.side_effect = for_ever

    async def watch() -> None:
        socket = LiveSocket(reader, session, Limits(unread_messages=5), wants_geometry=False)
        running = asyncio.create_task(socket.run(after=0, client=""))
        for number in range(20):
            await asyncio.sleep(0.01)
            session.events.add("x", number=number)
        await asyncio.wait_for(running, 10)

    asyncio.run(watch())
    reader.close.assert_awaited_once_with(1013)
    assert session.events.num_listeners == 0


def test_events_go_before_points_however_many_wait(start: Start) -> None:
    from starlette.websockets import WebSocket

    from longtake.server.live_socket import LiveSocket

    session, reader = open_session(start(), MAP), create_autospec(WebSocket, instance=True)
    for frame in range(30):
        chunk = PointMaker().chunk(mapped_frame(frame))
        assert chunk is not None
        session.view.points.add(chunk, np.eye(4))
    order: list[str] = []
    requests = [{"type": "view.budget", "points": 10**6}, {"type": "credit", "bytes": 10**7}]

    async def receive() -> dict[str, str]:
        if requests:
            return {"type": "websocket.receive", "text": json.dumps(requests.pop(0))}
        await asyncio.Event().wait()
        raise AssertionError("this never ends")

    async def send_bytes(_: bytes) -> None:
        if len(order) % 5 == 0:
            session.events.add("told", place=len(order))
        await asyncio.sleep(0.001)
        order.append("points")

    async def send_text(text: str) -> None:
        order.append(json.loads(text)["type"])

    reader.receive.side_effect, reader.send_bytes.side_effect, reader.send_text.side_effect = (
        receive,
        send_bytes,
        send_text,
    )

    async def watch() -> None:
        socket = LiveSocket(reader, session, Limits(), wants_geometry=False)
        running = asyncio.create_task(socket.run(after=None, client=""))
        while order.count("points") < 30:
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(asyncio.wait_for(watch(), 20))
    assert order.count("told") >= 6
    assert all(order[place - 1] == "points" and order[place - 2] != "told" for place in _places(order, "told"))
    assert session.view.num_listeners == session.events.num_listeners == 0


def test_a_client_s_own_ids_are_short_since_every_event_has_them(start: Start) -> None:
    from starlette.websockets import WebSocket

    from longtake.server.live_socket import LiveSocket

    session, reader = open_session(start(), ASK), create_autospec(WebSocket, instance=True)
    long = "x" * 100_000
    requests = [
        {"type": "watch.create", "watch": long, "question": QUESTION, "expected": "left"},
        {"type": "response.create", "response": long, "question": QUESTION},
    ]
    told: list[dict[str, str]] = []

    async def receive() -> dict[str, str]:
        if requests:
            return {"type": "websocket.receive", "text": json.dumps(requests.pop(0))}
        while sum(event["type"] == "error" for event in told) < 2:
            await asyncio.sleep(0.01)
        return {"type": "websocket.disconnect"}

    async def send_text(text: str) -> None:
        told.append(json.loads(text))

    reader.receive.side_effect, reader.send_text.side_effect = receive, send_text

    async def watch() -> None:
        await asyncio.wait_for(LiveSocket(reader, session, Limits(), wants_geometry=False).run(None, ""), 60)

    asyncio.run(watch())
    refusals = [event["message"] for event in told if event["type"] == "error"]
    assert [message.partition(" of at most 200 characters, but got 100000.")[0] for message in refusals] == [
        "Expected watch",
        "Expected response",
    ]
    assert not any(long in json.dumps(event.record) for event in session.events.after(0))


def _places(order: list[str], what: str) -> list[int]:
    return [place for place, one in enumerate(order) if one == what]
