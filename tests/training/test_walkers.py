"""Worlds are built and gone through elsewhere, in the order that was asked for."""

from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch

from longtake.errors import InputError
from longtake.world.families import Family, build_world, route
from longtake.world.house import build_house
from longtake.world.scene import SceneSize
from longtake.world.seeds import Split, seeds
from training import walkers as walkers_module
from training.walkers import Trip, Walkers, in_groups, one_thread_each, walk_through


def test_a_house_too_large_for_the_film_gives_way_to_the_next_of_its_split(monkeypatch: pytest.MonkeyPatch) -> None:
    large = max(range(4), key=lambda seed: SceneSize.of(build_house(seed)).boxes)
    num_boxes = SceneSize.of(build_house(large)).boxes
    monkeypatch.setattr(walkers_module, "HOUSE_SIZE", replace(walkers_module.HOUSE_SIZE, boxes=num_boxes - 1))
    smaller = next(s for s in seeds(Split.TRAINING, large) if SceneSize.of(build_house(s)).boxes < num_boxes)
    walked = walk_through([Trip(Family.HOUSE, large), Trip(Family.HOUSE, smaller)], 2)
    assert [one.world.seed for one in walked] == [smaller, smaller]


def test_a_film_of_any_world_holds_houses_too() -> None:
    any_size = walkers_module.ANY_SIZE
    assert any_size | walkers_module.HOUSE_SIZE == any_size


def test_each_world_is_gone_through_as_its_family_goes() -> None:
    for one in walk_through([Trip(Family.OUTDOORS, 1), Trip(Family.ROOMS, 2)], 3):
        world = build_world(one.family, one.world.seed)
        assert one.world.parts == world.parts
        poses = [step.world_from_camera for step in islice(route(one.family, world), 3)]
        assert np.array_equal(one.world_from_camera, np.stack(poses).astype(np.float32))


@pytest.mark.extra
def test_processes_that_share_the_processors_have_a_thread_each() -> None:
    with one_thread_each(1) as pool:
        assert pool.submit(torch.get_num_threads).result() == 1


@pytest.mark.extra
def test_two_processes_give_the_worlds_of_the_trips_in_order() -> None:
    trips = [Trip(Family.HOUSE, 4), Trip(Family.CLUTTER, 0), Trip(Family.HOUSE, 3)]
    walkers = Walkers(in_groups(trips), 3, processes=2)
    try:
        first, second = walkers.next_group(wait=True), walkers.next_group(wait=True)
        assert walkers.next_group(wait=True) is None
    finally:
        walkers.close()
    assert [len(first), len(second)] == [2, 1]
    assert [Trip(one.family, one.world.seed) for one in (*first, *second)] == trips


@pytest.fixture
def idle() -> Iterator[Walkers]:
    walkers = Walkers([], 3, processes=1)
    yield walkers
    walkers.close()


def test_nobody_waits_for_worlds_that_are_not_ready(idle: Walkers) -> None:
    assert idle.next_group(wait=False) is None
    coming: Future = Future()
    idle._coming.append(coming)
    assert idle.next_group(wait=False) is None
    walked = walk_through([Trip(Family.HOUSE, 0)], 2)
    coming.set_result(walked)
    assert idle.next_group(wait=False) is walked


def test_a_process_that_was_killed_is_told_in_a_sentence(idle: Walkers) -> None:
    broken: Future = Future()
    broken.set_exception(BrokenProcessPool())
    idle._coming.append(broken)
    with pytest.raises(InputError, match="ended from outside"):
        idle.next_group(wait=True)
