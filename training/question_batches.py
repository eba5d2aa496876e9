"""Questions about clips, asked, answered and packed in other processes, ahead of the steps that learn from them."""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

import numpy as np

from longtake.errors import InputError
from longtake.world.question_sampler import QuestionSampler
from longtake.world.things import Sightings
from longtake.world.visibility import until
from training.packing import Asked, Packed, Packer, Shape, together
from training.vocabulary import Vocabulary
from training.walkers import interrupts_ignored, one_thread_each

NUM_HELD = 1
"""Moments of each clip with a frame that waits for its partner."""
_FIRST_MOMENT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionJob:
    """What a worker process does: ask about some clips of one shape."""

    shape: Shape
    tokens_per_second: int
    moments: int
    questions: int
    """At each moment."""
    seed: tuple[int, ...]
    seen: Sequence[Sightings]
    """In the frames of each clip."""


def run_job(job: QuestionJob) -> Packed:
    """Questions of all kinds and answers alike, over all these clips."""
    rng = np.random.default_rng(job.seed)
    quiz = QuestionSampler(rng)
    packer = Packer(job.shape, Vocabulary(), job.tokens_per_second)
    return together([_packed(job, seen, quiz, packer, rng) for seen in job.seen])


def _packed(
    job: QuestionJob, seen: Sightings, quiz: QuestionSampler, packer: Packer, rng: np.random.Generator
) -> Packed:
    moments = any_moments(job.shape.num_frames, job.moments, rng)
    asked: list[Asked] = [
        (moment, question) for moment in moments for question in quiz.ask(until(seen, moment), job.questions)
    ]
    # in any order, as those that find no place are the last
    shuffled = [asked[at] for at in rng.permutation(len(asked))]
    held = [moment for moment in moments if moment % 2]
    return packer.pack(seen.timestamp_s.tolist(), held, shuffled, job.moments * job.questions)


def any_moments(num_frames: int, num_moments: int, rng: np.random.Generator) -> list[int]:
    """The end of a clip, one with a frame that waits for its partner, and others without, as numbers of frames seen."""
    odd = range(_FIRST_MOMENT + 1, num_frames, 2)
    even = range(_FIRST_MOMENT, num_frames, 2)
    others = rng.permutation(even)[: num_moments - 1 - NUM_HELD]
    return sorted([num_frames, *rng.permutation(odd)[:NUM_HELD].tolist(), *others.tolist()])


class QuestionWorkers:
    """Processes that run jobs, in the order in which they were sent."""

    def __init__(self, processes: int) -> None:
        self._pool = one_thread_each(processes)
        self._coming: deque[Future[Packed]] = deque()
        with interrupts_ignored():  # and so they are by the processes that now begin, which leave Ctrl-C to this one
            for _ in range(processes):
                self._pool.submit(Vocabulary)

    @property
    def num_coming(self) -> int:
        return len(self._coming)

    def send(self, job: QuestionJob) -> None:
        self._coming.append(self._pool.submit(run_job, job))

    def next(self) -> Packed:
        """What comes of the first job that was not asked for yet."""
        try:
            return self._coming.popleft().result()
        except BrokenProcessPool as error:
            raise InputError(
                "A process that asks questions was ended from outside, perhaps for want of memory; go on with fewer."
            ) from error

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
