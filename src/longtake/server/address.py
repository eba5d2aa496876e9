"""Where a server is, what it wants to see, and the errors that it replies with."""

import json
import shutil
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from longtake.errors import BusyError, CancelledWorkError, InputError, LongtakeError, MemoryFullError, SettingError
from longtake.extras import import_from_extra
from longtake.server.exchange import Call, Fetch, LostConnectionError, UnknownSessionError
from longtake.takes.atomic_files import writing

_ERRORS: dict[str, type[LongtakeError]] = {
    "busy": BusyError,
    "bad_setting": SettingError,
    "memory_full": MemoryFullError,
    "cancelled": CancelledWorkError,
    "unknown_session": UnknownSessionError,
}
_TIMEOUT_S = 60.0
_FETCH_TIMEOUT_S = 600.0
"""What is made of a long video takes its time."""


@dataclass(frozen=True)
class ServerAddress:
    """Of one server."""

    url: str
    token: str | None
    patience_s: float
    """How long one that is away is waited for, by each call."""
    certificate: str | Path | None = None
    """Of a server that made its own; None for those that this machine trusts anyway."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise SettingError(f"Expected the address of a server such as http://127.0.0.1:8765, but got '{self.url}'.")
        if self.certificate is not None and parts.scheme != "https":
            raise SettingError(f"Expected https:// where there is a certificate, but got '{self.url}'.")

    @cached_property
    def trust(self) -> ssl.SSLContext | None:
        """Which certificates are good enough; None without HTTPS."""
        if not self.url.startswith("https"):
            return None
        try:
            return ssl.create_default_context(cafile=self.certificate)
        except OSError as error:
            raise InputError(
                f"Expected a certificate as PEM in {self.certificate}, but it cannot be read ({error})."
            ) from error

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    @property
    def socket_options(self) -> dict[str, Any]:
        """For a connection of websockets, of either kind."""
        import_from_extra("websockets", "serve", "A client")
        return {
            "additional_headers": self.headers,
            "compression": None,
            "max_size": None,
            "proxy": None,
            "ssl": self.trust,
        }

    def socket_url(self, path: str) -> str:
        return self.url.rstrip("/").replace("http", "ws", 1) + path

    def call(self, call: Call) -> bytes:
        """What the server replies; what it refuses is an error with its sentence."""
        content = None if call.body is None else json.dumps(call.body).encode()
        with self._reply(call.method, call.path, content, _TIMEOUT_S) as reply:
            return bytes(reply.read())

    def fetch(self, fetch: Fetch) -> None:
        """Write what the server replies into a file, as it comes."""
        unfinished = fetch.target.with_name(f"{fetch.target.name}.unfinished")
        try:
            with self._reply("GET", fetch.path, None, _FETCH_TIMEOUT_S) as reply, writing(str(fetch.target)):
                with unfinished.open("wb") as file:
                    shutil.copyfileobj(reply, file)
                unfinished.replace(fetch.target)
        finally:
            unfinished.unlink(missing_ok=True)

    @contextmanager
    def _reply(self, method: str, path: str, content: bytes | None, timeout_s: float) -> Iterator[IO[bytes]]:
        headers = {**self.headers, "Content-Type": "application/json"}
        url = f"{self.url.rstrip('/')}/v1{path}"
        request = Request(url, content, headers, method=method)  # noqa: S310 - http or https, as was checked
        opener = build_opener(ProxyHandler({}), HTTPSHandler(context=self.trust))
        try:
            with opener.open(request, timeout=timeout_s) as reply:
                yield reply
        except HTTPError as error:
            unread = f"The server at {self.url} refused this without a reason that can be read ({error})."
            raise error_of(_error_record(error.read(), unread)) from error
        except (URLError, HTTPException, OSError) as error:
            raise self.unreachable(error) from error

    def unreachable(self, error: Exception) -> InputError:
        cause = error.reason if isinstance(error, URLError) else error
        if isinstance(cause, ssl.SSLCertVerificationError):
            return InputError(
                f"The server at {self.url} has a certificate that is not trusted here ({cause.verify_message}); give "
                "the file that it printed as certificate."
            )
        why = cause.strerror if isinstance(cause, OSError) and cause.strerror else cause
        return InputError(f"The server at {self.url} cannot be reached ({why}); is it running?")

    def gone(self, error: LostConnectionError) -> InputError:
        """Of a server that was waited for."""
        return InputError(
            f"The server at {self.url} cannot be reached ({error}), and was waited for {self.patience_s:g} s; start it "
            "again and repeat this call, or wait longer with patience_s."
        )

    @contextmanager
    def breaking(self) -> Iterator[None]:
        """While a socket is used: what breaks it can be mended, what the server refuses cannot."""
        from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidStatus

        try:
            yield
        except ssl.SSLCertVerificationError as error:
            raise self.unreachable(error) from error
        except (ConnectionClosed, InvalidMessage, OSError) as error:  # a message cut off: it ended while it was asked
            raise LostConnectionError(str(error)) from error
        except InvalidHandshake as error:
            said = bytes(error.response.body or b"") if isinstance(error, InvalidStatus) else b""
            raise error_of(_error_record(said, f"The server at {self.url} refused the session ({error}).")) from error


def require_fine(event: Mapping[str, Any]) -> None:
    """Raise what an event of the type error tells."""
    if event["type"] == "error":
        raise error_of(event)


def error_of(record: Mapping[str, Any]) -> LongtakeError:
    return _ERRORS.get(record["code"], InputError)(record["message"])


def _error_record(content: bytes, unread: str) -> Mapping[str, Any]:
    """What the server says; the other sentence where that cannot be read."""
    try:
        return dict(json.loads(content)["error"])
    except (ValueError, KeyError, TypeError):
        return {"code": "internal", "message": unread}
