"""Random clients on one server for a while: walkers that compare every bit, and all that may happen around them."""

import faulthandler
import random
import re
import signal
import subprocess
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.serving.process import Reply, ServerProcess
from benchmarks.serving.random_clients import CLIENTS, Ground
from benchmarks.serving.recovery import cut_connections
from benchmarks.serving.scripts import ONE_THREAD, Kind, local_outputs
from benchmarks.serving.usage import Usage, usage_of

_BUDGET_BYTES = 150_000_000
_OPTIONS = ("--memory", "150MB", "--session-memory", "40MB", "--idle", "2", "--save-every", "6")
_RESTING_S = 30.0
_ENDING_S = 180.0
"""After which clients have ended: they wait no longer for a server that is away, or has no room."""
_LOOK_EVERY_S = 1.0
_MORE_THREADS = _MORE_FILES = 16
"""That pools of threads may hold once they were used."""
_TALKING = {"PYTHONFAULTHANDLER": "1"}
"""A server that does not end says where it is when it is aborted."""
_OURS = "longtake/server"
_MEMORY_METRIC = "longtake_memory_bytes "


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakFigures:
    """What happened, and what of it must not."""

    seconds: float
    num_clients: int
    happened: dict[str, int]
    """How often each thing was done, walks that were compared among them."""
    problems: tuple[str, ...]
    """Other bits, replies of 500 and above, bytes beyond the budget, errors in the log: none if all is well."""
    most_memory_bytes: int
    """That sessions were counted with; never more than the budget."""
    budget_bytes: int
    fresh: Usage
    most_resident_bytes: int
    at_rest: Usage
    """After all sessions were closed."""

    @property
    def is_at_rest(self) -> bool:
        """Nothing of all that is left but threads of pools and their files."""
        return (
            self.at_rest.num_sockets <= self.fresh.num_sockets
            and self.at_rest.num_folders == 0
            and self.at_rest.num_threads <= self.fresh.num_threads + _MORE_THREADS
            and self.at_rest.num_files <= self.fresh.num_files + _MORE_FILES
        )

    @property
    def is_fine(self) -> bool:
        return not self.problems and self.is_at_rest and self.happened.get("walk", 0) > 0


