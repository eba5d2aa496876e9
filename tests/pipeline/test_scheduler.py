"""The scheduler under an injected clock: steps cost what the test says, and nothing waits for real time."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from longtake.errors import CancelledWorkError, InputError, SettingError
from longtake.pipeline.scheduler import Scheduler, Work, WorkKind


class Clock:
    """Stands still but for the costs of steps."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def steps(self, cost_s: float, count: int = 1) -> Iterator[int]:
        for number in range(count):
            self.now_s += cost_s
            yield number


@pytest.fixture
def clock() -> Clock:
    return Clock()


def frame(clock: Clock, lane: str, cost_s: float) -> Work:
    return Work(lane, WorkKind.FRAME, clock.steps(cost_s))


def jain(values: list[float]) -> float:
    return sum(values) ** 2 / (len(values) * sum(value**2 for value in values))


def serve(scheduler: Scheduler, clock: Clock, until_s: float, costs_s: dict[str, float]) -> Counter[str]:
    """Frames served by lane, of lanes that always have two waiting."""
    served = Counter[str]()
    waiting = Counter[str]()

    def ended(lane: str) -> None:
        waiting[lane] -= 1
        served[lane] += 1

    while clock.now_s < until_s:
        for lane, cost_s in costs_s.items():
            while waiting[lane] < 2:
                waiting[lane] += 1
                done = scheduler.submit(frame(clock, lane, cost_s))
                done.add_done_callback(lambda _, lane=lane: ended(lane))
        assert scheduler.serve_one()
    return served


def test_sessions_of_equal_frames_get_equal_frames(clock: Clock) -> None:
    served = serve(Scheduler(clock=clock), clock, 20.0, {f"s{number}": 0.02 for number in range(8)})
    assert jain([float(count) for count in served.values()]) >= 0.95


def test_sessions_of_unequal_frames_get_equal_time(clock: Clock) -> None:
    scheduler = Scheduler(clock=clock)
    costs_s = {"small": 0.01, "middle": 0.04, "large": 0.2}
    serve(scheduler, clock, 60.0, costs_s)
    assert jain([scheduler.served(lane).seconds for lane in costs_s]) >= 0.95


def test_none_of_fifty_sessions_starves(clock: Clock) -> None:
    served = serve(
        Scheduler(clock=clock), clock, 60.0, {f"s{number}": 0.005 * (1 + number % 5) for number in range(50)}
    )
    assert len(served) == 50
    assert min(served.values()) >= 10


def num_frames_beside(clock: Clock, question_steps_s: list[float], seconds: float) -> int:
    """Frames of 30 ms served in so many seconds, with endless questions of these steps."""
    scheduler, before = Scheduler(clock=clock), clock.now_s
    served = Counter[str]()
    asked = 0
    while clock.now_s < before + seconds:
        if question_steps_s and not scheduler.num_waiting(WorkKind.QUESTION):
            steps = (piece for cost_s in question_steps_s for piece in clock.steps(cost_s))
            scheduler.submit(Work(f"q{asked % 3}", WorkKind.QUESTION, steps))
            asked += 1
        if not scheduler.num_waiting(WorkKind.FRAME):
            done = scheduler.submit(frame(clock, "s", 0.03))
            done.add_done_callback(lambda _: served.update(["s"]))
        scheduler.serve_one()
    return served["s"]


@pytest.mark.parametrize("question", [[0.1] + [0.01] * 60, [0.02], [0.5], [0.004] * 500])
def test_frames_keep_sixty_percent_of_their_rate_while_questions_are_answered(
    clock: Clock, question: list[float]
) -> None:
    alone, beside = num_frames_beside(clock, [], 30.0), num_frames_beside(clock, question, 30.0)
    assert beside >= 0.6 * alone


def test_questions_get_their_share_beside_endless_frames(clock: Clock) -> None:
    scheduler = Scheduler(clock=clock, question_share=0.35)
    pieces: list[object] = []
    scheduler.submit(Work("a", WorkKind.QUESTION, clock.steps(0.01, 1000), pieces.append))
    while clock.now_s < 10.0:
        if scheduler.num_waiting(WorkKind.FRAME) < 2:
            scheduler.submit(frame(clock, "b", 0.03))
        scheduler.serve_one()
    assert 0.3 <= len(pieces) * 0.01 / 10 <= 0.36


