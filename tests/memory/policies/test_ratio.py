"""Ratio eviction against counting by hand, and the size it settles at."""

from typing import Any

import numpy as np
import pytest

from longtake.errors import SettingError
from longtake.memory.policies.ratio import Ratio
from longtake.memory.tokens import StreamLayout

LAYOUT = StreamLayout(num_layers=1, num_heads=1, head_dim=4, tokens_per_frame=5)


def test_the_least_attended_leave_and_the_part_is_rounded_down(play: Any) -> None:
    game = play(Ratio(special_tokens=1, drop=0.5), 1, 5, 1)
    game.look()
    game.judge([np.ones(5)])
    game.look()
    game.judge([np.asarray([0, 0, 0, 0, 0, 0, 3, 1, 2, 4])])
    assert game.ids == [[0, 1, 2, 3, 4, 5, 6, 9]]
    game.look()
    game.judge([np.asarray([0, 0, 0, 0, 0, 0, 9, 8, 0, 1, 5, 6, 7])])
    assert game.ids == [[0, 1, 2, 3, 4, 5, 6, 9, 10, 14]]


@pytest.mark.parametrize("drop", [0.01, 0.1, 0.3, 0.5, 0.99])
def test_size_settles_below_the_bound_and_touches_it_when_nothing_is_special(play: Any, drop: float) -> None:
    policy = Ratio(special_tokens=0, drop=drop)
    game = play(policy, 1, 5, 1)
    sizes = []
    for _ in range(1000 if drop < 0.1 else 60):
        game.look()
        game.judge([np.arange(len(game.tokens[0]))])
        sizes.append(game.total)
    assert max(sizes) == sizes[-1] == policy.most_tokens(LAYOUT)


@pytest.mark.parametrize("drop", [0.0, 1.0, -0.1, float("nan")])
def test_part_outside_zero_and_one_is_refused(drop: float) -> None:
    with pytest.raises(SettingError, match="between 0 and 1"):
        Ratio(special_tokens=5, drop=drop)


def test_negative_anchors_are_refused() -> None:
    with pytest.raises(SettingError, match="at least 0"):
        Ratio(special_tokens=5, anchors=-1)
