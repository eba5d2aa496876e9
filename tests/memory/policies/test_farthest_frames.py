"""Whole frames leave, those resembled most first."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.errors import BudgetError, SettingError
from longtake.memory.policies.farthest_frames import FarthestFrames, descriptors, without_nearest
from longtake.memory.tokens import Tokens


def test_descriptor_is_the_mean_normalised_key_whatever_the_order() -> None:
    keys = torch.randn(6, 2, 4, generator=torch.Generator().manual_seed(0))
    tokens = Tokens.of_frames([3, 7], 3, np.arange(6))
    got = descriptors(keys, tokens, 3)
    want = (keys / keys.norm(dim=-1, keepdim=True)).reshape(2, 3, 8).mean(1)
    torch.testing.assert_close(got, want)
    order = np.asarray([4, 0, 5, 2, 1, 3])
    assert torch.equal(descriptors(keys[torch.from_numpy(order)], tokens.take(order), 3), got)


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=3, max_size=9), st.integers(0, 6), st.data())
def test_frames_leave_one_after_another_nearest_first(places: list[int], num_leaving: int, data: st.DataObject) -> None:
    may_leave = np.asarray([data.draw(st.booleans()) for _ in places[1:]] + [False])
    num_leaving = min(num_leaving, int(may_leave.sum()))
    left = list(range(len(places)))
    for _ in range(num_leaving):
        nearest = {
            frame: min(abs(places[frame] - places[other]) for other in left if other != frame)
            for frame in left
            if may_leave[frame]
        }
        left.remove(min(nearest, key=lambda frame: (nearest[frame], frame)))
    points = np.asarray(places, dtype=np.float32)
    distances = np.abs(points[:, None] - points[None])
    stays = without_nearest(distances, num_leaving, may_leave=may_leave)
    assert np.flatnonzero(stays).tolist() == left


def test_frame_seen_twice_is_forgotten_once_and_the_older_leaves(play: Any) -> None:
    game = play(FarthestFrames(num_frames=4), 1, 3)
    views = torch.eye(4)[:, None, None].expand(4, 3, 2, 4)
    for view in (0, 1, 2, 1, 3):
        game.look(1, [views[view]])
        game.judge()
    assert sorted(set(game.tokens[0].frame.tolist())) == [0, 2, 3, 4]


def test_budgets_without_room_and_negative_anchors_are_refused() -> None:
    with pytest.raises(BudgetError, match="smallest that works is 3"):
        FarthestFrames(num_frames=2, anchors=2)
    for options in ({"anchors": -1}, {"recent": 0}):
        with pytest.raises(SettingError, match="but got"):
            FarthestFrames(num_frames=4, **options)
