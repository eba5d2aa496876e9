"""The socket of a session as steps: opened again when it breaks; frames that the server may lose are held."""

import json
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from longtake.errors import InputError, LongtakeError
from longtake.server.address import ServerAddress, require_fine
from longtake.server.exchange import Close, LostConnectionError, Open, Pause, Receive, Send, Steps
from longtake.server.held_frames import HeldFrames
from longtake.server.messages import BinaryMessage, unpack

_AGAIN_S = 0.2


@dataclass(slots=True)
class _Sending:
    """A message, and on which connection it went out; None before that."""

    content: str | bytes
    connection: int | None = None


class SessionLine:
    """Frames and questions over one connection after another; what is for another question waits for it here."""

    def __init__(self, address: ServerAddress, id: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._address, self._id, self._clock = address, id, clock
        self._connection, self._is_open = 0, False
        self._last_event: int | None = None
        self._held = HeldFrames()
        self._num_lost, self._away_s = 0, 0.0  # since something last came that was waited for
        self._answers: dict[str, deque[dict[str, Any]]] = {}
        self.notes: Sequence[str] = ()
        """What the server said last of how far the session's models are to be trusted."""

    def close(self) -> Steps[None]:
        self._is_open = False
        yield Close()

    def result_of(self, frame: BinaryMessage) -> Steps[bytes | None]:
        """Send a frame, and return what the server makes of it; None where it took it and has its result no more.

        One that is refused is not held.
        """
        sending = _Sending(self._held.hold(frame))
        self._num_lost, self._away_s = 0, 0.0
        try:
            while True:
                message = yield from self._next_message(sending)
                if isinstance(message, BinaryMessage):
                    if message.sequence == frame.sequence:
                        return message.payload
                elif message.get("sequence") in self._held:
                    self._require_taken(message, frame.sequence)
                    if message["type"] == "input_frame.ack" and message["sequence"] == frame.sequence:
                        return None  # a result comes before this, where there is one
        except LongtakeError:
            self._held.let_go(frame.sequence)
            raise
        except GeneratorExit:  # given up by the caller: whether it was sent is not known, so the next connection is
            self._is_open = False
            raise

    @property
    def next_sequence(self) -> int:
        """Of the frame after all that are held; 0 where none is."""
        return self._held.next_sequence

    def send_again(self) -> Steps[None]:
        """Return when the server, which lost frames since, has taken all that are held."""
        last, sending = self._held.next_sequence - 1, _Sending(b"")  # they go out with the next connection
        self._num_lost, self._away_s = 0, 0.0
        yield from self.close()
        while True:
            message = yield from self._next_message(sending)
            if isinstance(message, dict) and message.get("sequence") in self._held:
                self._require_taken(message, last)
                if message["type"] == "input_frame.ack" and message["sequence"] == last:
                    return

    def _require_taken(self, event: Mapping[str, Any], sequence: int) -> None:
        """Raise what the server refused; where that is an earlier frame, the next call sends all from it on again."""
        if event["type"] == "error" and event["sequence"] != sequence:
            self._is_open = False
        require_fine(event)

    def begin_answer(self, response: str) -> None:
        """Keep all that is told of this answer until it is read."""
        self._answers[response] = deque()

    def end_answer(self, response: str) -> None:
        self._answers.pop(response, None)

    def next_event(self, response: str, sending: _Sending) -> Steps[dict[str, Any]]:
        """What is told next of an answer."""
        self._num_lost, self._away_s = 0, 0.0
        while not self._answers[response]:
            yield from self._next_message(sending)
        event = self._answers[response].popleft()
        require_fine(event)
        return event

    def question(self, request: Mapping[str, Any]) -> _Sending:
        """A question on its way; it is sent with its first event, and again where a connection broke."""
        return _Sending(json.dumps(request))

    def _next_message(self, sending: _Sending) -> Steps[BinaryMessage | dict[str, Any]]:
        """Send this if that is still to be done, and return what comes, over as many connections as it takes."""
        while True:
            try:
                if not self._is_open:
                    told = yield from self._connect()
                    self._let_held_count_as_sent(sending)
                    return told  # what is waited for may have come before it
                if self._is_to_be_sent(sending):
                    yield Send(sending.content)
                    sending.connection = self._connection
                return self._read((yield Receive()))
            except LostConnectionError as error:
                yield from self.close()
                yield from self._try_again(error)

    def _let_held_count_as_sent(self, sending: _Sending) -> None:
        if isinstance(sending.content, bytes):
            sending.connection = self._connection

    def _is_to_be_sent(self, sending: _Sending) -> bool:
        """A frame once, for those that are held go out with every connection; a question over each."""
        is_frame = isinstance(sending.content, bytes)
        return sending.connection is None if is_frame else sending.connection != self._connection

    def _connect(self) -> Steps[dict[str, Any]]:
        """Wait for the server, send it the held frames that it does not have; what it says of the session."""
        while True:
            tried_s = self._clock()
            try:
                return (yield from self._open())
            except LostConnectionError as error:
                self._away_s += self._clock() - tried_s
                yield from self._try_again(error)

    def _try_again(self, error: LostConnectionError) -> Steps[None]:
        """At once the first time; a server that is away, or breaks off each time, is waited for so long in all."""
        if self._away_s > self._address.patience_s:
            raise self._address.gone(error) from error
        if self._num_lost:
            yield Pause(_AGAIN_S)
            self._away_s += _AGAIN_S
        self._num_lost += 1

    def _open(self) -> Steps[dict[str, Any]]:
        client = secrets.token_hex(8)
        after = "" if self._last_event is None else f"&after={self._last_event}"
        yield Open(f"/v1/sessions/{self._id}/live?results=geometry&client={client}{after}")
        while True:
            message = self._read((yield Receive()))
            if isinstance(message, dict) and message.get("client") == client:
                break
        for frame in self._held.after(message["session"]["next_sequence"] - 1):  # whose result may not have come
            yield Send(frame)
        self._connection += 1
        self._is_open = True
        return message

    def _read(self, content: str | bytes) -> BinaryMessage | dict[str, Any]:
        if isinstance(content, bytes):
            return unpack(content)
        event: dict[str, Any] = json.loads(content)
        if not isinstance(event.get("id"), int):
            raise InputError("Expected events from the server, but what came is none; is it this version?")
        self._last_event = event["id"]
        if event["type"] == "session.saved":  # all before are safe on the server's disk; the last one's result is not
            self._held.let_go_before(event["next_sequence"] - 1)
        if event["type"] == "session.updated":
            self.notes = event.get("session", event).get("notes", self.notes)
        about = event.get("response", event.get("request"))
        if about in self._answers:
            self._answers[about].append(event)
        return event
