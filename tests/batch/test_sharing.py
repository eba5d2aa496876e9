"""How many workers share a GPU, on machines whose costs a test knows: added while that pays, taken back where not."""

from collections import Counter
from collections.abc import Callable

import pytest

from longtake.batch.job import Failed, Finished, Told, Watched
from longtake.batch.sharing import Growth, Sharing


@pytest.mark.parametrize(
    ("rates", "count"),
    [
        ([], 1),
        ([40.0], 2),
        ([40.0, 70.0], 3),
        ([40.0, 43.0], 1),  # less than a tenth more
        ([40.0, 44.0], 3),
        ([40.0, 70.0, 72.0], 2),
        ([40.0, 70.0, 30.0], 2),
        ([40.0, 70.0, 100.0], 4),
        ([40.0, 70.0, 100.0, 130.0], 4),  # no more fit
    ],
)
def test_a_further_worker_stays_where_all_together_are_faster(rates: list[float], count: int) -> None:
    assert Sharing(most=4, least_gain=0.1).next_count(rates) == count


class Machine:
    """Workers that map so many frames a second together as `rate` says; all tell twice a second how far they are."""

    def __init__(self, rate: Callable[[int], float], *, most: int = 8, num_gpus: int = 1) -> None:
        self._rate, self._now_s = rate, 0.0
        self._num_frames: Counter[int] = Counter()
        self.growth = Growth(Sharing(most=most), num_gpus, clock=lambda: self._now_s)

    def run(self, seconds: float, *, all_work: bool = True) -> int:
        """How many workers there are at the end."""
        for _ in range(int(2 * seconds)):
            self._now_s += 0.5
            number = self.growth.num_workers
            reports: list[Told] = []
            for worker in range(number):
                self._num_frames[worker] += round(0.5 * self._rate(number) / number)
                reports.append(Watched(name=f"w{worker}", num_frames=self._num_frames[worker]))
            self.growth.hear(reports, all_work=all_work)
        return self.growth.num_workers


def test_workers_that_do_not_hinder_each_other_grow_to_what_fits() -> None:
    assert Machine(lambda number: 1000.0 * number, most=5).run(200) == 5


def test_a_gpu_that_one_worker_fills_keeps_one() -> None:
    machine = Machine(lambda number: 1000.0)
    assert machine.run(20) == 1
    assert machine.run(10) == 2  # on trial
    assert machine.run(200) == 1


def test_the_last_worker_that_paid_stays() -> None:
    assert Machine(lambda number: min(1000.0 * number, 2900.0)).run(300) == 3
    assert Machine(lambda number: 1000.0 * number if number < 4 else 500.0).run(300) == 3


def test_gpus_of_a_machine_get_a_further_worker_together() -> None:
    machine = Machine(lambda number: 1000.0 * number, most=3, num_gpus=4)
    assert machine.run(10) == 4
    assert machine.run(15) == 8
    assert machine.run(100) == 12


def test_nothing_is_measured_while_workers_are_missing() -> None:
    machine = Machine(lambda number: 1000.0 * number)
    assert machine.run(300, all_work=False) == 1
    assert machine.run(15) == 1
    machine.run(1, all_work=False)
    assert machine.run(15) == 1  # begun anew
    assert machine.run(10) == 2


def test_memory_that_did_not_suffice_takes_a_worker_back_for_good() -> None:
    machine = Machine(lambda number: 1000.0 * number)
    assert machine.run(50) == 3
    machine.growth.hear([Failed(name="w1", problem="Its worker died (signal 9).")], all_work=True)
    assert machine.growth.num_workers == 3
    machine.growth.hear([Failed(name="w1", problem="OutOfMemoryError: CUDA out of memory.")], all_work=True)
    assert machine.run(200) == 2


def test_videos_that_end_while_it_is_measured_count_once() -> None:
    now_s = [0.0]
    growth = Growth(Sharing(most=2, measured_s=1.0), 1, clock=lambda: now_s[0])
    growth.hear([], all_work=True)
    reports: list[Told] = [Watched(name="a", num_frames=60), Finished(name="a", num_frames=100, summary={})]
    now_s[0] = 1.0
    growth.hear(reports, all_work=True)  # 100 frames a second
    assert growth.num_workers == 2
    growth.hear([], all_work=True)
    now_s[0] = 2.0
    growth.hear([Finished(name="b", num_frames=105, summary={})], all_work=True)
    assert growth.num_workers == 1
