"""A server attacked through the socket of one session, while another session must not notice."""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from benchmarks.serving.bare_sockets import break_socket
from benchmarks.serving.malformed import NEXT_SEQUENCE, Malformed, all_wrong_fields, malformed
from benchmarks.serving.process import ServerProcess
from benchmarks.serving.scripts import ONE_THREAD, Kind, local_outputs, open_remote, play, walk_script

_PATIENCE_S = 60.0
_BROKEN_SHARE = 0.1
"""Of the messages, that break the socket below them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackFigures:
    """How messages ended, and what others heard meanwhile."""

    num_messages: int
    num_errors: int
    num_closed: int
    unanswered: tuple[str, ...]
    """What ended in neither; empty if all is well."""
    kinds: dict[str, int]
    num_rounds: int
    """Walks of another session meanwhile."""
    others_are_same: bool
    attacked_is_same: bool
    """The attacked session went on as if nothing had been."""
    seconds: float
    resident_before_bytes: int
    resident_most_bytes: int

    @property
    def is_fine(self) -> bool:
        return not self.unanswered and self.others_are_same and self.attacked_is_same and self.num_rounds > 0


class Attacker:
    """The socket of one session, opened again whenever the server ends it."""

    def __init__(self, server: ServerProcess, id: str) -> None:
        self._server, self._path = server, f"/v1/sessions/{id}/live"
        self._opened = ExitStack()
        self._socket: ClientConnection | None = None
        self.endings: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.unanswered: list[str] = []

    def send(self, one: Malformed) -> None:
        """Send it, and wait for how it ends."""
        self.kinds[one.name] += 1
        try:
            socket = self._open()
            socket.send(one.content)
            while _event(socket.recv(timeout=_PATIENCE_S))["type"] != "error":
                pass
            self.endings["error"] += 1
        except ConnectionClosed:
            self.endings["closed"] += 1
            self.close()
        except TimeoutError:
            self.unanswered.append(f"{one.name}: {one.content[:200]!r}")
            self.close()

    def break_off(self, rng: random.Random) -> None:
        """A connection of its own that breaks the protocol."""
        self.kinds["broken socket"] += 1
        if break_socket(self._server.port, self._path, rng):
            self.endings["closed"] += 1
        else:
            self.unanswered.append("broken socket")

    def close(self) -> None:
        self._socket = None
        self._opened.close()

    def _open(self) -> ClientConnection:
        if self._socket is None:
            url = self._server.socket_url + self._path
            self._socket = self._opened.enter_context(connect(url, proxy=None, compression=None, max_size=None))
        return self._socket


class Bystander:
    """Another session that walks again and again, and compares what it hears with what a local session says."""

    def __init__(self, url: str, kind: Kind = Kind.BOTH) -> None:
        self._url, self._kind, self._expected = url, kind, local_outputs(kind)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bystander")
        self.num_rounds = 0
        self.is_same = True

    def __enter__(self) -> "Bystander":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """After the round that is under way."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.is_same = False  # until this round has ended well
            with open_remote(self._url, self._kind) as session:
                if play(session, walk_script(self._kind)) != self._expected:
                    return
            self.is_same = True
            self.num_rounds += 1


def attack(
    folder: Path, num_messages: int, *, seed: int = 0, progress: Callable[[int], None] = lambda _: None
) -> AttackFigures:
    """A session is attacked in the middle of its walk, and goes on with it afterwards."""
    with ServerProcess(folder, environment=ONE_THREAD) as server, open_remote(server.url, Kind.BOTH) as session:
        attacker, memory = Attacker(server, session.id), PeakMemory(server.process.pid)
        bystander = Bystander(server.url)

        def attack_now(sequence: int) -> None:
            if sequence == NEXT_SEQUENCE:
                session.detach()  # what is told of the attacker's frame 10 is not told of its own
                with bystander:
                    for send in _attacks(attacker, num_messages, seed):
                        send()
                        memory.look()
                        progress(1)
                attacker.close()

        started_s = time.monotonic()
        outputs = play(session, walk_script(Kind.BOTH), attack_now)
    return AttackFigures(
        num_messages=num_messages,
        num_errors=attacker.endings["error"],
        num_closed=attacker.endings["closed"],
        unanswered=tuple(attacker.unanswered),
        kinds=dict(sorted(attacker.kinds.items())),
        num_rounds=bystander.num_rounds,
        others_are_same=bystander.is_same,
        attacked_is_same=outputs == local_outputs(Kind.BOTH),
        seconds=time.monotonic() - started_s,
        resident_before_bytes=memory.first_bytes,
        resident_most_bytes=memory.most_bytes,
    )


class PeakMemory:
    """The most that a process had resident, of when it was looked at."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.first_bytes = self.most_bytes = self._process.memory_info().rss

    def look(self) -> None:
        self.most_bytes = max(self.most_bytes, self._process.memory_info().rss)


def _attacks(attacker: Attacker, num_messages: int, seed: int) -> Iterator[Callable[[], None]]:
    """Every wrong field once, as far as there is room, among messages drawn at random."""
    rng = random.Random(seed)  # noqa: S311 - what is drawn must repeat
    wrong_fields = list(all_wrong_fields())
    rng.shuffle(wrong_fields)
    for _ in range(num_messages):
        if rng.random() < _BROKEN_SHARE:
            yield partial(attacker.break_off, rng)
        else:
            yield partial(attacker.send, wrong_fields.pop() if wrong_fields and rng.random() < 0.4 else malformed(rng))


def _event(content: str | bytes) -> dict[str, Any]:
    """Strict JSON: a page could read it."""

    def refuse(name: str) -> None:
        raise AssertionError(f"the server sent {name}, which is no JSON")

    event: dict[str, Any] = json.loads(content, parse_constant=refuse)
    return event
