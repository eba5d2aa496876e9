"""Who may speak to the server: exact Host and Origin, a token or a ticket, and requests of a bounded size.

Plain ASGI, around everything else: what a framework calls middleware never sees sockets.
"""

import asyncio
import hmac
import json
import re
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from longtake.server.problems import RequestError
from longtake.server.settings import Limits

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN_PATHS = ("/health", "/ready", "/")
"""They say no more than that the server runs; the page asks for the token itself."""
_OPEN_FOLDER = "/static/"
TICKET_LIFE_S = 60.0
_MOST_TICKETS = 10_000
_REFUSED_SOCKET = 1008
REFUSED_SOCKET_STATUS = 403
"""Of the handshake, whatever the reason; the body says it."""
_PORT = re.compile(r":\d+$")
_SHOWN_NAME = 200
_DRAINED_BYTES = 16_000_000
_DRAINED_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRules:
    """What a request must bring."""

    hosts: frozenset[str]
    """Names, with the port, that the Host header may have."""
    origins: frozenset[str]
    """Pages that may speak to the server; programs send no Origin."""
    token: str | None = None
    """None where only this machine can reach the server."""
    given_as: str = "it was started with"
    """Of the token, for those who look for it: the one that …"""

    @classmethod
    def local(cls, port: int) -> "AccessRules":
        """For this machine alone."""
        return cls.named(("127.0.0.1", "localhost", "[::1]"), port)

    @classmethod
    def named(
        cls, names: tuple[str, ...], port: int, *, scheme: str = "http", token: str | None = None
    ) -> "AccessRules":
        """For a server that is reached under these names."""
        usual = 443 if scheme == "https" else 80
        hosts = {f"{name}:{port}" for name in names} | (set(names) if port == usual else set())
        return cls(hosts=frozenset(hosts), origins=frozenset(f"{scheme}://{host}" for host in hosts), token=token)


class Tickets:
    """For pages, whose sockets can set no headers: each opens one request, within a minute. Safe for threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until_s: dict[str, float] = {}
        self._lock = threading.Lock()

    def issue(self) -> str:
        with self._lock:
            now_s = self._clock()
            self._until_s = {ticket: until_s for ticket, until_s in self._until_s.items() if until_s > now_s}
            if len(self._until_s) >= _MOST_TICKETS:
                raise RequestError("busy", "Too many tickets wait to be used; try again in a minute.", status=429)
            ticket = secrets.token_urlsafe(24)
            self._until_s[ticket] = now_s + TICKET_LIFE_S
            return ticket

    def use(self, ticket: str) -> bool:
        """Whether it was good; it is not a second time."""
        with self._lock:
            return self._until_s.pop(ticket, 0.0) > self._clock()


class Access:
    """Lets through what the rules allow; the rest never reaches the app."""

    def __init__(self, app: App, rules: AccessRules, tickets: Tickets, limits: Limits) -> None:
        self._app, self._rules, self._tickets, self._limits = app, rules, tickets, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            self._require(scope)
        except RequestError as error:
            await _refuse(scope, receive, send, error)
            return
        if scope["type"] == "http":
            receive = _bounded(receive, self._most_bytes(scope))
        await self._app(scope, receive, send)

    def _require(self, scope: Scope) -> None:
        headers = _headers(scope)
        if headers.get("host", "").lower() not in self._rules.hosts:
            raise RequestError("wrong_host", self._wrong_host(headers.get("host", "")), status=421)
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in self._rules.origins:
            raise RequestError(
                "wrong_origin",
                "Pages of other origins may not speak to this server; open the page that it serves itself.",
                status=403,
            )
        self._require_token(scope, headers)
        if headers.get("content-encoding", "identity") != "identity":
            raise RequestError("packed_body", "Expected a body that is not compressed.", status=415)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._most_bytes(scope):
            raise RequestError("too_large", f"Expected a body of at most {self._most_bytes(scope)} bytes.", status=413)

    def _require_token(self, scope: Scope, headers: dict[str, str]) -> None:
        is_open = scope["path"] in OPEN_PATHS or scope["path"].startswith(_OPEN_FOLDER)
        if self._rules.token is None or is_open:
            return
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._rules.token.encode()):
            return
        tickets = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("ticket", [])
        if len(tickets) == 1 and self._tickets.use(tickets[0]):
            return
        came = "none" if kind.lower() != "bearer" and not tickets else "another"
        raise RequestError(
            "unauthorized",
            f"Expected the token of this server, but {came} came; give the one that {self._rules.given_as}: as "
            "the header Authorization: Bearer TOKEN, to longtake.Client as token, to commands as --token or "
            "LONGTAKE_TOKEN.",
            status=401,
        )

    def _wrong_host(self, host: str) -> str:
        """Says what to do, and none of the names that the server does go by."""
        name = _PORT.sub("", host)[:_SHOWN_NAME]
        if any(_PORT.sub("", known) == name.lower() for known in self._rules.hosts):
            return f"This server is {name} at another port; ask for the one that it printed when it was started."
        if not name:
            return "Expected a Host header with the name of this server and its port."
        return f"This server does not go by the name {name}; where it is one of its own, start it with --name {name}."

    def _most_bytes(self, scope: Scope) -> int:
        is_upload = scope.get("method") == "PUT" and scope["path"].endswith("/video")
        return self._limits.upload_bytes if is_upload else self._limits.body_bytes


def _headers(scope: Scope) -> dict[str, str]:
    """By name; of one that comes twice, all, so that no rule is met by a part."""
    found: dict[str, str] = {}
    for raw_name, raw_value in scope.get("headers", []):
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _bounded(receive: Receive, most_bytes: int) -> Receive:
    """The same body, until it is longer than allowed; a length that was not declared is counted here."""
    num_bytes = 0

    async def counted() -> Message:
        nonlocal num_bytes
        message = await receive()
        num_bytes += len(message.get("body", b""))
        if num_bytes > most_bytes:
            raise RequestError("too_large", f"Expected a body of at most {most_bytes} bytes.", status=413)
        return message

    return counted


async def _drain(receive: Receive) -> None:
    """Read a body of modest size to its end: who is still sending would not hear the reply."""
    num_bytes = 0
    while num_bytes < _DRAINED_BYTES:
        message = await receive()
        num_bytes += len(message.get("body", b""))
        if not message.get("more_body", False):
            return


async def _refuse(scope: Scope, receive: Receive, send: Send, error: RequestError) -> None:
    is_socket, kind, status = scope["type"] == "websocket", "http.response", error.status
    if is_socket:
        await receive()
        kind, status = "websocket.http.response", REFUSED_SOCKET_STATUS
        if kind not in scope.get("extensions", {}):  # a handshake that can be refused, and not be answered
            await send({"type": "websocket.close", "code": _REFUSED_SOCKET, "reason": str(error)})
            return
    else:
        with suppress(TimeoutError):
            await asyncio.wait_for(_drain(receive), _DRAINED_S)
    content = (json.dumps({"error": {"code": error.code, "message": str(error), "type": error.code}}) + "\n").encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": content})