class Soak(Ground):
    """One server that is killed and ended now and then, its clients, and who looks on."""

    def __init__(self, folder: Path, seconds: float, num_clients: int, restart_every_s: float, seed: int) -> None:
        self._folder, self._seconds, self._num_clients, self._seed = folder, seconds, num_clients, seed
        self._restart_every_s = restart_every_s
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._happened: Counter[str] = Counter()
        self._problems: list[str] = []
        self._most_memory_bytes = self._most_resident_bytes = 0
        self._log = (folder / "server.log").open("wb")
        self._server = self._start(0)
        self.left: deque[str] = deque()
        self.url, self.port = self._server.url, self._server.port

    @property
    def server(self) -> ServerProcess:
        return self._server

    @property
    def is_over(self) -> bool:
        return self._stopped.is_set()

    def note(self, what: str) -> None:
        with self._lock:
            self._happened[what] += 1

    def complain(self, problem: str) -> None:
        with self._lock:
            self._problems.append(problem)

    def call(self, method: str, path: str, body: object = None) -> Reply | None:
        """None while the server is away."""
        with suppress(OSError):
            reply = self._server.call(method, path, body)
            if reply.status >= 500 and reply.status != 503:
                self.complain(f"{method} {path}: {reply.status}")
            return reply
        return None

    def run(self) -> SoakFigures:
        for kind in Kind:
            local_outputs(kind)
        fresh, started_s = usage_of(self._server), time.monotonic()
        try:
            self._let_them_run()
            at_rest = self._leave()
        finally:
            self._stopped.set()
            self._server.__exit__()
            self._log.close()
        self._read_log()
        return SoakFigures(
            seconds=time.monotonic() - started_s,
            num_clients=self._num_clients,
            happened=dict(sorted(self._happened.items())),
            problems=tuple(self._problems),
            most_memory_bytes=self._most_memory_bytes,
            budget_bytes=_BUDGET_BYTES,
            fresh=fresh,
            most_resident_bytes=self._most_resident_bytes,
            at_rest=at_rest,
        )

    def _let_them_run(self) -> None:
        with ThreadPoolExecutor(self._num_clients + 2) as pool:
            try:
                works = [pool.submit(self._be_client, number) for number in range(self._num_clients)]
                works += [pool.submit(self._restart), pool.submit(self._look_on)]
                wait(works, timeout=self._seconds, return_when=FIRST_EXCEPTION)
            finally:
                self._stopped.set()
            self._see_them_end(works)

    def _see_them_end(self, works: "Sequence[Future[None]]") -> None:
        """A client that waits for what never comes is a problem; without a server it does not wait much longer."""
        if late := wait(works, timeout=_ENDING_S).not_done:
            self.complain(f"{len(late)} clients still waited for something {_ENDING_S:.0f} s after the end")
            faulthandler.dump_traceback(self._log)
            self._server.kill()
            wait(works)
            self._come_back("kill of the server")
        for work in works:
            work.result()

    def _start(self, port: int) -> ServerProcess:
        return ServerProcess(
            self._folder / "sessions", *_OPTIONS, port=port, environment=ONE_THREAD | _TALKING, errors=self._log
        )

    def _be_client(self, number: int) -> None:
        rng = random.Random(self._seed * 1000 + number)  # noqa: S311 - what is drawn must repeat
        while not self._stopped.is_set():
            client = rng.choices([client for client, _ in CLIENTS], [weight for _, weight in CLIENTS])[0]
            client(self, rng)

    def _restart(self) -> None:
        rng = random.Random(self._seed)  # noqa: S311
        while not self._stopped.wait(rng.uniform(0.5, 1.5) * self._restart_every_s):
            match rng.choice(["kill", "end", "cut"]):
                case "kill":
                    self._server.kill()
                    self._come_back("kill of the server")
                case "end":
                    self._end_server()
                    self._come_back("end of the server")
                case _:
                    self.note("cut")
                    cut_connections(self.port)

    def _end_server(self) -> None:
        try:
            if (code := self._server.stop()) != 0:
                self.complain(f"the server ended with {code}")
        except subprocess.TimeoutExpired:
            self.complain("the server did not end within a minute; what its threads did is in its log")
            self._server.process.send_signal(signal.SIGABRT)
            self._server.process.wait()

    def _come_back(self, what: str) -> None:
        self.note(what)
        self._server.__exit__()
        self._server = self._start(self.port)

    def _look_on(self) -> None:
        while not self._stopped.wait(_LOOK_EVERY_S):
            reply = self.call("GET", "/metrics")
            lines = [] if reply is None else reply.content.decode().splitlines()
            counted = [int(float(line.split()[1])) for line in lines if line.startswith(_MEMORY_METRIC)]
            self._most_memory_bytes = max([self._most_memory_bytes, *counted])
            if self._most_memory_bytes > _BUDGET_BYTES:
                self.complain(f"{self._most_memory_bytes} bytes are beyond the budget")
            with suppress(psutil.Error, OSError):  # it is away
                self._most_resident_bytes = max(self._most_resident_bytes, usage_of(self._server).resident_bytes)

    def _leave(self) -> Usage:
        """Close all sessions, and wait until the server has rest."""
        listed = self._server.call("GET", "/v1/sessions").record
        if listed["damaged"]:
            self.complain(f"sessions that cannot be resumed: {listed['damaged']}")
        for session in listed["sessions"]:
            self.call("DELETE", f"/v1/sessions/{session['id']}")
        ends_s = time.monotonic() + _RESTING_S
        while (found := usage_of(self._server)).num_sockets > 1 and time.monotonic() < ends_s:
            time.sleep(0.1)
        if found.num_folders:
            left = sorted(str(path.relative_to(self._folder)) for path in (self._folder / "sessions").rglob("*"))
            self.complain(f"folders of no session: {left[:20]}")
        return found

    def _read_log(self) -> None:
        content = (self._folder / "server.log").read_text(errors="replace")
        for told in re.split("Traceback|Fatal Python error", content)[1:]:
            if _OURS in told:
                self.complain(f"an error in the log: {told[:8000]}")
