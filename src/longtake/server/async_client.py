"""A server's sessions for programs that wait for many things at once: as `client`, with `await` before each call."""

import asyncio
from collections.abc import AsyncIterator, Mapping
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
    from websockets.asyncio.client import ClientConnection


class AsyncClient:
    """Sessions of a server.

        client = longtake.AsyncClient("http://127.0.0.1:8765")
        async with await client.open_session(memory="64MB") as session:
            for frame in longtake.open_video("world:9?frames=60"):
                geometry = await session.step(frame)
            async for piece in session.ask_stream("Which room are you in now?"):
                print(piece)

    As `Client` otherwise.
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
        self._wire = _AsyncWire(self._address)

    @checked_arguments
    async def open_session(
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
    ) -> "AsyncRemoteSession":
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
        return AsyncRemoteSession(self._address, await self._wire.last(opening))

    async def session(self, id: str) -> "AsyncRemoteSession":
        """A session that was opened before, by this program or another."""
        return AsyncRemoteSession(self._address, await self._wire.last(client_steps.find_session(id)))

    async def sessions(self) -> list[dict[str, Any]]:
        """What the server says of all its sessions, in memory and on disk."""
        return list(await self._wire.last(client_steps.list_sessions()))

    async def models(self) -> list[dict[str, Any]]:
        """What the server offers."""
        return list(await self._wire.last(client_steps.list_models()))


class AsyncRemoteSession(Single):
    """One video on a server. Tasks may use it side by side; calls are served in turn, and frames keep their order.

    A `step` that is cancelled once it was begun counts: its frame is sent nonetheless, with the next call.
    Leaving an `async with` block ends the session on the server too.
    """

    def __init__(self, address: ServerAddress, description: Mapping[str, Any]) -> None:
        """Prefer `AsyncClient.open_session`."""
        self._address, self._wire = address, _AsyncWire(address)
        self._steps = SessionSteps(address, description)
        self.id = self._steps.id

    async def step(self, picture: Picture, timestamp_s: float | None = None) -> Geometry | None:
        """Take the next picture and return what became known; None where the session does not map.

        Pixels travel as they are, so that results are those of a local session, to the bit.
        """
        geometry: Geometry | None = await self._wire.last(self._steps.step(picture, timestamp_s))
        return geometry

    async def ask(self, question: str, *, temperature: float = 0.0, max_tokens: int | None = None) -> LiveAnswer:
        """The answer, the moments that it attended to, and the camera's poses then and now."""
        answer = await self._wire.last(self._steps.ask(question, temperature, max_tokens))
        assert isinstance(answer, LiveAnswer)
        return answer

    def ask_stream(
        self, question: str, *, temperature: float = 0.0, max_tokens: int | None = None
    ) -> AsyncIterator[str | LiveAnswer]:
        """Text as it comes, and last the answer; frames may be stepped meanwhile."""
        return self._wire.told(self._steps.ask(question, temperature, max_tokens))

    async def finish(self) -> Geometry | None:
        """The remaining results of the map when no more pictures come."""
        geometry: Geometry | None = await self._wire.last(self._steps.finish())
        return geometry

    async def fork(self) -> "AsyncRemoteSession":
        """A session that goes on from here on its own; end it with `close`."""
        return AsyncRemoteSession(self._address, await self._wire.last(self._steps.fork()))

    async def save(self) -> None:
        """Let the server write it to its disk now; it does so by itself every few frames."""
        await self._wire.last(self._steps.save())

    @checked_arguments
    async def download(self, name: str, path: str | Path) -> None:
        """Write a result into a file: `poses.tum`, or whatever else the server has of a session."""
        await self._wire.last(self._steps.download(name, Path(path)))

    async def info(self) -> dict[str, Any]:
        """What the server says of it."""
        return dict(await self._wire.last(self._steps.describe()))

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know before its map and answers are trusted; where the video is unlike what a model knows, that too.

        As the server told it with the last frame, or with `finish`.
        """
        return tuple(self._steps.notes)

    async def detach(self) -> None:
        """End the connection; the session stays on the server, for `AsyncClient.session`."""
        await self._wire.last(self._steps.detach())

    async def close(self) -> None:
        """End the session on the server; ending twice is fine."""
        await self._wire.last(self._steps.close())

    async def __aenter__(self) -> "AsyncRemoteSession":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _AsyncWire:
    """Carries out steps in the running loop; those of several tasks take turns, from one thing told to the next."""

    def __init__(self, address: ServerAddress) -> None:
        self._address = address
        self._socket: ClientConnection | None = None
        self._lock = asyncio.Lock()

    async def last(self, steps: Steps[None]) -> Any:
        """Of what is told."""
        last = None
        async for piece in self.told(steps):
            last = piece
        return last

    async def told(self, steps: Steps[None]) -> AsyncIterator[Any]:
        """As it is told."""
        script = Script(steps)
        try:
            while True:
                async with self._lock:
                    told = await self._until_told(script)
                if told is None:
                    return
                yield told.piece
        finally:
            script.close()

    async def _until_told(self, script: Script) -> Told | None:
        """None at the end."""
        for effect in script:
            if isinstance(effect, Told):
                return effect
            with script.hearing():
                script.came = await self._carry_out(effect)
        return None

    async def _carry_out(self, effect: Effect) -> Any:
        match effect:
            case Call():
                return await asyncio.to_thread(self._address.call, effect)
            case Fetch():
                await asyncio.to_thread(self._address.fetch, effect)
            case Open():
                await self._open(effect.path)
            case Send():
                assert self._socket is not None
                with self._address.breaking():
                    await self._socket.send(effect.content)
            case Receive():
                assert self._socket is not None
                with self._address.breaking():
                    return await self._socket.recv()
            case Pause():
                await asyncio.sleep(effect.seconds)
            case Close():
                await self._close()
        return None

    async def _open(self, path: str) -> None:
        await self._close()
        options = self._address.socket_options
        from websockets.asyncio.client import connect

        with self._address.breaking():
            self._socket = await connect(self._address.socket_url(path), **options)

    async def _close(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()
