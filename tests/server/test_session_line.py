"""What a client sends, holds and sends again, against a server that is a few lines: no socket, no model, no waiting."""

import json
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from longtake.errors import BusyError, InputError, MemoryFullError
from longtake.server.address import ServerAddress
from longtake.server.exchange import Close, Effect, LostConnectionError, Open, Pause, Receive, Send, Steps
from longtake.server.held_frames import HeldFrames
from longtake.server.messages import BinaryMessage, Codec, MessageKind, unpack
from longtake.server.session_line import SessionLine

ADDRESS = ServerAddress("http://127.0.0.1:8765", None, patience_s=1.0)


class ScriptedServer:
    """Takes frames in order and answers what it is asked; `breaks` says before which of its replies it is lost."""

    def __init__(self, *, breaks: set[int] | None = None) -> None:
        self.taken: list[int] = []
        self.sent: list[int] = []
        self.asked: list[str] = []
        self.opened: list[str] = []
        self.replies: deque[str | bytes] = deque()
        self.now_s = 0.0
        self.is_away = False
        self.has_room, self.has_results = True, True
        self._breaks, self._num_replies, self._next_id = breaks or set(), 0, 1

    def event(self, type: str, **fields: Any) -> None:
        self.replies.append(json.dumps({"id": self._next_id, "type": type, **fields}))
        self._next_id += 1

    def carry_out(self, effect: Effect) -> str | bytes | None:
        match effect:
            case Open():
                self._open(effect.path)
            case Send(content=bytes() as content):
                self._take(unpack(content))
            case Send(content=str() as content):
                self._answer(json.loads(content))
            case Receive():
                return self._reply()
            case Pause():
                self.now_s += effect.seconds
            case Close():
                self.replies.clear()
        return None

    def _open(self, path: str) -> None:
        if self.is_away:
            raise LostConnectionError("nobody there")
        self.opened.append(path)
        client = path.partition("client=")[2].partition("&")[0]
        self.event("session.updated", session={"next_sequence": len(self.taken)}, client=client)

    def _take(self, frame: BinaryMessage) -> None:
        self.sent.append(frame.sequence)
        if not self.has_room:
            self.event("error", sequence=frame.sequence, code="busy", message="There is no room now.")
            return
        if frame.sequence > len(self.taken):
            self.event("error", sequence=frame.sequence, code="sequence_gap", message="Send them in order.")
            return
        if frame.sequence == len(self.taken):
            self.taken.append(frame.sequence)
        if self.has_results:
            self.replies.append(replace(frame, kind=MessageKind.GEOMETRY, codec=Codec.SAFETENSORS).pack())
        self.event("input_frame.ack", sequence=frame.sequence)

    def _answer(self, request: dict[str, Any]) -> None:
        self.asked.append(request["response"])
        for word in ("on", " the", " table"):
            self.event("response.output_text.delta", response=request["response"], text=word)

    def _reply(self) -> str | bytes:
        self._num_replies += 1
        if self._num_replies in self._breaks:
            raise LostConnectionError("broken")
        return self.replies.popleft()


def run(server: ScriptedServer, steps: Steps[Any]) -> Any:
    """The value of steps that a server is carried out against."""
    came: Any = None
    lost: LostConnectionError | None = None
    while True:
        try:
            effect = steps.send(came) if lost is None else steps.throw(lost)
        except StopIteration as end:
            return end.value
        came = lost = None
        try:
            came = server.carry_out(effect)
        except LostConnectionError as error:
            lost = error


def frame(sequence: int) -> BinaryMessage:
    return BinaryMessage(
        kind=MessageKind.FRAME, codec=Codec.RAW, sequence=sequence, time_us=0, payload=bytes([sequence])
    )


@pytest.fixture
def line_to() -> Callable[[ScriptedServer], SessionLine]:
    return lambda server: SessionLine(ADDRESS, "0" * 16, clock=lambda: server.now_s)


Line = Callable[[ScriptedServer], SessionLine]


@pytest.mark.parametrize("broken", range(1, 9))
def test_each_frame_is_taken_once_wherever_a_connection_breaks(line_to: Line, broken: int) -> None:
    server = ScriptedServer(breaks={broken, broken + 2})
    line = line_to(server)
    assert [run(server, line.result_of(frame(number))) for number in range(4)] == [bytes([n]) for n in range(4)]
    assert server.taken == [0, 1, 2, 3]


def test_frames_since_the_last_save_are_held_and_sent_again_to_a_server_that_lost_them(line_to: Line) -> None:
    server = ScriptedServer()
    line = line_to(server)
    for number in range(3):
        run(server, line.result_of(frame(number)))
    server.event("session.saved", next_sequence=2)
    run(server, line.result_of(frame(3)))
    del server.taken[2:]
    server.sent.clear()
    run(server, line.close())
    run(server, line.result_of(frame(4)))
    assert server.sent == [1, 2, 3, 4]
    assert server.opened[-1].endswith("&after=5")


