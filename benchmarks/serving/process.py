"""A real `longtake serve` in a process of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener


@dataclass(frozen=True)
class Reply:
    """What a server said."""

    status: int
    content: bytes
    headers: Mapping[str, str]

    @property
    def record(self) -> Any:
        return json.loads(self.content)

    @property
    def code(self) -> str:
        return str(self.record["error"]["code"])


class ServerProcess:
    """Runs until `stop`, `kill` or the end of the `with` block."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        port: int = 0,
        environment: Mapping[str, str] | None = None,
        errors: IO[bytes] | int | None = None,
    ) -> None:
        """`errors` gets what it logs, in place of the terminal."""
        self.folder = folder
        command = [sys.executable, "-m", "longtake", "serve", "--port", str(port), "--folder", str(folder), *arguments]
        self.process = subprocess.Popen(  # noqa: S603 - this very program
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=os.environ | dict(environment or {})
        )
        assert self.process.stdout is not None
        self.lines: list[str] = []
        while not (line := self.process.stdout.readline()).startswith("Serving on "):
            assert line, "the server ended before it listened"
            self.lines.append(line.strip())
        self.urls = line.removeprefix("Serving on ").partition(", ")[0].split(" and ")
        self.url = self.urls[0]
        self.port = int(self.url.rpartition(":")[2])
        self.socket_url = self.url.replace("http", "ws", 1)

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> Reply:
        """A request as any program might send it."""
        sent = json.dumps(body).encode() if content is None and body is not None else content
        kinds = {"Content-Type": "application/json", **(headers or {})}
        request = Request(self.url + path, sent, kinds, method=method)  # noqa: S310 - our own server
        try:
            with build_opener(ProxyHandler({})).open(request, timeout=60) as reply:
                return Reply(reply.status, reply.read(), _lower(reply.headers))
        except HTTPError as error:
            return Reply(error.code, error.read(), _lower(error.headers))

    def kill(self) -> None:
        """At once, as a machine that loses its power would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)

    def stop(self) -> int:
        """As a system that shuts down asks; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()


def _lower(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
