"""A server's sessions in the style of local ones: `session.step(frame)` goes over the wire, lossless, and comes back.

A lost connection, and a server that was killed and started again, are nothing a caller sees: the frames since the last
save are held here, and those that the server does not have are sent again.
"""

import json
import secrets
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPException
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from longtake.api.arguments import checked_arguments
from longtake.api.live_session import LiveAnswer
from longtake.api.pictures import Picture, as_rgb, time_of
from longtake.api.single import Single
from longtake.errors import BusyError, CancelledWorkError, InputError, LongtakeError, MemoryFullError, SettingError
from longtake.extras import import_from_extra
from longtake.server.messages import BinaryMessage, Codec, MessageKind, unpack
from longtake.server.results import answer_of, geometry_of
from longtake.types import Geometry

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

_ERRORS: dict[str, type[LongtakeError]] = {
    "busy": BusyError,
    "bad_setting": SettingError,
    "memory_full": MemoryFullError,
    "cancelled": CancelledWorkError,
}
_AGAIN_S = 0.2
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class _Server:
    """Where a server is, and what it wants to see."""

    url: str
    token: str | None
    patience_s: float

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    @property
    def socket_url(self) -> str:
        return self.url.replace("http", "ws", 1)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        """What the server replies; what it refuses is an error with its sentence."""
        content = None if body is None else json.dumps(body).encode()
        headers = {**self.headers, "Content-Type": "application/json"}
        request = Request(f"{self.url}/v1{path}", content, headers, method=method)  # noqa: S310 - checked below
        try:
            with build_opener(ProxyHandler({})).open(request, timeout=_TIMEOUT_S) as reply:
                return bytes(reply.read())
        except HTTPError as error:
            raise _error_of(_error_record(error.read())) from error
        except (URLError, HTTPException, OSError) as error:
            raise InputError(f"The server at {self.url} cannot be reached ({error}); is it running?") from error