def test_a_refused_frame_is_not_held(line_to: Line) -> None:
    server = ScriptedServer()
    line = line_to(server)
    run(server, line.result_of(frame(0)))
    server.replies.clear()
    server.event("error", sequence=1, code="memory_full", message="There is no room.")
    with pytest.raises(MemoryFullError, match="no room"):
        run(server, line.result_of(frame(1)))
    assert 0 in line._held
    assert 1 not in line._held


@pytest.mark.parametrize("disk_is_full", [False, True])
def test_of_held_frames_few_are_in_memory_and_all_come_back(
    monkeypatch: pytest.MonkeyPatch, disk_is_full: bool
) -> None:
    def full() -> None:
        raise OSError(28, "No space left on device")

    if disk_is_full:
        monkeypatch.setattr("tempfile.TemporaryFile", full)
    frames = [replace(frame(number), payload=bytes([number]) * (100 + number % 3)) for number in range(60)]
    held = HeldFrames(most_bytes=400)
    for number, one in enumerate(frames):
        assert held.hold(one) == one.pack()
        assert disk_is_full or held.num_resident_bytes <= 400
        held.let_go_before(number - 20 if number % 7 == 0 else 0)  # as saves come
    assert list(held.after(50)) == [one.pack() for one in frames[50:]]
    assert list(held.after(0)) == [one.pack() for one in frames[36:]]
    assert held._file is None or held._file.seek(0, 2) < 40 * 118


def test_frames_may_be_stepped_between_the_words_of_an_answer(line_to: Line) -> None:
    server = ScriptedServer()
    line = line_to(server)
    line.begin_answer("q")
    sending = line.question({"type": "response.create", "response": "q"})
    words = [run(server, line.next_event("q", sending))["text"]]
    for number in range(2):
        assert run(server, line.result_of(frame(number))) == bytes([number])
        words.append(run(server, line.next_event("q", sending))["text"])
    assert "".join(words) == "on the table"
    assert server.asked == ["q"]


def test_a_question_is_asked_again_over_a_new_connection(line_to: Line) -> None:
    server = ScriptedServer(breaks={2})
    line = line_to(server)
    line.begin_answer("q")
    assert run(server, line.next_event("q", line.question({"response": "q"})))["text"] == "on"
    assert server.asked == ["q", "q"]


def test_a_step_that_is_given_up_is_sent_with_the_next_connection(line_to: Line) -> None:
    server = ScriptedServer()
    line = line_to(server)
    run(server, line.result_of(frame(0)))
    steps = line.result_of(frame(1))
    assert isinstance(next(steps), Receive | Send)
    steps.close()
    server.replies.clear()
    assert run(server, line.result_of(frame(2))) == bytes([2])
    assert server.taken == [0, 1, 2]


def test_a_server_that_stays_away_is_waited_for_as_long_as_was_said(line_to: Line) -> None:
    server = ScriptedServer()
    server.is_away = True
    with pytest.raises(InputError, match="nobody there"):
        run(server, line_to(server).result_of(frame(0)))
    assert 1.0 < server.now_s < 1.5


def test_a_server_that_breaks_off_each_time_is_waited_for_no_longer(line_to: Line) -> None:
    """Such as one that a frame kills, and that is started again whenever it ends."""
    server = ScriptedServer(breaks=set(range(2, 1000, 2)))
    line = line_to(server)
    with pytest.raises(InputError, match=r"was waited for 1 s; start it again and repeat this call"):
        run(server, line.result_of(frame(0)))
    assert 1.0 <= server.now_s < 1.5
    assert len(server.opened) < 10


def test_what_broke_off_before_counts_for_no_later_frame(line_to: Line) -> None:
    server = ScriptedServer(breaks=set(range(4, 100, 4)))
    line = line_to(server)
    assert [run(server, line.result_of(frame(number))) for number in range(20)] == [bytes([n]) for n in range(20)]
    assert server.now_s <= 1.0


def test_a_frame_whose_result_the_server_lost_is_not_waited_for(line_to: Line) -> None:
    server = ScriptedServer()
    line = line_to(server)
    run(server, line.result_of(frame(0)))
    server.has_results = False
    assert run(server, line.result_of(frame(1))) is None
    server.has_results = True
    assert run(server, line.result_of(frame(2))) == bytes([2])


def test_where_an_earlier_frame_is_refused_all_from_it_on_are_sent_again(line_to: Line) -> None:
    server = ScriptedServer()
    line = line_to(server)
    for number in range(3):
        run(server, line.result_of(frame(number)))
    del server.taken[1:]
    run(server, line.close())
    server.has_room = False
    with pytest.raises(BusyError, match="no room now"):
        run(server, line.result_of(frame(3)))
    server.has_room = True
    assert run(server, line.result_of(frame(3))) == bytes([3])
    assert server.taken == [0, 1, 2, 3]
