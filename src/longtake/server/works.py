"""A session's frames and questions that wait or are under way, as works of the scheduler."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from longtake.pipeline.scheduler import Scheduler, Work
from longtake.server.problems import RequestError
from longtake.server.settings import Limits

OnEnd = Callable[["Future[Any]"], None]


@dataclass(frozen=True, slots=True, eq=False)
class UnderWay:
    """A frame or a question; one that has begun is not dropped, and frames wait until questions before them have."""

    work: Work
    begun: threading.Event


class Works:
    """All of one session; safe for threads."""

    def __init__(self, scheduler: Scheduler, limits: Limits) -> None:
        self._scheduler, self._limits = scheduler, limits
        self._frames: list[UnderWay] = []
        self._questions: dict[str, UnderWay] = {}
        self._last_frame: Future[Any] | None = None
        self._lock = threading.Lock()

    @property
    def is_busy(self) -> bool:
        """Whether anything waits or is under way."""
        with self._lock:
            return bool(self._all)

    @property
    def num_questions(self) -> int:
        with self._lock:
            return len(self._questions)

    @property
    def futures(self) -> "list[Future[Any]]":
        """Of all that wait or are under way."""
        with self._lock:
            return [one.work.done for one in self._all]

    def has_question(self, id: str) -> bool:
        with self._lock:
            return id in self._questions

    def submit_frame(
        self, make: Callable[[Sequence[threading.Event]], UnderWay], on_end: OnEnd, *, is_every: bool
    ) -> "Future[Any]":
        """A frame behind the others; unless every one is to be taken, in place of those that were not begun.

        It is made with what tells that each of the questions asked before it has begun.
        """
        with self._lock:
            if len(self._frames) >= self._limits.most_waiting_frames:
                raise RequestError(
                    "too_many_frames", "Too many frames wait; send one when another is taken.", status=429
                )
            frame = make([question.begun for question in self._questions.values()] if is_every else [])
            older = [] if is_every else [one.work for one in self._frames if not one.begun.is_set()]
            self._frames.append(frame)
            self._last_frame = frame.work.done
        for dropped in older:
            self._scheduler.cancel(dropped)
        frame.work.done.add_done_callback(lambda _: self._end_frame(frame))
        frame.work.done.add_done_callback(on_end)
        return self._scheduler.submit(frame.work)

    def submit_question(
        self, id: str, question: UnderWay, on_begin: Callable[[], None], on_end: OnEnd
    ) -> "Future[Any]":
        """A question about the frames that came before it; one of an id that is under way is not asked again."""
        most = self._limits.questions_at_once
        with self._lock:
            if id in self._questions:
                return self._questions[id].work.done
            if len(self._questions) >= most:
                raise RequestError(
                    "too_many_questions", f"Expected at most {most} questions at once; wait for an answer.", status=429
                )
            self._questions[id] = question
            after = self._last_frame
        on_begin()
        question.work.done.add_done_callback(lambda _: self._end_question(id))
        question.work.done.add_done_callback(on_end)
        return self._scheduler.submit(question.work, after=after)

    def cancel(self, id: str) -> bool:
        """Give up a question; False where it is not under way."""
        with self._lock:
            question = self._questions.get(id)
        if question is None:
            return False
        self._scheduler.cancel(question.work)
        return True

    def give_up(self) -> None:
        """Cancel all."""
        with self._lock:
            given_up = self._all
        for one in given_up:
            self._scheduler.cancel(one.work)

    @property
    def _all(self) -> list[UnderWay]:
        return [*self._frames, *self._questions.values()]

    def _end_frame(self, frame: UnderWay) -> None:
        with self._lock:
            self._frames.remove(frame)

    def _end_question(self, id: str) -> None:
        with self._lock:
            self._questions.pop(id).begun.set()