class Client:
    """Sessions of a server.

        client = longtake.Client("http://127.0.0.1:8765")
        with client.open_session(memory="64MB") as session:
            for frame in longtake.open_video("world:9?frames=60"):
                geometry = session.step(frame)
            print(session.ask("Where is the red ball now?").text)

    `token` is what `longtake serve` printed, where it needs one. A server that is away is waited for up to
    `patience_s`.
    """

    @checked_arguments
    def __init__(
        self, url: str = "http://127.0.0.1:8765", *, token: str | None = None, patience_s: float = 30.0
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise SettingError(f"Expected the address of a server such as http://127.0.0.1:8765, but got '{url}'.")
        self._server = _Server(url.rstrip("/"), token, patience_s)

    @checked_arguments
    def open_session(
        self,
        *,
        map: str | None = "default",
        ask: str | None = "default",
        memory: str | int | None = None,
        share: float = 0.5,
        ask_fps: float = 2.0,
        fps: float | None = None,
        max_tokens: int = 64,
    ) -> "RemoteSession":
        """A session that frames are pushed to; None for `map` or `ask` leaves that part out.

        `fps` is the rate at which frames will come, for which the server must have time.
        """
        asked = {
            "model": map,
            "language": ask,
            "memory": memory,
            "share": share,
            "ask_fps": ask_fps,
            "fps": fps,
            "max_tokens": max_tokens,
        }
        return RemoteSession(self._server, json.loads(self._server.call("POST", "/sessions", asked)))

    def session(self, id: str) -> "RemoteSession":
        """A session that was opened before, by this program or another."""
        return RemoteSession(self._server, json.loads(self._server.call("GET", f"/sessions/{id}")))

    def sessions(self) -> list[dict[str, Any]]:
        """What the server says of all its sessions, in memory and on disk."""
        return list(json.loads(self._server.call("GET", "/sessions"))["sessions"])

    def models(self) -> list[dict[str, Any]]:
        """What the server offers."""
        return list(json.loads(self._server.call("GET", "/models"))["data"])


class RemoteSession(Single):
    """One video on a server; frames and questions from one thread. Leaving a `with` block ends it there too."""

    def __init__(self, server: _Server, description: Mapping[str, Any]) -> None:
        """Prefer `Client.open_session`."""
        self._server, self._description = server, dict(description)
        self.id: str = description["id"]
        self._next: int = description["next_sequence"]
        self._line = _Line(server, self.id)

    def step(self, picture: Picture, timestamp_s: float | None = None) -> Geometry | None:
        """Take the next picture and return what became known; None where the session does not map.

        Pixels travel as they are, so that results are those of a local session, to the bit.
        """
        time_s = time_of(picture, timestamp_s)
        if time_s is None and self._description["language"] is not None:
            raise InputError("Expected a time for each picture, in seconds: only frames of open_video know theirs.")
        time_s = float(self._next) if time_s is None else time_s
        payload = self._line.result_of(_frame_message(picture, self._next, time_s))
        self._next += 1
        return geometry_of(payload) if payload else None

    def ask(self, question: str, *, temperature: float = 0.0, max_tokens: int | None = None) -> LiveAnswer:
        """The answer, the moments that it attended to, and the camera's poses then and now."""
        *_, answer = self.ask_stream(question, temperature=temperature, max_tokens=max_tokens)
        assert isinstance(answer, LiveAnswer)
        return answer

    def ask_stream(
        self, question: str, *, temperature: float = 0.0, max_tokens: int | None = None
    ) -> Iterator[str | LiveAnswer]:
        """Text as it comes, and last the answer."""
        id = f"ask-{secrets.token_hex(8)}"
        request = {
            "type": "response.create",
            "request": id,
            "response": id,
            "question": question,
            "temperature": temperature,
            "max_tokens": max_tokens,
        }
        heard = told = ""
        for event in self._line.events_of(id, request):
            match event["type"]:
                case "response.created":
                    heard = ""
                case "response.output_text.delta":
                    heard += event["text"]
                    if len(heard) > len(told):
                        yield heard[len(told) :]
                        told = heard
                case "response.output_text.done":
                    yield answer_of(event)
                    return
                case "response.cancelled":
                    raise CancelledWorkError("The question was given up; ask again.")

    def finish(self) -> Geometry | None:
        """The remaining results of the map when no more pictures come."""
        payload = self._server.call("POST", f"/sessions/{self.id}/finish")
        return geometry_of(payload) if payload else None

    def fork(self) -> "RemoteSession":
        """A session that goes on from here on its own; end it with `close`."""
        return RemoteSession(self._server, json.loads(self._server.call("POST", f"/sessions/{self.id}/fork")))

    def save(self) -> None:
        """Let the server write it to its disk now; it does so by itself every few frames."""
        self._server.call("POST", f"/sessions/{self.id}/save")

    @property
    def info(self) -> dict[str, Any]:
        """What the server says of it."""
        return dict(json.loads(self._server.call("GET", f"/sessions/{self.id}")))

    def detach(self) -> None:
        """End the connection; the session stays on the server, for `Client.session`."""
        self._line.close()

    def close(self) -> None:
        """End the session on the server; ending twice is fine."""
        self._line.close()
        if self._description:
            self._description = {}
            self._server.call("DELETE", f"/sessions/{self.id}")

    def __enter__(self) -> "RemoteSession":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Line:
    """The socket of a session, opened again when it breaks; frames that the server may lose are held."""

    def __init__(self, server: _Server, id: str) -> None:
        self._server, self._id = server, id
        self._socket: ClientConnection | None = None
        self._opened = ExitStack()
        self._last_event: int | None = None
        self._held: deque[BinaryMessage] = deque()
        self._missed: deque[dict[str, Any]] = deque()
        """What was told of answers while there was no connection."""

    def close(self) -> None:
        self._socket = None
        self._opened.close()

    def result_of(self, frame: BinaryMessage) -> bytes:
        """Send a frame, and return what the server makes of it; one that it refuses is not held."""
        self._held.append(frame)
        try:
            for message in self._messages(frame.pack()):
                if isinstance(message, BinaryMessage) and message.sequence == frame.sequence:
                    return message.payload
                if isinstance(message, dict) and message.get("sequence") == frame.sequence:
                    _require_fine(message)
        except LongtakeError:
            self._held.remove(frame)
            raise
        raise AssertionError("messages come until one of them returns or raises")

    def events_of(self, response: str, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Ask, and return all that is told of the answer."""
        for message in self._messages(json.dumps(request)):
            if isinstance(message, dict) and response in (message.get("response"), message.get("request")):
                _require_fine(message)
                yield message

    def _messages(self, content: str | bytes) -> Iterator[BinaryMessage | dict[str, Any]]:
        """Send this, and return what comes, over as many connections as it takes."""
        import_from_extra("websockets", "serve", "A client")
        from websockets.exceptions import ConnectionClosed

        is_sent = False
        while True:
            try:
                if self._socket is None:
                    self._connect()
                    is_sent = isinstance(content, bytes)  # frames that are held were sent with the connection
                assert self._socket is not None
                if not is_sent:
                    self._socket.send(content)
                    is_sent = True
                yield self._missed.popleft() if self._missed else self._read(self._socket.recv())
            except (ConnectionClosed, OSError):
                self.close()

    def _connect(self) -> None:
        """Wait for the server, and send it the held frames that it does not have."""
        ends_s = time.monotonic() + self._server.patience_s
        while True:
            try:
                self._open()
                return
            except OSError as error:
                if time.monotonic() > ends_s:
                    raise InputError(
                        f"The server at {self._server.url} cannot be reached ({error}); is it running?"
                    ) from error
            time.sleep(_AGAIN_S)

    def _open(self) -> None:
        from websockets.exceptions import InvalidHandshake, InvalidMessage
        from websockets.sync.client import connect

        client = secrets.token_hex(8)
        after = "" if self._last_event is None else f"&after={self._last_event}"
        try:
            socket = self._opened.enter_context(
                connect(
                    f"{self._server.socket_url}/v1/sessions/{self._id}/live?results=geometry&client={client}{after}",
                    additional_headers=self._server.headers,
                    compression=None,
                    max_size=None,
                    proxy=None,
                )
            )
        except InvalidMessage as error:  # it ended while it was asked
            raise ConnectionError(str(error)) from error
        except InvalidHandshake as error:
            raise InputError(f"The server at {self._server.url} refused the session ({error}).") from error
        while True:
            message = self._read(socket.recv())
            if isinstance(message, dict) and message.get("client") == client:
                break
            if isinstance(message, dict) and "response" in message:
                self._missed.append(message)
        for frame in self._held:
            if frame.sequence >= message["session"]["next_sequence"] - 1:  # the last one's result may not have come
                socket.send(frame.pack())
        self._socket = socket

    def _read(self, content: str | bytes) -> BinaryMessage | dict[str, Any]:
        if isinstance(content, bytes):
            return unpack(content)
        event: dict[str, Any] = json.loads(content)
        self._last_event = event["id"]
        if event["type"] == "session.saved":
            self._let_go(event["next_sequence"])
        return event

    def _let_go(self, next_sequence: int) -> None:
        """Of frames that are safe on the server's disk; the last of them stays, for its result may not have come."""
        while self._held and self._held[0].sequence < next_sequence - 1:
            self._held.popleft()


def _frame_message(picture: Picture, sequence: int, time_s: float) -> BinaryMessage:
    pixels = as_rgb(picture)
    height, width, _ = pixels.shape
    return BinaryMessage(
        kind=MessageKind.FRAME,
        codec=Codec.RAW,
        sequence=sequence,
        time_us=round(time_s * 1e6),
        fields={"width": width, "height": height, "time_s": time_s},
        payload=pixels.tobytes(),
    )


def _require_fine(event: Mapping[str, Any]) -> None:
    if event["type"] == "error":
        raise _error_of(event)


def _error_record(content: bytes) -> Mapping[str, Any]:
    try:
        return dict(json.loads(content)["error"])
    except (ValueError, KeyError, TypeError):
        return {"code": "internal", "message": "The server refused this without a reason that can be read."}


def _error_of(record: Mapping[str, Any]) -> LongtakeError:
    return _ERRORS.get(record["code"], InputError)(record["message"])
