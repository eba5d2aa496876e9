"""What a client of a server does, as steps that a thread or a task carries out; each tells its result last."""

import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from longtake.api.pictures import Picture, as_rgb, missing_time, time_of
from longtake.errors import CancelledWorkError, InputError
from longtake.server.address import ServerAddress
from longtake.server.exchange import Call, Fetch, Steps, Told, UnknownSessionError
from longtake.server.messages import BinaryMessage, Codec, MessageKind
from longtake.server.results import answer_of, geometry_of
from longtake.server.session_line import SessionLine


def open_session(
    *,
    map: str | None,
    ask: str | None,
    memory: str | int | None,
    share: float,
    ask_fps: float,
    fps: float | None,
    max_tokens: int,
    loops: bool,
    title: str | None,
) -> Steps[None]:
    """Tells the description of a session that frames are pushed to."""
    asked = {
        "model": map,
        "language": ask,
        "memory": memory,
        "share": share,
        "ask_fps": ask_fps,
        "fps": fps,
        "max_tokens": max_tokens,
        "loops": loops,
        "title": title,
    }
    yield Told(json.loads((yield Call("POST", "/sessions", asked))))


def find_session(id: str) -> Steps[None]:
    """Tells the description of a session that was opened before."""
    try:
        said = yield Call("GET", f"/sessions/{quote(id, safe='')}")
    except UnknownSessionError as error:
        raise UnknownSessionError(
            f"There is no session {id!r:.80} on the server; client.sessions() lists all."
        ) from error
    yield Told(json.loads(said))


def list_sessions() -> Steps[None]:
    yield Told(list(json.loads((yield Call("GET", "/sessions")))["sessions"]))


def list_models() -> Steps[None]:
    yield Told(list(json.loads((yield Call("GET", "/models")))["data"]))


class SessionSteps:
    """One video on a server."""

    def __init__(self, address: ServerAddress, description: Mapping[str, Any]) -> None:
        self.id: str = description["id"]
        self._needs_times = description["language"] is not None
        self._next: int = description["next_sequence"]
        self._line = SessionLine(address, self.id)
        self._line.notes = description["notes"]
        self._is_closed = False

    @property
    def notes(self) -> Sequence[str]:
        """What was heard last of how far the session's models are to be trusted with this video."""
        return self._line.notes

    def step(self, picture: Picture, timestamp_s: float | None) -> Steps[None]:
        """One that is given up by its caller is sent nonetheless, with whatever comes next."""
        time_s = time_of(picture, timestamp_s)
        if time_s is None and self._needs_times:
            raise missing_time(picture, "step(picture, 0.5)")
        frame = _frame_message(picture, self._next, float(self._next) if time_s is None else time_s)
        try:
            payload = yield from self._line.result_of(frame)
        except GeneratorExit:
            self._next += 1
            raise
        self._next += 1
        if payload is None:
            raise InputError(
                f"The server took frame {frame.sequence}, but lost what became known with it; the session goes on with "
                "the next frame."
            )
        yield Told(geometry_of(payload) if payload else None)

    def ask(self, question: str, temperature: float, max_tokens: int | None) -> Steps[None]:
        """Tells text as it comes, and last the answer."""
        id = f"ask-{secrets.token_hex(8)}"
        sending = self._line.question(
            {
                "type": "response.create",
                "request": id,
                "response": id,
                "question": question,
                "temperature": temperature,
                "max_tokens": max_tokens,
            }
        )
        self._line.begin_answer(id)
        heard = told = ""
        try:
            while True:
                event = yield from self._line.next_event(id, sending)
                match event["type"]:
                    case "response.created":
                        heard = ""
                    case "response.output_text.delta":
                        heard += event["text"]
                        if len(heard) > len(told):
                            yield Told(heard[len(told) :])
                            told = heard
                    case "response.output_text.done":
                        yield Told(answer_of(event))
                        return
                    case "response.cancelled":
                        raise CancelledWorkError("The question was given up; ask again.")
        finally:
            self._line.end_answer(id)

    def _be_whole(self) -> Steps[None]:
        """Let the server have all frames first, before something is made of them: it may have been killed since."""
        if self._line.next_sequence:
            description = json.loads((yield Call("GET", f"/sessions/{self.id}")))
            if description["next_sequence"] < self._line.next_sequence:
                yield from self._line.send_again()

    def finish(self) -> Steps[None]:
        yield from self._be_whole()
        payload = yield Call("POST", f"/sessions/{self.id}/finish")
        self._line.notes = json.loads((yield Call("GET", f"/sessions/{self.id}")))["notes"]
        yield Told(geometry_of(payload) if payload else None)

    def fork(self) -> Steps[None]:
        """Tells the description of another session."""
        yield from self._be_whole()
        yield Told(json.loads((yield Call("POST", f"/sessions/{self.id}/fork"))))

    def save(self) -> Steps[None]:
        yield from self._be_whole()
        yield Call("POST", f"/sessions/{self.id}/save")
        yield Told(None)

    def download(self, name: str, path: Path) -> Steps[None]:
        yield from self._be_whole()
        yield Fetch(f"/sessions/{self.id}/{name}", path)
        yield Told(None)

    def describe(self) -> Steps[None]:
        return find_session(self.id)

    def detach(self) -> Steps[None]:
        yield from self._line.close()
        yield Told(None)

    def close(self) -> Steps[None]:
        """Ending twice is fine."""
        yield from self._line.close()
        if not self._is_closed:
            yield Call("DELETE", f"/sessions/{self.id}")
            self._is_closed = True
        yield Told(None)


def _frame_message(picture: Picture, sequence: int, time_s: float) -> BinaryMessage:
    pixels = as_rgb(picture)
    height, width, _ = pixels.shape
    return BinaryMessage(
        kind=MessageKind.FRAME,
        codec=Codec.RAW,
        sequence=sequence,
        time_us=round(time_s * 1e6),
        fields={"width": width, "height": height, "time_s": time_s},
        payload=pixels.tobytes(),
    )
