"""A server's sessions in the style of local ones: `session.step(frame)` goes over the wire, lossless, and comes back.

A lost connection, and a server that was killed and started again, are nothing a caller sees: the frames since the last
save are held here, and those that the server does not have are sent again.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from longtake.api.arguments import checked_arguments
from longtake.api.live_session import LiveAnswer
from longtake.api.pictures import Picture
from longtake.api.single import Single
from longtake.server import client_steps
from longtake.server.address import ServerAddress
from longtake.server.client_steps import SessionSteps
from longtake.server.exchange import Call, Close, Effect, Fetch, Open, Pause, Receive, Script, Send, Steps, Told
from longtake.types import Geometry

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection


class Client:
    """Sessions of a server.

        client = longtake.Client("http://127.0.0.1:8765")
        with client.open_session(memory="64MB") as session:
            for frame in longtake.open_video("world:9?frames=60"):
                geometry = session.step(frame)
            print(session.ask("Which room are you in now?").text)

    `token` is what `longtake serve` printed, where it needs one; so is `certificate`, the file of one that it made
    itself. A server that is away, or breaks off each time, is waited for up to `patience_s` by each call; one that
    ends with that can be repeated, with the same picture.
    """

    @checked_arguments
    def __init__(
        self,
        url: str = "http://127.0.0.1:8765",
        *,
        token: str | None = None,
        certificate: str | Path | None = None,
        patience_s: float = 30.0,
    ) -> None:
        self._address = ServerAddress(url, token, patience_s, certificate)
        self._wire = _Wire(self._address)

    @checked_arguments
    def open_session(
        self,
        *,
        map: str | None = "default",
        ask: str | None = "default",
        memory: str | int | None = None,
        share: float = 0.5,
        ask_fps: float = 2.0,
        fps: float | None = None,
        max_tokens: int = 64,
        loops: bool = True,
        title: str | None = None,
    ) -> "RemoteSession":
        """A session that frames are pushed to; None for `map` or `ask` leaves that part out.

        `fps` is the rate at which frames will come, for which the server must have time; `title` is what people see of
        it in lists.
        """
        opening = client_steps.open_session(
            map=map,
            ask=ask,
            memory=memory,
            share=share,
            ask_fps=ask_fps,
            fps=fps,
            max_tokens=max_tokens,
            loops=loops,
            title=title,
        )
        return RemoteSession(self._address, self._wire.last(opening))

    def session(self, id: str) -> "RemoteSession":
        """A session that was opened before, by this program or another."""
        return RemoteSession(self._address, self._wire.last(client_steps.find_session(id)))

    def sessions(self) -> list[dict[str, Any]]:
        """What the server says of all its sessions, in memory and on disk."""
        return list(self._wire.last(client_steps.list_sessions()))

    def models(self) -> list[dict[str, Any]]:
        """What the server offers."""
        return list(self._wire.last(client_steps.list_models()))


class RemoteSession(Single):
    """One video on a server; frames and questions from one thread. Leaving a `with` block ends it there too."""

    def __init__(self, address: ServerAddress, description: Mapping[str, Any]) -> None:
        """Prefer `Client.open_session`."""
        self._address, self._wire = address, _Wire(address)
        self._steps = SessionSteps(address, description)
        self.id = self._steps.id

    def step(self, picture: Picture, timestamp_s: float | None = None) -> Geometry | None:
        """Take the next picture and return what became known; None where the session does not map.

        Pixels travel as they are, so that results are those of a local session, to the bit.
        """
        geometry: Geometry | None = self._wire.last(self._steps.step(picture, timestamp_s))
        return geometry

    def ask(self, question: str, *, temperature: float = 0.0, max_tokens: int | None = None) -> LiveAnswer:
        """The answer, the moments that it attended to, and the camera's poses then and now."""
        answer = self._wire.last(self._steps.ask(question, temperature, max_tokens))
        assert isinstance(answer, LiveAnswer)
        return answer

    def ask_stream(
        self, question: str, *, temperature: float = 0.0, max_tokens: int | None = None
    ) -> Iterator[str | LiveAnswer]:
        """Text as it comes, and last the answer."""
        return self._wire.told(self._steps.ask(question, temperature, max_tokens))

    def finish(self) -> Geometry | None:
        """The remaining results of the map when no more pictures come."""
        geometry: Geometry | None = self._wire.last(self._steps.finish())
        return geometry

    def fork(self) -> "RemoteSession":
        """A session that goes on from here on its own; end it with `close`."""
        return RemoteSession(self._address, self._wire.last(self._steps.fork()))

    def save(self) -> None:
        """Let the server write it to its disk now; it does so by itself every few frames."""
        self._wire.last(self._steps.save())

    @checked_arguments
    def download(self, name: str, path: str | Path) -> None:
        """Write a result into a file: `poses.tum`, or whatever else the server has of a session."""
        self._wire.last(self._steps.download(name, Path(path)))

    @property
    def info(self) -> dict[str, Any]:
        """What the server says of it."""
        return dict(self._wire.last(self._steps.describe()))

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know before its map and answers are trusted; where the video is unlike what a model knows, that too.

        As the server told it with the last frame, or with `finish`.
        """
        return tuple(self._steps.notes)

    def detach(self) -> None:
        """End the connection; the session stays on the server, for `Client.session`."""
        self._wire.last(self._steps.detach())

    def close(self) -> None:
        """End the session on the server; ending twice is fine."""
        self._wire.last(self._steps.close())

    def __enter__(self) -> "RemoteSession":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Wire:
    """Carries out steps in the caller's thread."""

    def __init__(self, address: ServerAddress) -> None:
        self._address = address
        self._socket: ClientConnection | None = None
        self._opened = ExitStack()

    def last(self, steps: Steps[None]) -> Any:
        """Of what is told."""
        *_, last = self.told(steps)
        return last

    def told(self, steps: Steps[None]) -> Iterator[Any]:
        """As it is told."""
        with closing(Script(steps)) as script:
            for effect in script:
                if isinstance(effect, Told):
                    yield effect.piece
                    continue
                with script.hearing():
                    script.came = self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> Any:
        match effect:
            case Call():
                return self._address.call(effect)
            case Fetch():
                self._address.fetch(effect)
            case Open():
                self._open(effect.path)
            case Send():
                assert self._socket is not None
                with self._address.breaking():
                    self._socket.send(effect.content)
            case Receive():
                assert self._socket is not None
                with self._address.breaking():
                    return self._socket.recv()
            case Pause():
                time.sleep(effect.seconds)
            case Close():
                self._close()
        return None

    def _open(self, path: str) -> None:
        self._close()
        options = self._address.socket_options
        from websockets.sync.client import connect

        with self._address.breaking():
            self._socket = self._opened.enter_context(connect(self._address.socket_url(path), **options))

    def _close(self) -> None:
        self._socket = None
        self._opened.close()
