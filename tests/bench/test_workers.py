"""Work is done by as many processes as are asked for, and what comes of it is in the order of the tasks."""

import os

import pytest
import torch

from longtake.bench.workers import Workers, open_workers

TASKS = [torch.full((2,), float(number)) for number in range(6)]


@pytest.mark.parametrize("processes", [1, 2])
def test_results_are_in_the_order_of_the_tasks_with_a_step_for_each(processes: int) -> None:
    steps: list[int] = []
    with open_workers(processes) as workers:
        found = workers.in_order(torch.neg, TASKS, steps.append)
        again = workers.in_order(torch.neg, TASKS[:1], steps.append)
    assert all(torch.equal(one, -task) for one, task in zip(found, TASKS, strict=True))
    assert torch.equal(again[0], -TASKS[0])
    assert steps == [1] * 7


def test_one_process_is_this_one_and_several_are_others_of_one_thread() -> None:
    with open_workers(1) as workers:
        assert workers == Workers(None)
        assert workers.in_order(_process, [0], lambda _: None) == [os.getpid()]
    with open_workers(2) as workers:
        assert os.getpid() not in workers.in_order(_process, [0, 1], lambda _: None)
        assert workers.in_order(_threads, [0], lambda _: None) == [1]


def _process(task: int) -> int:
    return os.getpid()


def _threads(task: int) -> int:
    return torch.get_num_threads()


def test_a_task_that_fails_leaves_the_others_alone() -> None:
    done: list[tuple[int, float]] = []
    with open_workers(2) as workers, pytest.raises(ZeroDivisionError):
        done.extend(workers.as_done(_inverse, [0, 1, 2]))
    assert sorted(done) == [(1, 1.0), (2, 0.5)]


def _inverse(number: int) -> float:
    return 1 / number
