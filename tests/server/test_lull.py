import threading
import time
from contextlib import suppress

from longtake.server.lull import Lull
from longtake.server.view_thread import ViewThread

PATIENCE_S = 10.0


class Waiting:
    """Waits for a lull in a thread of its own."""

    def __init__(self, lull: Lull) -> None:
        self.over = threading.Event()
        threading.Thread(target=self._wait, args=[lull], daemon=True).start()

    def _wait(self, lull: Lull) -> None:
        lull.wait()
        self.over.set()


def test_others_may_compute_before_the_first_frame_and_during_a_step() -> None:
    lull = Lull(clock=lambda: 7.0)
    lull.wait()
    with lull.computing():
        lull.wait()


def test_after_a_step_others_wait_until_its_result_is_sent_and_the_next_frame_read() -> None:
    lull = Lull()
    with lull.computing():
        pass
    started_s = time.perf_counter()
    lull.wait()
    assert 0.002 < time.perf_counter() - started_s < PATIENCE_S  # without any next frame


def test_the_next_step_lets_others_go_on_at_once() -> None:
    lull = Lull(clock=lambda: 7.0)  # no time passes: only a step can end the wait
    with lull.computing():
        pass
    waiting = Waiting(lull)
    assert not waiting.over.wait(0.05)
    with lull.computing():
        assert waiting.over.wait(PATIENCE_S)


def test_a_step_that_fails_ends_too() -> None:
    lull = Lull(clock=lambda: 7.0)
    with suppress(ZeroDivisionError), lull.computing():
        raise ZeroDivisionError
    assert not Waiting(lull).over.wait(0.05)


def test_steps_that_follow_each_other_without_end_hold_nobody_up() -> None:
    now_s, lull = 0.0, Lull(clock=lambda: now_s)
    lull._closed_until_s = 1.0  # as if steps closed it again and again
    waiting = Waiting(lull)
    assert not waiting.over.wait(0.05)
    now_s = 0.03
    assert waiting.over.wait(PATIENCE_S)


def test_what_viewers_are_sent_is_made_when_it_is_a_good_time() -> None:
    may_go_on, done = threading.Event(), threading.Event()
    thread = ViewThread(lambda: assert_waited(may_go_on))
    thread.submit("a", done.set)
    assert not done.wait(0.05)
    may_go_on.set()
    assert done.wait(PATIENCE_S)
    thread.close()


def assert_waited(event: threading.Event) -> None:
    assert event.wait(PATIENCE_S)
