"""A server from its socket to its end: it listens, says so, and saves all when it is asked to stop."""

import asyncio
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from longtake.errors import InputError
from longtake.server.access import App
from longtake.server.certificate import CertificateFiles
from longtake.server.frames import MAX_FRAME_BYTES

_GRACE_S = 5
_UNREAD_MS = 20_000
"""That what was sent may stay without an acknowledgement, or room on the other side."""
_FIELDS_BYTES = 65_536 + 16
_HEADER_S = 10.0
"""In which the first lines of a request have to come."""


class HttpServer(uvicorn.Server):
    """Leaves signals to who runs it, and says when it listens."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    def stop(self) -> None:
        """Take no more connections, and end."""
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()


class PromptProtocol(H11Protocol):
    """HTTP that closes connections upon which the first lines of a request begin and do not end."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._expect_request()
        else:
            self._expect_nothing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        super().connection_lost(exc)

    def _expect_request(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(_HEADER_S, self.transport.close)

    def _expect_nothing(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class AnsweringProtocol(WebSocketsSansIOProtocol):
    """Sockets whose handshake is refused with a reply that says why, which ends it; nothing is to be logged then."""

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True


def listen(host: str, port: int) -> socket.socket:
    """A socket at this address; port 0 takes any that is free."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"{host} port {port} cannot be listened on ({error}); name another with --host and --port."
        ) from error
    # connections inherit it: small events would else wait 40 ms for an acknowledgement of those before
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if sys.platform == "linux":  # who reads nothing would else hold a connection that was closed, and what waits in it
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS)
    return bound


def own_addresses(host: str) -> tuple[str, ...]:
    """By which other machines know this one, of the family that `host` stands for; none where it has no network."""
    family, nobody = (socket.AF_INET6, "2001:db8::1") if ":" in host else (socket.AF_INET, "192.0.2.1")
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asking:
        asking.connect((nobody, 9))  # nothing is sent: only the way there is looked for
        return (str(asking.getsockname()[0]),)
    return ()


def http_server(app: App, on_ready: Callable[[], None], files: CertificateFiles | None = None) -> HttpServer:
    """With a certificate for HTTPS. Frames are never compressed, so that none can grow when it is unpacked."""
    config = uvicorn.Config(
        app,
        ssl_certfile=None if files is None else files.certificate,
        ssl_keyfile=None if files is None else files.key,
        http=PromptProtocol,
        ws=AnsweringProtocol,
        lifespan="on",
        ws_max_size=MAX_FRAME_BYTES + _FIELDS_BYTES,
        ws_per_message_deflate=False,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
    )
    return HttpServer(config, on_ready)
