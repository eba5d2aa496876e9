"""Four sessions in mid-video while something happens to the server or to their connections: no bit may change."""

import random
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

from benchmarks.serving.process import ServerProcess
from benchmarks.serving.scripts import ONE_THREAD, Kind, Outputs, local_outputs, open_remote, play, walk_script
from longtake.server.client import RemoteSession

KINDS = (Kind.MAP, Kind.ASK, Kind.BOTH, Kind.BOTH)
_SAVE_EVERY = "5"
_IDLE_S = 1.0
_PATIENCE_S = 120.0


class Upset(StrEnum):
    """What happens in mid-video."""

    KILL = "kill"
    """The server gets signal 9, and is started again at the same address."""
    DRAIN = "drain"
    """It is asked to end, and started again."""
    CUT = "cut"
    """Connections are lost."""
    IDLE = "idle"
    """Clients wait until their sessions have left memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """One round of one upset."""

    upset: Upset
    after_frames: int
    """That all sessions had taken when it happened."""
    lost_frames: int
    """That had to be sent again."""
    back_s: float
    """Until the server listened again; 0 where it never ended."""
    num_same: int
    """Of the sessions, that said to the bit what local ones say."""

    @property
    def is_fine(self) -> bool:
        return self.num_same == len(KINDS)


class Round:
    """A server, four clients, and one upset after a number of frames of all together."""

    def __init__(self, folder: Path, upset: Upset, after_frames: int) -> None:
        self._folder, self._upset, self._after_frames = folder, upset, after_frames
        self._num_frames = 0
        self._changed = threading.Condition()
        self._back_s = 0.0
        self._lost_frames = 0
        self._server = self._start(0)

    def run(self) -> Recovery:
        try:
            sessions = [open_remote(self._server.url, kind) for kind in KINDS]
            with ThreadPoolExecutor(len(KINDS) + 1) as pool:
                upset = pool.submit(self._upset_in_time)
                outputs = list(pool.map(self._play, sessions, KINDS))
                upset.result()
            for session in sessions:
                session.close()
        finally:
            self._server.__exit__()
        return Recovery(
            upset=self._upset,
            after_frames=self._after_frames,
            lost_frames=self._lost_frames,
            back_s=self._back_s,
            num_same=sum(local_outputs(kind) == one for kind, one in zip(KINDS, outputs, strict=True)),
        )

    def _start(self, port: int) -> ServerProcess:
        options = ("--save-every", _SAVE_EVERY, "--idle", str(_IDLE_S) if self._upset is Upset.IDLE else "300")
        return ServerProcess(self._folder, *options, port=port, environment=ONE_THREAD)

    def _play(self, session: RemoteSession, kind: Kind) -> Outputs:
        has_waited = False

        def count(_: int) -> None:
            nonlocal has_waited
            with self._changed:
                self._num_frames += 1
                is_due = self._num_frames >= self._after_frames
                self._changed.notify_all()
            if self._upset is Upset.IDLE and is_due and not has_waited:
                has_waited = True
                _wait_until_saved(session)

        return play(session, walk_script(kind), count)

    def _upset_in_time(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._num_frames >= self._after_frames, _PATIENCE_S)
        match self._upset:
            case Upset.KILL:
                self._server.kill()
                self._start_again()
            case Upset.DRAIN:
                assert self._server.stop() == 0
                self._start_again()
            case Upset.CUT:
                assert cut_connections(self._server.port) > 0
            case Upset.IDLE:
                pass  # each client waits by itself

    def _start_again(self) -> None:
        started_s = time.monotonic()
        port = self._server.port
        self._server.__exit__()
        self._server = self._start(port)
        self._back_s = time.monotonic() - started_s
        for session in self._server.call("GET", "/v1/sessions").record["sessions"]:
            first, last = session["lost_frames"] or (0, -1)
            self._lost_frames += last - first + 1


def recover(
    folder: Path, upset: Upset, num_rounds: int, *, seed: int = 0, progress: Callable[[int], None] = lambda _: None
) -> list[Recovery]:
    """Rounds of an upset, each at a random moment of its videos."""
    rng = random.Random(seed)  # noqa: S311 - moments must repeat
    most = len(KINDS) * len(walk_script(Kind.MAP).frames)
    found = []
    for number in range(num_rounds):
        found.append(Round(folder / f"{upset}-{number}", upset, rng.randint(1, most - len(KINDS))).run())
        progress(1)
    return found


def cut_connections(port: int) -> int:
    """Shut this process's connections to a port, as a network that fails would; how many there were."""
    num_cut = 0
    for one in psutil.Process().net_connections("tcp"):
        if one.raddr and one.raddr.port == port and one.fd != -1:
            with suppress(OSError), socket.fromfd(one.fd, socket.AF_INET, socket.SOCK_STREAM) as twin:
                twin.shutdown(socket.SHUT_RDWR)
                num_cut += 1
    return num_cut


def _wait_until_saved(session: RemoteSession) -> None:
    ends_s = time.monotonic() + _PATIENCE_S
    while session.info["state"] != "saved":
        assert time.monotonic() < ends_s, "an idle session did not leave memory"
        time.sleep(0.1)
