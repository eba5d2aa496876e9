import itertools

import psutil
import pytest
import torch

from longtake.errors import SettingError
from longtake.world.families import Family
from longtake.world.tour import Tour


@pytest.mark.by_hand
def test_memory_does_not_grow_over_a_tour_of_ten_thousand_frames() -> None:
    resident = psutil.Process().memory_info
    early = 0
    for view in Tour(seed=5, width=24, height=18).views():
        if view.index == 1_000:
            early = resident().rss
        if view.index == 10_000:
            break
    assert resident().rss - early < 10e6


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [({"width": 0}, "one pixel at least"), ({"height": -3}, "one pixel at least"), ({"fps": -1.0}, "more than 0")],
)
def test_impossible_tours_are_refused(changes: dict[str, float], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        Tour(**{"seed": 0, "width": 8, "height": 8, **changes})


def test_tours_of_other_sizes_show_the_same_walk() -> None:
    small, large = Tour(seed=4, width=16, height=12).views(), Tour(seed=4, width=64, height=48).views()
    for _, one, two in zip(range(5), small, large, strict=False):
        assert one.world_from_camera.equal(two.world_from_camera)
        assert one.depth.mean() == pytest.approx(float(two.depth.mean()), rel=0.1)
        assert one.intrinsics[0, 0] * 4 == pytest.approx(float(two.intrinsics[0, 0]))


@pytest.mark.parametrize("family", [Family.HOUSE, Family.TABLE])
def test_some_frames_alone_are_those_of_the_tour(family: Family) -> None:
    tour = Tour(seed=9, width=28, height=21, family=family)
    every = list(itertools.islice(tour.views(), 7))
    some = list(tour.views_at([2, 3, 6]))
    assert [view.index for view in some] == [2, 3, 6]
    for view in some:
        assert torch.equal(view.image, every[view.index].image)
        assert torch.equal(view.depth, every[view.index].depth)
        assert (view.timestamp_s, view.room) == (every[view.index].timestamp_s, every[view.index].room)
    assert torch.equal(tour.cameras(7), torch.stack([view.world_from_camera for view in every]))


def test_only_a_tour_of_a_house_has_one() -> None:
    with pytest.raises(SettingError, match="Only houses have rooms and things with names, but the family is clutter"):
        Tour(seed=0, width=8, height=8, family=Family.CLUTTER).house()
