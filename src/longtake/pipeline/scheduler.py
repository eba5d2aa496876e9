"""One worker thread for the network, shared by the frames and questions of many sessions.

frames of a, b, c ────▶ fair by measured time ─┐
                                               ├─▶ one step at a time: a frame, or a word of an answer
questions of a, b, c ─▶ fair by measured time ─┘   questions first, with at most a share of the time while frames wait
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from longtake.errors import CancelledWorkError, InputError, SettingError
from longtake.pipeline.fair_queue import FairQueue

QUESTION_SHARE = 0.25
"""Of the time, that questions get while frames wait."""
_SMOOTHING = 0.1
"""How much the newest frame weighs in what one takes."""


class WorkKind(StrEnum):
    """What a piece of work is for."""

    FRAME = "frame"
    QUESTION = "question"


def ignore_piece(_: object) -> None:
    """For who needs no more than the end of a work."""


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """Steps in the worker's thread for one session; `done` gets what they return, or the error that ended them."""

    lane: str
    kind: WorkKind
    steps: Iterator[object]
    """Each `next` is a step, between two of which others are served."""
    on_piece: Callable[[object], None] = ignore_piece
    """Called in the worker's thread with what each step gives."""
    done: "Future[Any]" = field(default_factory=Future)
    cancelled: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Served:
    """What a lane got so far."""

    num_frames: int = 0
    num_questions: int = 0
    seconds: float = 0.0


