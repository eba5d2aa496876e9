import pytest

from longtake.errors import BusyError, SettingError
from longtake.pipeline.admission import Admission, Demand


def test_fifty_sessions_fit_and_the_next_is_refused() -> None:
    admission = Admission(50_000_000)
    for number in range(50):
        admission.admit(f"s{number}", Demand(num_bytes=1_000_000))
    assert admission.num_bytes == admission.budget_bytes
    with pytest.raises(BusyError, match="Expected room for 1"):
        admission.admit("one more", Demand(num_bytes=1_000_000))
    assert admission.num_bytes == admission.budget_bytes
    admission.release("s7")
    admission.admit("one more", Demand(num_bytes=1_000_000))


def test_frames_beyond_the_time_of_the_worker_are_refused() -> None:
    admission = Admission(10**9, most_load=0.9, frame_s=lambda: 0.05)
    for number in range(9):
        admission.admit(f"s{number}", Demand(num_bytes=1, frames_per_s=2.0))
    assert admission.load == pytest.approx(0.9)
    with pytest.raises(BusyError, match="10% of the time for 2 frames/s"):
        admission.admit("one more", Demand(num_bytes=1, frames_per_s=2.0))
    admission.admit("patient", Demand(num_bytes=1))


def test_the_plan_of_a_session_takes_the_place_of_what_was_declared() -> None:
    admission = Admission(100)
    admission.admit("a", Demand(num_bytes=100, frames_per_s=1.0))
    admission.shrink("a", 40)
    admission.admit("b", Demand(num_bytes=60))
    assert admission.num_bytes == 100


def test_a_session_is_counted_once() -> None:
    admission = Admission(100)
    admission.admit("a", Demand(num_bytes=80))
    admission.admit("a", Demand(num_bytes=100))
    assert admission.num_bytes == 100
    admission.release("a")
    admission.release("a")
    assert admission.num_bytes == 0


@pytest.mark.parametrize(("budget", "load"), [(0, 0.9), (1, 0.0), (1, float("nan"))])
def test_budgets_without_a_meaning_are_refused(budget: int, load: float) -> None:
    with pytest.raises(SettingError):
        Admission(budget, most_load=load)
