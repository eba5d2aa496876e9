"""Clients of a soak, each a function of the ground that they play on and of chance."""

import json
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol, TypeVar, runtime_checkable

from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from benchmarks.serving.attack import Attacker
from benchmarks.serving.malformed import malformed
from benchmarks.serving.process import Reply, ServerProcess
from benchmarks.serving.scripts import QUESTION, Kind, local_outputs, open_remote, play, walk_frames, walk_script
from benchmarks.serving.wire import raw_frame
from longtake.api.live_session import LiveAnswer
from longtake.errors import BusyError, InputError
from longtake.runtime.answers import Answer
from longtake.server.client import RemoteSession
from longtake.types import Geometry
from longtake.video.frame import VideoFrame

_Result = TypeVar("_Result")
_PATIENCE_S = 120.0
_AGAIN_S = 0.2
_MOST_LEFT = 10
_AWAY = "cannot be reached"


@runtime_checkable
class Ground(Protocol):
    """The server, which may be away, and where clients say what happened."""

    url: str
    left: deque[str]
    """Sessions that their clients went away from."""

    @property
    def server(self) -> ServerProcess: ...

    @property
    def is_over(self) -> bool: ...

    def note(self, what: str) -> None: ...

    def complain(self, problem: str) -> None: ...

    def call(self, method: str, path: str, body: object = None) -> Reply | None: ...


class Patient:
    """A session whose frames and questions are sent again while the server has no room for it."""

    def __init__(self, session: RemoteSession, ground: Ground) -> None:
        self._session, self._ground = session, ground

    def step(self, picture: VideoFrame) -> Geometry | None:
        return self._until_there_is_room(lambda: self._session.step(picture))

    def ask(self, question: str) -> Answer | LiveAnswer:
        return self._until_there_is_room(lambda: self._session.ask(question))

    def _until_there_is_room(self, work: Callable[[], _Result]) -> _Result:
        ends_s = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return work()
            except BusyError:
                self._ground.note("refused for want of room")
                if time.monotonic() > ends_s:
                    raise
            time.sleep(_AGAIN_S)


def walk(ground: Ground, rng: random.Random) -> None:
    """From the first frame to the last answer, every bit compared, whatever happens in between."""
    kind = rng.choice(list(Kind))
    with _opened(ground, kind) as session:
        if session is None:
            return

        def disturb(_: int) -> None:
            match rng.randrange(30):
                case 0:
                    ground.note("eviction")
                    ground.call("POST", f"/v1/sessions/{session.id}/evict")
                case 1:
                    ground.note("silence")
                    time.sleep(rng.uniform(0.0, 3.0))
                case 2:
                    ground.note("detachment")
                    session.detach()
                case 3:
                    ground.call("POST", f"/v1/sessions/{session.id}/save")
                case _:
                    pass

        if play(Patient(session, ground), walk_script(kind), disturb) != local_outputs(kind):
            ground.complain(f"session {session.id} ({kind}) said other bits than a local one")
        ground.note("walk")


def attack(ground: Ground, rng: random.Random) -> None:
    """Malformed messages to a session of its own."""
    with _opened(ground, rng.choice(list(Kind))) as session:
        if session is None:
            return
        attacker = Attacker(ground.server, session.id)
        with suppress(OSError, AssertionError, WebSocketException):  # away, or back without the session's socket
            for _ in range(rng.randint(1, 30)):
                attacker.send(malformed(rng))
                ground.note("malformed message")
            attacker.break_off(rng)
        attacker.close()


def stream(ground: Ground, rng: random.Random) -> None:
    """A live camera that sends faster than frames are taken, and reads only now and then."""
    asked = {"language": None, "memory": "10MB", "delivery": "newest"}
    reply = ground.call("POST", "/v1/sessions", asked)
    if reply is None or reply.status != 201:
        return
    id = reply.record["id"]
    with suppress(OSError, WebSocketException):
        url = f"{ground.server.socket_url}/v1/sessions/{id}/live"
        with connect(url, proxy=None, compression=None) as socket:
            for number in range(rng.randint(5, 40)):
                picture = walk_frames()[number % 24].image
                assert picture is not None
                socket.send(raw_frame(number, number / 10, picture))
                time.sleep(rng.uniform(0.0, 0.03))
        ground.note("stream")
    ground.call("DELETE", f"/v1/sessions/{id}")


def change_mind(ground: Ground, rng: random.Random) -> None:
    """Questions that are given up, and asked of nothing."""
    with _opened(ground, Kind.ASK) as session:
        if session is None:
            return
        url = f"{ground.server.socket_url}/v1/sessions/{session.id}/live"
        with suppress(OSError, WebSocketException), connect(url, proxy=None) as socket:
            for number in range(rng.randint(1, 6)):
                socket.send(json.dumps({"type": "response.create", "response": f"r{number}", "question": QUESTION}))
                if rng.random() < 0.7:
                    socket.send(json.dumps({"type": "response.cancel", "response": f"r{number}"}))
            ground.note("questions given up")


def look_around(ground: Ground, rng: random.Random) -> None:
    """Whatever can be read, of whichever session."""
    reply = ground.call("GET", "/v1/sessions")
    ids = [] if reply is None or reply.status != 200 else [session["id"] for session in reply.record["sessions"]]
    paths = ["/health", "/ready", "/metrics", "/v1/models", "/v1/openapi.json", "/v1/sessions/none"]
    for id in ids:
        paths += [f"/v1/sessions/{id}{rest}" for rest in ("", "/events", "/events?after=3", "/poses.tum")]
    for path in rng.sample(paths, min(len(paths), 10)):
        ground.call("GET", path)
        ground.note("look")


def fork(ground: Ground, rng: random.Random) -> None:
    """A session and its fork go on by themselves; the fork is left for the server to keep."""
    with _opened(ground, Kind.MAP) as session:
        if session is None:
            return
        frames = walk_frames()
        with suppress(BusyError):
            for frame in frames[:4]:
                session.step(frame)
            forked = session.fork()
            for frame in frames[4 : rng.randint(5, 8)]:
                forked.step(frame)
            ground.note("fork")
            forked.detach()
            ground.left.append(forked.id)
    if len(ground.left) > _MOST_LEFT:
        ground.call("DELETE", f"/v1/sessions/{ground.left.popleft()}")


Client = Callable[[Ground, random.Random], None]
CLIENTS: tuple[tuple[Client, int], ...] = (
    (walk, 5),
    (attack, 2),
    (stream, 2),
    (change_mind, 2),
    (look_around, 1),
    (fork, 1),
)
"""And how often each is drawn."""


@contextmanager
def _opened(ground: Ground, kind: Kind) -> Iterator[RemoteSession | None]:
    """A session; None where the server has no room or is away. What it may say of being away is no complaint."""
    try:
        session = open_remote(ground.url, kind)
    except BusyError:
        ground.note("refused for want of room")
        time.sleep(_AGAIN_S)
        yield None
        return
    except InputError as error:
        _judge(ground, error)
        yield None
        return
    try:
        yield session
        session.close()
    except InputError as error:
        _judge(ground, error)


def _judge(ground: Ground, error: InputError) -> None:
    if _AWAY in str(error):
        ground.note("away")
        time.sleep(_AGAIN_S)
    else:
        ground.complain(str(error))
