"""What a frame costs beside its decoding and the network's own time: from a client's last byte to its acknowledgement.

        client                    kernel            server
push ─▶ all bytes written ──copy──▶ ─▶ parsed ─▶ waits for the worker ─▶ step_s ─▶ told ──▶ acknowledgement read

The client writes bytes that were made beforehand, so that it costs nothing; the copy is timed alone, by the same bytes
sent to a process that only reads them and answers with as many as an acknowledgement has.
"""

import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from benchmarks.serving.bare_sockets import BINARY, FINAL, bare_socket, wire_frame
from benchmarks.serving.process import ServerProcess
from benchmarks.serving.scripts import walk_frames
from benchmarks.serving.wire import raw_frame
from longtake.cli.options import parse_size

_PATIENCE_S = 60.0
_WARM_FRAMES = 20
_ECHO = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as listening:
    print(listening.getsockname()[1], flush=True)
    connection, _ = listening.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    expected, left = int(sys.argv[1]), int(sys.argv[1])
    while content := connection.recv(1 << 18):
        left -= len(content)
        if left == 0:
            connection.sendall(bytes(200))
            left = expected
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadFigures:
    """Seconds at the median and the 99th percentile, of all frames: those too that came while a save was written."""

    results: str
    """What the client asked to hear: events, or each frame's geometry too."""
    size: str
    num_frames: int
    step_p50_s: float
    copy_p50_s: float
    overhead_p50_s: float
    overhead_p99_s: float
    frames_per_s: float
    """Of all that was timed together: what is only moved from beside the step into it is seen here."""
    num_saved: int
    """How often the session was saved meanwhile."""

    @property
    def is_fine(self) -> bool:
        return self.overhead_p99_s <= 0.003


def measure_overhead(folder: Path, *, size: str, num_frames: int, results: str, pause_s: float) -> OverheadFigures:
    """One session that maps and is sent a frame whenever the one before was taken."""
    pictures = _pictures(size)
    with ServerProcess(folder) as server:
        asked = {"language": None, "memory": "10MB"}
        id = server.call("POST", "/v1/sessions", asked).record["id"]
        with bare_socket(server.port, f"/v1/sessions/{id}/live?results={results}") as connection:
            turns = [
                _turn(connection, number, pictures[number % len(pictures)], pause_s)
                for number in range(_WARM_FRAMES + num_frames)
            ][_WARM_FRAMES:]
    copy_s = _copy_s(pictures[0], num_frames)
    beside_s = np.array([turn.round_s - turn.step_s - copy_s for turn in turns])
    return OverheadFigures(
        results=results,
        size=size,
        num_frames=num_frames,
        step_p50_s=float(np.median([turn.step_s for turn in turns])),
        copy_p50_s=copy_s,
        overhead_p50_s=float(np.median(beside_s)),
        overhead_p99_s=float(np.percentile(beside_s, 99)),
        frames_per_s=num_frames / sum(turn.round_s for turn in turns),
        num_saved=sum(turn.is_saved for turn in turns),
    )


def _pictures(size: str) -> "list[UInt8[np.ndarray, 'height width 3']]":
    """A walk of so many pixels; that it is blurred costs nothing."""
    height, width = parse_size(size)
    small = [Image.fromarray(frame.image) for frame in walk_frames() if frame.image is not None]
    return [np.asarray(picture.resize((width, height))) for picture in small]


@dataclass(frozen=True, slots=True)
class _Turn:
    round_s: float
    step_s: float
    is_saved: bool
    """Whether the session was saved since the frame before."""


def _turn(
    connection: socket.socket, number: int, picture: UInt8[np.ndarray, "height width 3"], pause_s: float
) -> _Turn:
    content = wire_frame(FINAL | BINARY, raw_frame(number, number / 10, picture))
    time.sleep(pause_s)
    is_saved = False
    started_s = time.perf_counter()
    connection.sendall(content)
    for event in _events(connection):
        is_saved = is_saved or event["type"] == "session.saved"
        if event["type"] == "input_frame.ack":
            return _Turn(time.perf_counter() - started_s, event["step_s"], is_saved)
    raise AssertionError("events come until a frame is acknowledged")


def _events(connection: socket.socket) -> Iterator[dict[str, Any]]:
    while True:
        first, second = _exactly(connection, 2)
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack(">H", _exactly(connection, 2))
        elif length == 127:
            (length,) = struct.unpack(">Q", _exactly(connection, 8))
        payload = _exactly(connection, length)
        if first & 0x0F == 1:
            yield json.loads(payload)


def _exactly(connection: socket.socket, num_bytes: int) -> bytes:
    parts = bytearray()
    while len(parts) < num_bytes:
        part = connection.recv(min(num_bytes - len(parts), 1 << 20))
        assert part, "the server ended the connection"
        parts += part
    return bytes(parts)


def _copy_s(picture: UInt8[np.ndarray, "height width 3"], num_times: int) -> float:
    """The median of sending a frame's bytes to a process that only reads them."""
    content = wire_frame(FINAL | BINARY, raw_frame(0, 0.0, picture))
    with _echo(len(content)) as connection:
        times_s = []
        for _ in range(num_times):
            started_s = time.perf_counter()
            connection.sendall(content)
            _exactly(connection, 200)
            times_s.append(time.perf_counter() - started_s)
    return float(np.median(times_s))


@contextmanager
def _echo(num_bytes: int) -> Iterator[socket.socket]:
    command = [sys.executable, "-c", _ECHO, str(num_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - the lines above
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield connection
