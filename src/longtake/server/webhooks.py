"""Posts what a standing question found to an address of the client's, where the operator allows that host.

From a thread for each host, with few waiting: one that is slow holds up nobody else. No redirect is followed, no proxy
is asked, and nothing is sent but the finding.
"""

import json
import queue
import re
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import SplitResult, urlsplit

from longtake import __version__
from longtake.errors import SettingError
from longtake.server.events import EventLog, SessionEvent
from longtake.server.problems import RequestError, problem_of
from longtake.server.watches import Watch

_USUAL_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_TIMEOUT_S = 5.0
_TRIES = 2
_MOST_WAITING = 64
_MOST_CHARS = 2_000
_FAILED = "webhook_failed"


@dataclass(frozen=True, slots=True)
class _Finding:
    """What is to be posted, and where it is told that this failed."""

    url: str
    record: Mapping[str, Any]
    events: EventLog

    def fail(self, error: RequestError) -> None:
        self.events.add("error", **problem_of(error).record, watch=self.record["watch"])


def webhook_hosts(texts: Iterable[str]) -> frozenset[str]:
    """Hosts as an operator writes them: `host`, or `host:port`."""
    hosts = frozenset(text.lower() for text in texts)
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise SettingError(
                f"Expected --allow-webhooks as a host such as robot.lan or robot.lan:9000, not '{host}'."
            )
    return hosts


def require_webhook(url: str, hosts: frozenset[str]) -> SplitResult:
    """The parts of an address that may be posted to; any other is refused in a sentence."""
    parts = _parts(url)
    named = parts.hostname or ""
    host = f"[{named}]" if ":" in named else named
    port = _port(parts)
    is_usual = port == _USUAL_PORTS[parts.scheme]
    if f"{host}:{port}" not in hosts and not (is_usual and host in hosts):
        raise RequestError(
            "webhook_forbidden",
            "Expected a webhook to a host that the operator allows with --allow-webhooks, but this one is not among "
            f"the {len(hosts)} that are.",
            status=403,
        )
    return parts


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_plain = parts.username is None and parts.password is None and not parts.fragment and bool(parts.hostname)
        is_written = len(url) <= _MOST_CHARS and url.isascii() and url.isprintable() and " " not in url
        if parts.scheme in _USUAL_PORTS and is_plain and is_written and _port(parts) > 0:
            return parts
    except ValueError:  # a port or an address that is none
        pass
    raise RequestError(
        "bad_webhook", "Expected a webhook such as https://robot.lan/found, without user, password and fragment."
    )


def _port(parts: SplitResult) -> int:
    return _USUAL_PORTS[parts.scheme] if parts.port is None else parts.port


class Webhooks:
    """Findings on their way out; a host that fails is told as an error of the session.

    Each receiver has a queue and a thread of its own, begun when it is first needed, so that a slow one holds up no
    other; there are no more of them than the operator allows, two for a host without a port.
    """

    def __init__(self, hosts: frozenset[str], count: Callable[[str], None] = lambda _: None) -> None:
        """`count` is told how each finding ended: sent, failed or dropped."""
        self._hosts, self._count = hosts, count
        self._receivers: dict[tuple[str | None, int], _Receiver] = {}
        self._lock = threading.Lock()

    def tell(self, session: str, watches: Sequence[Watch], fired: SessionEvent, events: EventLog) -> None:
        """Let the finding of a standing question be posted, if it has a webhook."""
        for watch in watches:
            if watch.id == fired.fields["watch"] and watch.webhook is not None:
                told = {name: fired.fields[name] for name in ("watch", "time_s", "text", "seen_until_s")}
                record = {"session": session, "question": watch.question, "expected": watch.expected, **told}
                self._post(_Finding(watch.webhook, record, events))

    def _post(self, finding: _Finding) -> None:
        """At once for the caller, whose thread is not the one that sends."""
        try:
            parts = require_webhook(finding.url, self._hosts)  # again: a saved session may name what was allowed once
        except RequestError as error:
            self._count("failed")
            finding.fail(error)
            return
        where = parts.hostname, _port(parts)
        with self._lock:
            if where not in self._receivers:
                self._receivers[where] = _Receiver(f"longtake-webhook-{len(self._receivers)}", self._count)
        self._receivers[where].post(finding, parts)

    def close(self) -> None:
        """Send no more; what is being sent ends within its time."""
        with self._lock:
            receivers = list(self._receivers.values())
        for receiver in receivers:
            receiver.stop()
        for receiver in receivers:
            receiver.join()


class _Receiver:
    """One host and port: what waits for it, and the thread that sends it."""

    def __init__(self, name: str, count: Callable[[str], None]) -> None:
        self._count = count
        self._waiting: queue.Queue[tuple[_Finding, SplitResult] | None] = queue.Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def post(self, finding: _Finding, parts: SplitResult) -> None:
        try:
            self._waiting.put_nowait((finding, parts))
        except queue.Full:
            self._count("dropped")
            finding.fail(_failure("too many wait"))

    def stop(self) -> None:
        """After what is being sent; what waits is given up."""
        with suppress(queue.Empty):
            while True:
                self._waiting.get_nowait()
        self._waiting.put(None)

    def join(self) -> None:
        """Longer than it may take only where the name of a host is not found, for which there is no limit."""
        self._thread.join(_TRIES * _TIMEOUT_S + 1)

    def _run(self) -> None:
        while (next_one := self._waiting.get()) is not None:
            finding, parts = next_one
            try:
                _send(parts, finding)
                self._count("sent")
            except RequestError as error:
                self._count("failed")
                finding.fail(error)


def _send(parts: SplitResult, finding: _Finding) -> None:
    for left in reversed(range(_TRIES)):
        try:
            status = _post_once(parts, json.dumps(finding.record).encode())
        except (OSError, HTTPException) as error:
            why = type(error).__name__ if not isinstance(error, OSError) else (error.strerror or str(error))
        else:
            if 200 <= status < 300:
                return
            why = f"it replied {status}"
        if not left:
            raise _failure(why)


def _post_once(parts: SplitResult, content: bytes) -> int:
    """The status of the reply; all of it within the timeout, however slowly a host speaks."""
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", _port(parts), timeout=_TIMEOUT_S)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Content-Type": "application/json", "User-Agent": f"longtake/{__version__}", "Connection": "close"}
    ending = threading.Timer(_TIMEOUT_S, _cut, [connection])
    ending.start()
    try:
        connection.request("POST", path, content, headers)
        return connection.getresponse().status
    finally:
        ending.cancel()
        connection.close()


def _cut(connection: HTTPConnection) -> None:
    opened = connection.sock
    if opened is not None:
        with suppress(OSError):
            opened.shutdown(socket.SHUT_RDWR)


def _failure(why: str) -> RequestError:
    return RequestError(
        _FAILED, f"The webhook of a standing question was not reached ({why}); the event says the same."
    )
