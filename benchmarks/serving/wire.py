"""A session by its plain socket, without the client that programs use: what a page or a robot would write."""

import json
import time
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import numpy as np
from jaxtyping import UInt8
from websockets.sync.client import ClientConnection, connect

from benchmarks.serving.process import ServerProcess
from longtake.server.messages import BinaryMessage, Codec, MessageKind

_PATIENCE_S = 60.0


class WireSession:
    """Opened on entering, closed on leaving."""

    def __init__(self, server: ServerProcess, asked: Mapping[str, Any]) -> None:
        self._server, self._asked = server, asked
        self._opened = ExitStack()

    def __enter__(self) -> "WireSession":
        reply = self._server.call("POST", "/v1/sessions", self._asked)
        assert reply.status == 201, reply.content
        self.id = str(reply.record["id"])
        self._socket = self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()
        self._server.call("DELETE", f"/v1/sessions/{self.id}")

    def connect(self) -> ClientConnection:
        """One more socket of the session."""
        url = f"{self._server.socket_url}/v1/sessions/{self.id}/live"
        return self._opened.enter_context(connect(url, proxy=None, compression=None, max_size=None))

    def push(self, sequence: int, time_s: float, pixels: UInt8[np.ndarray, "height width 3"]) -> None:
        self._socket.send(raw_frame(sequence, time_s, pixels))

    def next_event(self, until_s: float | None = None) -> dict[str, Any] | None:
        """None where none came until then, by `time.monotonic`."""
        left_s = _PATIENCE_S if until_s is None else max(0.0, until_s - time.monotonic())
        try:
            event: dict[str, Any] = json.loads(self._socket.recv(timeout=left_s))
        except TimeoutError:
            return None
        return event


def raw_frame(sequence: int, time_s: float, pixels: UInt8[np.ndarray, "height width 3"]) -> bytes:
    """A frame's message."""
    height, width, _ = pixels.shape
    message = BinaryMessage(
        kind=MessageKind.FRAME,
        codec=Codec.RAW,
        sequence=sequence,
        time_us=round(time_s * 1e6),
        fields={"width": width, "height": height, "time_s": time_s},
        payload=pixels.tobytes(),
    )
    return message.pack()
