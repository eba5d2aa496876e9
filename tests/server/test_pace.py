"""The pace of a server with real models: what it shares out, and what it costs beside them."""

import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest
from served import ASK, BOTH, MAP, QUESTION, Start, events_of, open_session, push, pushed, until

from longtake.server.machine import PushedFrame
from longtake.server.session import ServedSession
from longtake.server.spec import Delivery
from longtake.video.frame import VideoFrame

pytestmark = pytest.mark.extra


def jain(values: Sequence[float]) -> float:
    return sum(values) ** 2 / (len(values) * sum(value**2 for value in values))


class Stream:
    """Frames pushed one after another in a thread, as fast as they are taken."""

    def __init__(self, session: ServedSession, frames: Sequence[VideoFrame]) -> None:
        self._session, self._frames = session, frames
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Stream":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        for sequence in count(self._session.record.next_sequence):
            if self._stopped.is_set():
                return
            picture = pushed(self._frames[sequence % len(self._frames)], sequence).picture
            self._session.push(PushedFrame(sequence, sequence / 10, picture)).result(timeout=60)


class Asker:
    """Questions asked one after another in a thread, without a pause."""

    def __init__(self, session: ServedSession) -> None:
        self._session = session
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.first_text_s: list[float] = []

    def __enter__(self) -> "Asker":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        for number in count():
            if self._stopped.is_set():
                return
            answer = self._session.ask(f"{id(self)}-{number}", QUESTION).result(timeout=60)
            self.first_text_s.append(answer["timing"]["first_token_s"])


def frames_in(session: ServedSession, seconds: float) -> int:
    before = session.record.num_frames
    time.sleep(seconds)
    return session.record.num_frames - before


@pytest.mark.by_hand
def test_frames_keep_sixty_percent_of_their_rate_while_questions_are_answered(
    start: Start, frames: Sequence[VideoFrame]
) -> None:
    session = open_session(start(), replace(BOTH, memory_bytes=100_000_000))
    push(session, frames[:10])
    ratios = []
    with Stream(session, frames):
        for _ in range(5):
            alone = frames_in(session, 2.0)
            with Asker(session):
                time.sleep(0.1)
                ratios.append(frames_in(session, 2.0) / max(1, alone))
    print("frames beside questions, of those alone:", [round(ratio, 2) for ratio in ratios])
    assert statistics.median(ratios) >= 0.6
    assert len(events_of(session, "response.output_text.done")) >= 5


def test_a_question_is_answered_soon_while_four_sessions_stream(start: Start, frames: Sequence[VideoFrame]) -> None:
    engine = start()
    sessions = [open_session(engine, MAP) for _ in range(4)]
    asked = open_session(engine, ASK)
    push(asked, frames[:6])
    with Stream(sessions[0], frames), Stream(sessions[1], frames), Stream(sessions[2], frames):
        with Stream(sessions[3], frames), Asker(asked) as asker:
            until(lambda: all(session.record.num_frames > 8 for session in sessions), 60)
            before = [engine.scheduler.served(session.id).seconds for session in sessions]
            time.sleep(5.0)
            after = [engine.scheduler.served(session.id).seconds for session in sessions]
        served = [later - earlier for later, earlier in zip(after, before, strict=True)]
    print("first text after", statistics.median(asker.first_text_s), "s at the median; Jain index", jain(served))
    assert statistics.median(asker.first_text_s) < 2.0
    assert jain(served) >= 0.95


def test_eight_live_sessions_are_served_alike_and_drops_are_told(start: Start, frames: Sequence[VideoFrame]) -> None:
    engine = start()
    live = replace(MAP, delivery=Delivery.NEWEST)
    sessions = [open_session(engine, live) for _ in range(8)]
    num_frames = 16
    for sequence in range(num_frames):
        started_s = time.monotonic()
        for session in sessions:
            session.push(pushed(frames[sequence], sequence))
        time.sleep(max(0.0, 0.5 - (time.monotonic() - started_s)))
    for session in sessions:
        for done in session.under_way:
            done.result(timeout=60)
    taken = [session.record.num_frames for session in sessions]
    dropped = [len(events_of(session, "input_frame.dropped")) for session in sessions]
    print("taken", taken, "dropped", dropped, "Jain index", jain([float(number) for number in taken]))
    assert [one + other for one, other in zip(taken, dropped, strict=True)] == [num_frames] * 8
    assert jain([float(number) for number in taken]) >= 0.95


def test_sessions_come_and_go_without_a_trace(start: Start, frames: Sequence[VideoFrame]) -> None:
    engine = start()
    threads = threading.active_count()
    for number in range(60):
        session = open_session(engine, MAP)
        push(session, frames[: 1 + number % 3])
        engine.close(session.id).result(timeout=60)
    assert engine.admission.num_bytes == 0
    assert threading.active_count() == threads
    assert list(engine.settings.folder.iterdir()) == []