def test_a_question_comes_before_frames_that_wait(clock: Clock) -> None:
    scheduler, order = Scheduler(clock=clock), list[str]()
    for number in range(3):
        done = scheduler.submit(frame(clock, "a", 0.03))
        done.add_done_callback(lambda _, number=number: order.append(f"frame {number}"))
    scheduler.submit(Work("b", WorkKind.QUESTION, clock.steps(0.01), lambda _: order.append("word")))
    while scheduler.serve_one():
        pass
    assert order[0] == "word"
    assert order[1:] == ["frame 0", "frame 1", "frame 2"]


def test_a_work_may_wait_for_another_of_any_end(clock: Clock) -> None:
    scheduler, order = Scheduler(clock=clock), list[str]()

    def failing() -> Iterator[None]:
        order.append("first")
        raise InputError("no")
        yield

    first = Work("a", WorkKind.FRAME, failing())
    second = Work("a", WorkKind.QUESTION, clock.steps(0.01), lambda _: order.append("second"))
    scheduler.submit(second, after=first.done)
    scheduler.submit(first)
    while scheduler.serve_one():
        pass
    assert order == ["first", "second"]
    assert isinstance(first.done.exception(), InputError)
    assert second.done.result() is None


def test_an_error_of_one_session_leaves_the_others(clock: Clock) -> None:
    scheduler = Scheduler(clock=clock)
    failing = scheduler.submit(Work("a", WorkKind.FRAME, (1 // zero for zero in [0])))
    good = scheduler.submit(frame(clock, "b", 0.01))
    while scheduler.serve_one():
        pass
    assert isinstance(failing.exception(), ZeroDivisionError)
    assert good.result() is None


def test_a_cancelled_work_is_closed_between_two_steps(clock: Clock) -> None:
    scheduler, ended = Scheduler(clock=clock), list[str]()

    def words() -> Iterator[str]:
        try:
            while True:
                yield "word"
        finally:
            ended.append("closed")

    work = Work("a", WorkKind.QUESTION, words())
    scheduler.submit(work)
    scheduler.serve_one()
    scheduler.cancel(work)
    assert scheduler.serve_one()
    assert not scheduler.serve_one()
    assert isinstance(work.done.exception(), CancelledWorkError)
    assert ended == ["closed"]


def test_a_work_that_was_not_begun_is_gone_at_once_when_it_is_cancelled(clock: Clock) -> None:
    scheduler = Scheduler(clock=clock)
    first, second = frame(clock, "a", 0.01), frame(clock, "a", 0.01)
    late = Work("a", WorkKind.QUESTION, clock.steps(0.01))
    scheduler.submit(first)
    scheduler.submit(second)
    scheduler.submit(late, after=first.done)
    for work in (second, late):
        scheduler.cancel(work)
        assert isinstance(work.done.exception(timeout=0), CancelledWorkError)
    assert scheduler.num_waiting(WorkKind.FRAME) == 1
    while scheduler.serve_one():
        pass
    assert first.done.result() is None
    assert scheduler.num_waiting(WorkKind.QUESTION) == 0


def test_who_waits_cannot_break_the_worker_by_cancelling_its_future(clock: Clock) -> None:
    scheduler = Scheduler(clock=clock)
    done = scheduler.submit(frame(clock, "a", 0.01))
    assert not done.cancel()
    while scheduler.serve_one():
        pass
    assert done.result() is None


def test_a_thread_serves_what_other_threads_submit() -> None:
    names = list[str]()
    with Scheduler() as scheduler:
        scheduler.start()

        def steps() -> Iterator[None]:
            names.append(threading.current_thread().name)
            yield

        for _ in range(3):
            scheduler.submit(Work("a", WorkKind.FRAME, steps())).result(timeout=10)
    assert names == ["longtake-worker"] * 3


def test_closing_cancels_what_waits_and_refuses_what_comes(clock: Clock) -> None:
    scheduler = Scheduler(clock=clock)
    waiting = scheduler.submit(frame(clock, "a", 0.01))
    scheduler.close()
    assert isinstance(waiting.exception(), CancelledWorkError)
    late: Future[None] = scheduler.submit(frame(clock, "a", 0.01))
    assert isinstance(late.exception(timeout=1), InputError)


def test_what_a_lane_got_is_told_until_it_is_forgotten(clock: Clock) -> None:
    scheduler = Scheduler(clock=clock)
    scheduler.submit(frame(clock, "a", 0.03))
    while scheduler.serve_one():
        pass
    assert scheduler.served("a").num_frames == 1
    assert scheduler.mean_frame_s > 0
    scheduler.forget("a")
    assert scheduler.served("a").num_frames == 0


def test_a_share_outside_of_its_range_is_refused() -> None:
    with pytest.raises(SettingError, match="between 0 and 1"):
        Scheduler(question_share=1.0)
