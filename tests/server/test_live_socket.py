"""A session's socket against a reader that takes nothing."""

import asyncio
from unittest.mock import create_autospec

import pytest
from served import MAP, Start, open_session

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
