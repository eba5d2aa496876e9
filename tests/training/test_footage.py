"""Clips cut from filmed houses, against the tours that they are of."""

from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from longtake.errors import InputError
from longtake.world.house import build_house
from longtake.world.scene import SceneSize
from longtake.world.seeds import Split, seeds
from longtake.world.tour import Tour, View
from longtake.world.walk import walk
from training import footage as footage_module
from training.cutting import ClipFrames, Cutter
from training.footage import Footage, Walkers, in_groups, recoloured, walk_through

CPU = torch.device("cpu")
SIZE = (28, 42)
SEEDS = (0, 3)


@pytest.fixture(scope="module")
def tours() -> list[list[View]]:
    return [list(islice(Tour(seed=seed, width=42, height=28).views(), 12)) for seed in SEEDS]


def of_walks(houses: list[int], frames: Any) -> ClipFrames:
    """These frames, each clip of one house."""
    frame = np.array(frames)
    walk = np.repeat(np.array(houses)[:, None], frame.shape[1], axis=1)
    return ClipFrames(walk=walk, frame=frame, is_known=np.ones_like(walk, dtype=np.bool_))


def test_a_clip_is_what_the_tour_shows_at_those_frames(filmed: Footage, tours: list[list[View]]) -> None:
    frames = np.array([[0, 1, 2], [11, 9, 7], [4, 4, 4]])
    clips = filmed.take(of_walks([0, 1, 0], frames))
    for clip, (house, at) in enumerate(zip((0, 1, 0), frames, strict=True)):
        for place, frame in enumerate(at):
            view = tours[house][frame]
            image = (view.image * 255).round()
            assert torch.equal((clips.image[clip, place] * 255).round(), image)
            assert torch.equal(clips.depth[clip, place], view.depth.half().float())
            assert torch.equal(clips.world_from_camera[clip, place], view.world_from_camera.float())
            assert torch.equal(clips.intrinsics[clip, place], view.intrinsics)


def test_the_beginnings_of_all_houses_are_their_first_frames(filmed: Footage) -> None:
    got, want = filmed.beginnings(3), filmed.take(of_walks([0, 1], [[0, 1, 2]] * 2))
    assert torch.equal(got.image, want.image)
    assert bool(got.is_known.all())


def test_cut_clips_are_frames_that_were_filmed(filmed: Footage) -> None:
    cutter = Cutter(num_filmed=12, longest_stride=3, returning=0.3, strange=0.4)
    clips = filmed.cut(100, 6, np.random.default_rng(1), cutter)
    every = filmed.beginnings(12)
    same = (clips.world_from_camera[:, :, None, None] == every.world_from_camera).all(dim=(-1, -2))
    assert (same.sum(dim=(-1, -2)) == 1).all()
    house = same.any(dim=3).int().argmax(dim=2)
    assert torch.equal(house == house[:, :1], clips.is_known)
    assert not bool(clips.is_known.all())


def test_of_more_houses_than_there_is_room_for_the_first_are_filmed(filmed: Footage) -> None:
    small = Footage(1, 12, SIZE, CPU)
    assert small.has_room
    small.add(walk_through(SEEDS, 12))
    assert not small.has_room
    assert small.num_worlds == 1
    here, there = (one.take(of_walks([0], np.arange(12)[None])) for one in (small, filmed))
    assert torch.equal(here.image, there.image)
    assert torch.equal(here.depth, there.depth)
    assert filmed.has_room


def test_a_house_too_large_for_the_scene_gives_way_to_the_next_of_its_split(monkeypatch: pytest.MonkeyPatch) -> None:
    large = max(range(4), key=lambda seed: SceneSize.of(build_house(seed)).boxes)
    num_boxes = SceneSize.of(build_house(large)).boxes
    monkeypatch.setattr(footage_module, "_SIZE", replace(footage_module._SIZE, boxes=num_boxes - 1))
    smaller = next(s for s in seeds(Split.TRAINING, large) if SceneSize.of(build_house(s)).boxes < num_boxes)
    walked = walk_through([large, smaller], 2)
    assert [one.house.seed for one in walked] == [smaller, smaller]


@pytest.mark.extra
def test_two_processes_give_the_houses_of_the_seeds_in_order() -> None:
    walkers = Walkers(in_groups([4, 0, 3]), 3, processes=2)
    try:
        first, second = walkers.next_group(wait=True), walkers.next_group(wait=True)
        assert walkers.next_group(wait=True) is None
    finally:
        walkers.close()
    walked = [*first, *second]
    assert [len(first), len(second)] == [2, 1]
    assert [one.house.seed for one in walked] == [4, 0, 3]
    for one in walked:
        assert one.house.parts == build_house(one.house.seed).parts
        poses = [step.world_from_camera for step in islice(walk(one.house, one.house.seed), 3)]
        assert np.array_equal(one.world_from_camera, np.stack(poses).astype(np.float32))


@pytest.fixture
def idle() -> Iterator[Walkers]:
    walkers = Walkers([], 3, processes=1)
    yield walkers
    walkers.close()


def test_nobody_waits_for_houses_that_are_not_ready(idle: Walkers) -> None:
    assert idle.next_group(wait=False) is None
    coming: Future = Future()
    idle._coming.append(coming)
    assert idle.next_group(wait=False) is None
    walked = walk_through([0], 2)
    coming.set_result(walked)
    assert idle.next_group(wait=False) is walked


def test_a_process_that_was_killed_is_told_in_a_sentence(idle: Walkers) -> None:
    broken: Future = Future()
    broken.set_exception(BrokenProcessPool())
    idle._coming.append(broken)
    with pytest.raises(InputError, match="ended from outside"):
        idle.next_group(wait=True)


def test_other_colours_stay_within_range_and_leave_the_truth_alone(filmed: Footage) -> None:
    clips = filmed.take(of_walks([0, 0], np.tile(np.arange(6), (2, 1))))
    before = clips.image.clone()
    torch.manual_seed(0)
    changed = recoloured(clips.image)
    assert torch.equal(clips.image, before)
    assert changed.shape == before.shape
    assert float(changed.amin()) >= 0
    assert float(changed.amax()) <= 1
    assert float((changed - before).abs().mean()) > 0.01
    assert not torch.allclose(changed[0], changed[1], atol=0.01)


def test_other_colours_show_the_same_things(filmed: Footage) -> None:
    clips = filmed.take(of_walks([0, 1] * 10, np.tile(np.arange(6), (20, 1))))
    pairs = torch.stack([recoloured(clips.image).flatten(1), clips.image.flatten(1)], dim=1)
    assert min(float(torch.corrcoef(pair)[0, 1]) for pair in pairs) > 0.9
