"""Errands in other processes: in order, the same wherever they run, and honest when a process is ended."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import pytest
from sighted import job

from longtake.errors import InputError
from training import question_batches
from training.packing import Packed
from training.question_batches import QuestionWorkers, run_job


def same(a: Packed, b: Packed) -> bool:
    return all(
        np.array_equal(a.__getattribute__(name), b.__getattribute__(name)) for name in Packed.__dataclass_fields__
    )


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[QuestionWorkers]:
    """In threads, which need no time to start."""
    monkeypatch.setattr(question_batches, "one_thread_each", ThreadPoolExecutor)
    workers = QuestionWorkers(2)
    yield workers
    workers.close()


def test_errands_come_back_in_the_order_in_which_they_were_sent(workers: QuestionWorkers) -> None:
    for seed in range(6):
        workers.send(job(seed))
    for seed in range(6):
        assert same(workers.next(), run_job(job(seed)))


def test_other_seeds_ask_other_questions() -> None:
    assert not same(run_job(job(0)), run_job(job(1)))


def test_a_process_that_was_ended_is_said(workers: QuestionWorkers) -> None:
    broken: Future[Packed] = Future()
    broken.set_exception(BrokenProcessPool("gone"))
    workers._coming.append(broken)
    with pytest.raises(InputError, match="ended from outside"):
        workers.next()
