"""Processes that build worlds and go through them, ahead of the film that is made of what they bring."""

import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context

import numpy as np
import torch
from jaxtyping import Float32, Int64

from longtake.errors import InputError
from longtake.world.content import World
from longtake.world.families import ANY_SIZE, Family, build_world, route
from longtake.world.scene import SceneSize
from longtake.world.seeds import seeds, split_of

AT_ONCE = 2
"""Worlds drawn in one go; the same number each time, so that drawing is compiled once."""
HOUSE_SIZE = SceneSize(boxes=160, balls=10, tapers=34, rooms=6, things=24, materials=36)
"""Holds all houses but one in many hundreds; a scene of any world holds it."""


@dataclass(frozen=True, slots=True)
class Trip:
    """A world to be gone through, by family and seed."""

    family: Family
    seed: int


Group = Sequence[Trip]


@dataclass(frozen=True, slots=True)
class Walked:
    """A world and a way through it."""

    family: Family
    world: World
    world_from_camera: Float32[np.ndarray, "frames 4 4"]
    room: Int64[np.ndarray, " frames"]
    """Which room the camera is in."""


class Walkers:
    """Processes that build worlds and go through them, a group at a time, in the order of the groups."""

    def __init__(self, groups: Sequence[Group], num_frames: int, *, processes: int | None = None) -> None:
        """By default all processors but two work on them."""
        all_but_two = max(1, (os.cpu_count() or 2) - 2)
        self._pool = one_thread_each(processes or all_but_two)
        with interrupts_ignored():  # and so they are by the processes that now begin, which leave Ctrl-C to this one
            self._coming: deque[Future[list[Walked]]] = deque(
                self._pool.submit(walk_through, group, num_frames) for group in groups
            )

    def next_group(self, *, wait: bool) -> list[Walked] | None:
        """The next worlds; None if there are no more, or if they are not ready and are not waited for."""
        if not self._coming or not (wait or self._coming[0].done()):
            return None
        try:
            return self._coming.popleft().result()
        except BrokenProcessPool as error:
            raise InputError(
                "A process that builds worlds was ended from outside, perhaps for want of memory; go on with fewer."
            ) from error

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def in_groups(trips: Sequence[Trip]) -> list[Group]:
    """As many in each as are drawn in one go."""
    return [trips[start : start + AT_ONCE] for start in range(0, len(trips), AT_ONCE)]


def one_thread_each(processes: int) -> Executor:
    """Processes that share the processors; where each had as many threads as there are, they took far longer."""
    return ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    )


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """What begins meanwhile leaves Ctrl-C to this process."""
    if threading.current_thread() is not threading.main_thread():  # no other may say what is done with signals
        yield
        return
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def walk_through(group: Group, num_frames: int) -> list[Walked]:
    """These worlds, each with a way through it; one too large for the film gives way to the next of its split."""
    return [_walk(trip, num_frames) for trip in group]


def _walk(trip: Trip, num_frames: int) -> Walked:
    of_split = (build_world(trip.family, seed) for seed in seeds(split_of(trip.seed), start=trip.seed))
    size = HOUSE_SIZE if trip.family is Family.HOUSE else ANY_SIZE
    world = next(world for world in of_split if SceneSize.of(world) | size == size)
    steps = list(islice(route(trip.family, world), num_frames))
    poses = np.stack([step.world_from_camera for step in steps])
    rooms = np.array([step.room for step in steps], dtype=np.int64)
    return Walked(trip.family, world, poses.astype(np.float32), rooms)
