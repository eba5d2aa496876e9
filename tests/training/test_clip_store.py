"""Clips for questions, cut from filmed houses, against the tours that they are of."""

from itertools import islice

import numpy as np
import pytest
import torch

from longtake.world.families import Family
from longtake.world.house import build_house
from longtake.world.tour import Tour, View, sightings
from training.clip_store import ClipStore, Cut
from training.walkers import Trip, walk_through

SIZE = (28, 42)


@pytest.fixture(scope="module")
def filmed() -> ClipStore:
    store = ClipStore(2, 12, SIZE, torch.device("cpu"))
    store.add(walk_through([Trip(Family.HOUSE, 0), Trip(Family.HOUSE, 3)], 12))
    return store


@pytest.fixture(scope="module")
def views() -> list[View]:
    return list(islice(Tour(seed=3, width=42, height=28).views(), 12))


def test_what_was_visible_is_what_the_tour_says(filmed: ClipStore, views: list[View]) -> None:
    frame = np.array([[1, 4, 7, 10]])
    (seen,) = filmed.seen_in(Cut(house=np.array([1]), frame=frame))
    want = sightings(Tour(seed=3, width=42, height=28), build_house(3), [views[at] for at in frame[0]])
    assert (seen.things, seen.rooms, seen.image_pixels) == (want.things, want.rooms, want.image_pixels)
    np.testing.assert_array_equal(seen.room, want.room)
    np.testing.assert_array_equal(seen.pixels, want.pixels)
    np.testing.assert_allclose(seen.column, want.column, rtol=1e-6)
    np.testing.assert_allclose(seen.timestamp_s, want.timestamp_s)
    assert seen.pixels.any()


def test_a_grid_shows_the_frames_that_it_is_said_to_show(filmed: ClipStore, views: list[View]) -> None:
    cut = Cut(house=np.array([1, 0]), frame=np.array([[0, 3, 6, 9], [1, 2, 3, 4]]))
    grids = np.array([[[0, 1], [2, 3], [2, 2]], [[0, 1], [2, 3], [0, 0]]], dtype=np.int32)
    pairs = filmed.pairs(cut, grids)
    assert pairs.shape == (2, 3, 2, 3, *SIZE)
    for grid, both in enumerate([[0, 3], [6, 9], [6, 6]]):
        for place, frame in enumerate(both):
            want = (views[frame].image * 255).round() / 255
            torch.testing.assert_close(pairs[0, grid, place], want)
    assert not torch.equal(pairs[0, 0], pairs[1, 0])


def test_clips_have_frame_rates_of_their_own_and_stay_within_the_film(filmed: ClipStore) -> None:
    cut = filmed.cut(200, 4, np.random.default_rng(0), (2, 10))
    stride = np.diff(cut.frame, axis=1)
    assert (stride == stride[:, :1]).all()
    assert set(stride[:, 0].tolist()) == {2, 3}
    assert cut.frame.min() == 0
    assert cut.frame.max() == 11
    assert set(cut.house.tolist()) == {0, 1}


def test_of_more_houses_than_there_is_room_for_the_first_are_filmed() -> None:
    store = ClipStore(1, 4, SIZE, torch.device("cpu"))
    assert store.has_room
    store.add(walk_through([Trip(Family.HOUSE, 0), Trip(Family.HOUSE, 3)], 4))
    assert (store.num_worlds, store.has_room) == (1, False)