class Scheduler:
    """Serves works step by step; `start` does so in a thread, `serve_one` in the caller's.

    with Scheduler() as scheduler:
        scheduler.start()
        scheduler.submit(Work("a", WorkKind.FRAME, steps)).result()
    """

    def __init__(
        self, *, question_share: float = QUESTION_SHARE, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """`clock` gives seconds and measures what steps take."""
        if not 0 < question_share < 1:
            raise SettingError(
                f"Expected the questions' share of the time between 0 and 1, but got {question_share:g}."
            )
        self._share, self._clock = question_share, clock
        self._queues = {kind: FairQueue[Work]() for kind in WorkKind}
        self._question_lead_s = 0.0
        self._frame_s = 0.0
        self._spent_s: dict[Work, float] = {}
        self._current: Work | None = None
        self._served: dict[str, Served] = {}
        self._leaving: set[str] = set()
        self._num_served = dict.fromkeys(WorkKind, 0)
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Serve in a thread of its own until `close`."""
        assert self._thread is None
        self._thread = threading.Thread(target=self._serve, name="longtake-worker", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End after the current step; what waits is cancelled."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        for queue in self._queues.values():
            while len(queue):
                self._end(queue.peek(self._frame_s)[1])

    def __enter__(self) -> "Scheduler":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, work: Work, after: "Future[Any] | None" = None) -> "Future[Any]":
        """Let it wait for its turn; with `after` only once that has ended, however it did."""
        work.done.set_running_or_notify_cancel()  # from here on only the scheduler ends it
        if after is None or after.done():
            self._put(work)
        else:
            after.add_done_callback(lambda _: self._put(work))
        return work.done

    def cancel(self, work: Work) -> None:
        """End it now if it was not begun, else before its next step; `done` gets a CancelledWorkError."""
        with self._changed:
            if work.cancelled.is_set() or work.done.done():
                return
            work.cancelled.set()
            if work is self._current or work in self._spent_s:
                return
            self._queues[work.kind].take(work.lane, work)
        self._end(work)

    def served(self, lane: str) -> Served:
        with self._changed:
            return self._served.get(lane, Served())

    def num_waiting(self, kind: WorkKind) -> int:
        with self._changed:
            return len(self._queues[kind])

    @property
    def num_served(self) -> dict[WorkKind, int]:
        """Works that ended so far, of all lanes, those forgotten included."""
        with self._changed:
            return dict(self._num_served)

    @property
    def mean_frame_s(self) -> float:
        """What a frame takes, of late; 0 before the first."""
        with self._changed:
            return self._frame_s

    def forget(self, lane: str) -> None:
        """Let go of what is known of a lane whose session has ended, once the last of its works has."""
        with self._changed:
            self._leaving.add(lane)
            self._drop_left(lane)

    def serve_one(self) -> bool:
        """Do one step of the work whose turn it is; False where none waits."""
        with self._changed:
            queue = self._next_queue()
            if queue is None:
                return False
            _, work = queue.peek(self._frame_s)
            self._current = work
        if work.cancelled.is_set():
            self._end(work)
            return True
        started_s = self._clock()
        has_ended = self._step(work)
        self._pay(queue, work, self._clock() - started_s, has_ended=has_ended)
        return True

    def _serve(self) -> None:
        while True:
            with self._changed:
                while not self._is_closed and self._next_queue() is None:
                    self._changed.wait()
                if self._is_closed:
                    return
            self.serve_one()

    def _put(self, work: Work) -> None:
        with self._changed:
            if work.cancelled.is_set():
                return
            if not self._is_closed:
                self._queues[work.kind].put(work.lane, work)
                self._changed.notify_all()
                return
        _close(work)
        work.done.set_exception(InputError("This is shutting down; ask again when it is back."))

    def _next_queue(self) -> FairQueue[Work] | None:
        frames, questions = self._queues[WorkKind.FRAME], self._queues[WorkKind.QUESTION]
        if len(questions) and (not len(frames) or self._question_lead_s <= 0):
            return questions
        return frames if len(frames) else None

    def _step(self, work: Work) -> bool:
        """Whether that was the last one."""
        try:
            work.on_piece(next(work.steps))
        except StopIteration as end:
            work.done.set_result(end.value)
            return True
        except BaseException as error:  # noqa: BLE001 - handed to who waits, whatever it is; others are served on
            work.done.set_exception(error)
            return True
        return False

    def _pay(self, queue: FairQueue[Work], work: Work, seconds: float, *, has_ended: bool) -> None:
        with self._changed:
            self._current = None
            queue.pay(work.lane, seconds)
            before = self._served.get(work.lane, Served())
            self._served[work.lane] = Served(
                before.num_frames + (has_ended and work.kind is WorkKind.FRAME),
                before.num_questions + (has_ended and work.kind is WorkKind.QUESTION),
                before.seconds + seconds,
            )
            self._shift_lead(work.kind, seconds)
            self._spent_s[work] = self._spent_s.get(work, 0.0) + seconds
            if has_ended:
                queue.take(work.lane, work)
                self._num_served[work.kind] += 1
                self._learn(work.kind, self._spent_s.pop(work))
                self._drop_left(work.lane)

    def _drop_left(self, lane: str) -> None:
        if lane not in self._leaving or any(queue.waiting(lane) for queue in self._queues.values()):
            return
        self._leaving.remove(lane)
        self._served.pop(lane, None)
        for queue in self._queues.values():
            queue.forget(lane)

    def _learn(self, kind: WorkKind, seconds: float) -> None:
        """What a frame takes, the quantum of all lanes."""
        if kind is WorkKind.FRAME:
            weight = _SMOOTHING if self._frame_s else 1.0
            self._frame_s += weight * (seconds - self._frame_s)

    def _shift_lead(self, kind: WorkKind, seconds: float) -> None:
        """Questions pay for time while frames wait; frames pay it back, and give no more credit than one of them."""
        if kind is WorkKind.FRAME:
            self._question_lead_s = max(-self._frame_s, self._question_lead_s - seconds / (1 - self._share))
        elif len(self._queues[WorkKind.FRAME]):
            self._question_lead_s += seconds / self._share

    def _end(self, work: Work) -> None:
        """Close what will not be served any more."""
        with self._changed:
            self._current = None if self._current is work else self._current
            self._queues[work.kind].take(work.lane, work)
            self._spent_s.pop(work, None)
            self._drop_left(work.lane)
        _close(work)
        work.done.set_exception(CancelledWorkError("This was given up before its end; ask again."))


def _close(work: Work) -> None:
    if isinstance(work.steps, Generator):
        work.steps.close()
