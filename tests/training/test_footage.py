"""Clips cut from filmed houses, against the tours that they are of."""

from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.errors import InputError, SettingError
from longtake.world.house import build_house
from longtake.world.scene import SceneSize
from longtake.world.seeds import Split, seeds
from longtake.world.tour import Tour, View
from longtake.world.walk import walk
from training import footage as footage_module
from training.footage import Footage, Walkers, in_groups, recoloured, walk_through

CPU = torch.device("cpu")
SIZE = (28, 42)
SEEDS = (0, 3)


@pytest.fixture(scope="module")
def tours() -> list[list[View]]:
    return [list(islice(Tour(seed=seed, width=42, height=28).views(), 12)) for seed in SEEDS]


def test_a_clip_is_what_the_tour_shows_at_those_frames(filmed: Footage, tours: list[list[View]]) -> None:
    frames = np.array([[0, 1, 2], [11, 9, 7], [4, 4, 4]])
    clips = filmed.take(np.array([0, 1, 0]), frames)
    for clip, (house, at) in enumerate(zip((0, 1, 0), frames, strict=True)):
        for place, frame in enumerate(at):
            view = tours[house][frame]
            image = (view.image * 255).round()
            assert torch.equal((clips.image[clip, place] * 255).round(), image)
            assert torch.equal(clips.depth[clip, place], view.depth.half().float())
            assert torch.equal(clips.world_from_camera[clip, place], view.world_from_camera.float())
            assert torch.equal(clips.intrinsics[clip, place], view.intrinsics)


def cut_frames(filmed: Footage, num_clips: int, num_frames: int, seed: int, stride: int) -> list[tuple[int, list[int]]]:
    """House and frames of each clip that is cut, found again by their poses."""
    clips = filmed.cut(num_clips, num_frames, np.random.default_rng(seed), longest_stride=stride)
    every = filmed.take(np.array([0, 1]), np.tile(np.arange(12), (2, 1)))
    same = (clips.world_from_camera[:, :, None, None] == every.world_from_camera).all(dim=(-1, -2))
    assert (same.sum(dim=(-1, -2)) == 1).all()
    found = []
    for clip in range(num_clips):
        house, frame = same[clip].nonzero()[:, 1:].unbind(dim=-1)
        assert torch.equal(clips.image[clip], every.image[house, frame])
        assert torch.equal(clips.depth[clip], every.depth[house, frame])
        assert torch.equal(clips.intrinsics[clip], every.intrinsics[house, frame])
        assert len(set(house.tolist())) == 1
        found.append((int(house[0]), frame.tolist()))
    return found


def test_cut_clips_begin_anywhere_skip_frames_and_run_both_ways(filmed: Footage) -> None:
    found = cut_frames(filmed, 200, 4, seed=1, stride=3)
    strides = [set(np.diff(frames).tolist()) for _, frames in found]
    assert all(len(of_clip) == 1 for of_clip in strides)
    assert set().union(*strides) == {-3, -2, -1, 1, 2, 3}
    assert {house for house, _ in found} == {0, 1}
    assert {min(frames) for _, frames in found} == set(range(9))
    assert {max(frames) for _, frames in found} >= {3, 11}


@settings(deadline=None, max_examples=20)
@given(num_frames=st.integers(2, 12), stride=st.integers(1, 9), seed=st.integers(0, 99))
def test_a_stride_gives_way_to_the_length_of_the_clip(filmed: Footage, num_frames: int, stride: int, seed: int) -> None:
    for _, frames in cut_frames(filmed, 3, num_frames, seed, stride):
        assert abs(frames[1] - frames[0]) <= min(stride, 11 // (num_frames - 1))


def test_a_clip_longer_than_what_was_filmed_is_refused(filmed: Footage) -> None:
    with pytest.raises(SettingError, match="clips of 12 frames at most, as filmed, but got 13"):
        filmed.cut(1, 13, np.random.default_rng(0), longest_stride=1)


def test_of_more_houses_than_there_is_room_for_the_first_are_filmed(filmed: Footage) -> None:
    small = Footage(1, 12, SIZE, CPU)
    assert small.has_room
    small.add(walk_through(SEEDS, 12))
    assert not small.has_room
    assert small.num_houses == 1
    here, there = (one.take(np.array([0]), np.arange(12)[None]) for one in (small, filmed))
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
    clips = filmed.take(np.array([0, 0]), np.tile(np.arange(6), (2, 1)))
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
    clips = filmed.take(np.array([0, 1] * 10), np.tile(np.arange(6), (20, 1)))
    pairs = torch.stack([recoloured(clips.image).flatten(1), clips.image.flatten(1)], dim=1)
    assert min(float(torch.corrcoef(pair)[0, 1]) for pair in pairs) > 0.9
