"""Clips cut from filmed houses, against the tours that they are of."""

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from longtake.world.families import Family
from longtake.world.tour import Tour, View
from training.cutting import ClipFrames, Cutter
from training.footage import Footage, Reels
from training.walkers import Trip, walk_through

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
    clips = filmed.cut(100, 6, np.random.default_rng(1), cutter, np.arange)
    every = filmed.beginnings(12)
    same = (clips.world_from_camera[:, :, None, None] == every.world_from_camera).all(dim=(-1, -2))
    assert (same.sum(dim=(-1, -2)) == 1).all()
    house = same.any(dim=3).int().argmax(dim=2)
    assert torch.equal(house == house[:, :1], clips.is_known)
    assert not bool(clips.is_known.all())


def test_of_more_houses_than_there_is_room_for_the_first_are_filmed(filmed: Footage) -> None:
    small = Footage(1, 12, SIZE, CPU)
    assert small.has_room
    small.add(walk_through([Trip(Family.HOUSE, seed) for seed in SEEDS], 12))
    assert not small.has_room
    assert small.num_worlds == 1
    here, there = (one.take(of_walks([0], np.arange(12)[None])) for one in (small, filmed))
    assert torch.equal(here.image, there.image)
    assert torch.equal(here.depth, there.depth)
    assert filmed.has_room


def test_reels_hold_what_comes_in_the_order_that_was_fixed() -> None:
    wide, tall = (28, 42), (42, 28)
    reels = Reels([(wide, wide)] * 2 + [(tall, tall)] * 2 + [(wide, wide)] * 2, 2, CPU)
    assert reels.filmed() == {}
    for number in range(3):
        assert reels.has_room
        reels.add(walk_through([Trip(Family.CLUTTER, 2 * number), Trip(Family.OUTDOORS, 2 * number + 1)], 2))
    assert not reels.has_room
    assert reels.num_worlds == 6
    assert {key: (footage.size, footage.num_worlds) for key, footage in reels.filmed().items()} == {
        wide: (wide, 4),
        tall: (tall, 2),
    }
    clips = reels.filmed()[tall].beginnings(2)
    for clip, (family, seed) in enumerate([(Family.CLUTTER, 2), (Family.OUTDOORS, 3)]):
        view = next(Tour(seed=seed, width=28, height=42, family=family).views())
        assert torch.equal((clips.image[clip, 0] * 255).round(), (view.image * 255).round())
        assert torch.equal(clips.depth[clip, 0], view.depth.half().float())
        assert torch.equal(clips.intrinsics[clip, 0], view.intrinsics)


def test_pairs_see_a_place_again_or_another_world(filmed: Footage) -> None:
    cutter = Cutter(num_filmed=12, longest_stride=1, returning=0.0, strange=0.0)
    assert len(filmed.pairs(4, np.random.default_rng(0), cutter, strange=False).image) == 0
    strange = filmed.pairs(4, np.random.default_rng(0), cutter, strange=True)
    assert len(strange.image) == 2
    assert torch.equal(strange.is_known, torch.tensor([[True] * 4 + [False] * 4] * 2))
