"""A session's socket: frames, questions and commands come in, events and results go out as they come."""

import asyncio
import json
import secrets
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from longtake.errors import LongtakeError
from longtake.server.events import SessionEvent
from longtake.server.frames import decode_frame
from longtake.server.machine import PushedFrame
from longtake.server.messages import BinaryMessage, Codec, MessageKind, finite, parse_text, unpack
from longtake.server.problems import RequestError, problem_of
from longtake.server.results import geometry_bytes
from longtake.server.session import ServedSession
from longtake.server.settings import Limits
from longtake.server.spec import Delivery
from longtake.server.viewer import ViewBudget, Viewer
from longtake.server.watches import Watch

_TOO_SLOW = 1013
_ENDED = 1000
_CLOSING_S = 1.0
_PAGE = 200
"""Events of history that are taken at once; they wait for the reader where they are kept, and in no queue."""
_MOST_TEXT, _MOST_ID = 100_000, 200
"""Characters of a message's text; what stays in the history of events has limits of its own."""


class LiveSocket:
    """One connection; its end is not the end of the session."""

    def __init__(self, socket: WebSocket, session: ServedSession, limits: Limits, *, wants_geometry: bool) -> None:
        self._socket, self._session, self._limits = socket, session, limits
        self._wants_geometry = wants_geometry
        self._loop = asyncio.get_running_loop()
        self._unread: deque[str | bytes] = deque()
        self._unread_bytes = 0
        self._may_send, self._has_news = asyncio.Event(), asyncio.Event()
        self._viewer = Viewer(session.view.points)
        self._end_code: int | None = None
        self._is_behind, self._has_caught_up = asyncio.Event(), asyncio.Event()
        self._last_id = 0  # of what waits to be read: what is told to this socket alone comes after it
        self._pushed: deque[Future[Any]] = deque()

    async def run(self, after: int | None, client: str) -> None:
        """Until either side ends it; the first event that is not history names the client."""
        await self._socket.accept()
        sending = asyncio.create_task(self._send_all(after, client))
        receiving = asyncio.create_task(self._receive_all())
        behind = asyncio.create_task(self._close_when_behind())
        showing = asyncio.create_task(self._make_previews())
        tasks = (sending, receiving, behind, showing)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._session.events.stop_listening(self._hear)
            self._session.view.stop_listening(self._hear_view)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if not receiving.cancelled() and (error := receiving.exception()) is not None:
            raise error  # no client's fault: the log says it, and the socket ends with 1011

    def _hear(self, event: SessionEvent) -> None:
        """Called in any thread, while what the event tells of is still the newest."""
        with suppress(RuntimeError):  # the loop has ended, and with it the connection
            self._loop.call_soon_threadsafe(self._enqueue, event, self._messages_of(event))

    def _messages_of(self, event: SessionEvent) -> list[str | bytes]:
        messages: list[str | bytes] = []
        last = self._session.last
        is_newest = last is not None and event.fields.get("sequence") == last.sequence
        if self._wants_geometry and event.type == "input_frame.ack" and is_newest and last is not None:
            messages.append(_geometry_message(last.sequence, last.geometry))
        messages.append(json.dumps(event.record))
        return messages

    def _enqueue(self, event: SessionEvent, messages: list[str | bytes]) -> None:
        """Nothing more for who is behind: what it has heard until then is all up to an id, from which it goes on."""
        if self._is_behind.is_set():
            return
        self._last_id = event.id
        self._unread.extend(messages)
        self._unread_bytes += sum(map(len, messages))
        if len(self._unread) > self._limits.unread_messages or self._unread_bytes > self._limits.unread_bytes:
            self._unread.clear()
            self._is_behind.set()
        elif event.type == "session.closed":
            self._end_code = _ENDED
        self._may_send.set()

    def _hear_view(self) -> None:
        """Called in any thread: there are other points, or another picture."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._look_again)

    def _look_again(self) -> None:
        self._may_send.set()
        self._has_news.set()

    async def _close_when_behind(self) -> None:
        """A reader that takes nothing may never let what is being sent end; it is not waited for."""
        await self._is_behind.wait()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._socket.close(_TOO_SLOW), _CLOSING_S)

    async def _send_all(self, after: int | None, client: str) -> None:
        heard = await self._catch_up(after)
        greeting = SessionEvent(heard, "session.updated", {"session": self._session.description, "client": client})
        await self._send(json.dumps(greeting.record))
        self._has_caught_up.set()
        self._may_send.set()
        while True:
            await self._may_send.wait()
            self._may_send.clear()
            while (message := self._next_message()) is not None:
                await self._send(message)
            if self._end_code is not None:
                await self._socket.close(self._end_code)
                return
            self._has_news.set()

    async def _catch_up(self, after: int | None) -> int:
        """Send history as fast as it is read, however much there is; the last id of it, after which all is heard."""
        events, newest = self._session.events, None
        if after is None:
            self._last_id = newest = events.listen(self._hear)
        while newest is None:
            assert after is not None
            missed, newest = events.follow(self._hear, after, _PAGE)
            self._last_id = newest or 0
            for event in missed:
                for message in self._messages_of(event):
                    await self._send(message)
                after = event.id
                self._end_code = _ENDED if event.type == "session.closed" else self._end_code
        return newest

    def _next_message(self) -> str | bytes | None:
        """Events and results, all of them; then what a viewer is sent, which never waits in a queue."""
        if self._is_behind.is_set():
            return None
        if not self._unread:
            return self._viewer.next_message() if self._end_code is None else None
        message = self._unread.popleft()
        self._unread_bytes -= len(message)
        return message

    async def _make_previews(self) -> None:
        """Of what is newest when there is credit for it; in another thread, since text must not wait."""
        view, viewer = self._session.view, self._viewer
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            while (wait_s := viewer.preview_wait_s(view.snapshot)) is not None:
                snapshot = view.snapshot
                if wait_s > 0 or snapshot is None:
                    await asyncio.sleep(wait_s)
                    continue
                viewer.show(await asyncio.to_thread(viewer.previews_of, snapshot))
                self._may_send.set()

    async def _send(self, message: str | bytes) -> None:
        if isinstance(message, bytes):
            await self._socket.send_bytes(message)
            await asyncio.sleep(0)  # for events that came meanwhile
        else:
            await self._socket.send_text(message)

    async def _receive_all(self) -> None:
        await self._has_caught_up.wait()
        while True:
            try:
                message = await self._socket.receive()
            except WebSocketDisconnect:
                return
            if message["type"] == "websocket.disconnect":
                return
            await self._take(message.get("bytes"), message.get("text"))

    async def _take(self, content: bytes | None, text: str | None) -> None:
        """One message; what is wrong with it is told, and nothing else happens."""
        about: dict[str, Any] = {}
        try:
            if content is not None:
                message = unpack(content)
                about = {"sequence": message.sequence}
                await self._push(message)
            else:
                request = parse_text(text or "")
                about = {"request": request.get("request")} if "request" in request else {}
                await self._do(request)
        except LongtakeError as error:
            problem = problem_of(error)
            told = {"code": problem.code, "message": self._session.events.shown(problem.message), **about}
            event = SessionEvent(self._last_id, "error", told)
            self._enqueue(event, [json.dumps(event.record)])

    async def _push(self, message: BinaryMessage) -> None:
        if not self._session.record.spec.is_pushed:
            raise RequestError(
                "wrong_source", "This session has a source of its own; open one of source push for frames.", status=409
            )
        is_plain = message.codec is Codec.RAW
        picture = decode_frame(message) if is_plain else await asyncio.to_thread(decode_frame, message)
        self._pushed.append(self._session.push(PushedFrame(message.sequence, message.time_s, picture)))
        if self._session.record.spec.delivery is Delivery.NEWEST:
            self._pushed.clear()
        while len(self._pushed) >= self._limits.waiting_frames:
            await _ended(self._pushed.popleft())

    async def _do(self, request: dict[str, Any]) -> None:
        match request.get("type"):
            case "response.create":
                self._ask(request)
            case "response.cancel":
                if not self._session.cancel(_text(request, "response")):
                    raise RequestError("unknown_response", "There is no such question under way.", status=404)
            case "session.update":
                if not isinstance(request.get("paused"), bool):
                    raise RequestError("bad_message", "Expected the field paused, true or false.")
                await _ended(self._session.pause(is_paused=request["paused"]))
            case "watch.create":
                await asyncio.wrap_future(self._session.watch(_watch(request)))
            case "watch.delete":
                await asyncio.wrap_future(self._session.stop_watching(_text(request, "watch")))
            case "view.budget":
                self._viewer.set_budget(ViewBudget.parse(request))
                self._session.view.listen(self._hear_view)
                self._look_again()
            case "credit":
                self._viewer.add_credit(request)
                self._look_again()
            case "session.save":
                await _ended(self._session.save())
            case other:
                raise RequestError("bad_message", f"Expected a known type of message, but got {str(other)[:40]!r}.")

    def _ask(self, request: dict[str, Any]) -> None:
        id = _id(request, "response") if "response" in request else f"resp-{secrets.token_hex(8)}"
        if self._session.has_asked(id):
            return
        temperature, max_tokens = finite(request.get("temperature", 0.0)), request.get("max_tokens")
        if temperature is None or not 0 <= temperature <= 100:
            raise RequestError("bad_question", "Expected temperature as a number from 0 to 100.")
        if max_tokens is not None and (isinstance(max_tokens, bool) or not isinstance(max_tokens, int)):
            raise RequestError("bad_question", "Expected max_tokens as a whole number.")
        self._session.ask(id, _text(request, "question"), temperature=temperature, max_tokens=max_tokens)


def _geometry_message(sequence: int, geometry: Any) -> bytes:
    payload = b"" if geometry is None else geometry_bytes(geometry)
    message = BinaryMessage(
        kind=MessageKind.GEOMETRY, codec=Codec.SAFETENSORS, sequence=sequence, time_us=0, payload=payload
    )
    return message.pack()


def _watch(request: dict[str, Any]) -> Watch:
    every_s, hold_s = finite(request.get("every_s", 1.0)), finite(request.get("hold_s", 0.0))
    if every_s is None or hold_s is None:
        raise RequestError("bad_watch", "Expected every_s and hold_s as numbers of seconds.")
    return Watch(
        id=_id(request, "watch") if "watch" in request else f"watch-{secrets.token_hex(8)}",
        question=_text(request, "question"),
        expected=_text(request, "expected"),
        every_s=every_s,
        hold_s=hold_s,
        webhook=None if request.get("webhook") is None else _text(request, "webhook"),
    )


def _text(request: dict[str, Any], name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= _MOST_TEXT:
        raise RequestError("bad_message", f"Expected the field {name} as a text of 1 to {_MOST_TEXT} characters.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise RequestError("bad_message", f"Expected {name} as text, but it has half of a character.") from error
    return value


def _id(request: dict[str, Any], name: str) -> str:
    """A client's own name of a question; every event about it has it."""
    value = _text(request, name)
    if len(value) > _MOST_ID:
        raise RequestError("bad_message", f"Expected {name} of at most {_MOST_ID} characters, but got {len(value)}.")
    return value


async def _ended(done: "Future[Any]") -> None:
    """Wait for a work; its error is an event already."""
    with suppress(LongtakeError):
        await asyncio.wrap_future(done)
