"""The managed policy: its score, its statistic, its budget."""

import math
from typing import Any

import numpy as np
import pytest

from longtake.errors import BudgetError, SettingError
from longtake.memory.policies.budgeted import Managed, unevenness
from longtake.memory.tokens import StreamLayout

LAYOUT = StreamLayout(num_layers=4, num_heads=2, head_dim=8, tokens_per_frame=10)


def test_mass_and_exposure_are_relative_to_the_mean_and_fade(play: Any) -> None:
    game = play(Managed(num_tokens=1000, special_tokens=0, decay=0.5), 1, 2, num_heads=3)
    game.look()
    game.judge([np.asarray([4.0, 2.0])])
    np.testing.assert_allclose(game.tokens[0].token_stats, [[4 / 3, 1], [2 / 3, 1]], rtol=1e-6)
    game.look()
    game.judge([np.asarray([3.0, 0.0, 1.5, 1.5])])
    np.testing.assert_allclose(game.tokens[0].token_stats, [[2 / 3 + 2, 1.5], [1 / 3, 1.5], [1, 1], [1, 1]], rtol=1e-6)


def test_clip_of_two_frames_counts_as_two(play: Any) -> None:
    game = play(Managed(num_tokens=1000, special_tokens=0), 1, 2, num_heads=1)
    game.look(2)
    game.judge([np.asarray([1.0, 1.0, 1.0, 1.0])], num_frames=2)
    assert game.tokens[0].token_stats.tolist() == [[2.0, 2.0]] * 4


def test_lowest_average_leaves_though_another_received_less_just_now(play: Any) -> None:
    game = play(Managed(num_tokens=5, special_tokens=0, special_frames=0), 1, 2, num_heads=1)
    for attention_mass in ([1, 1], [1, 0.5, 0.4, 0.1], [0.4, 0.5, 0.1, 0.2, 0.4, 0.4]):
        game.look()
        game.judge([np.asarray(attention_mass)])
    assert game.ids == [[0, 1, 2, 4, 5]]


def test_of_equal_scores_the_earlier_leaves(play: Any) -> None:
    game = play(Managed(num_tokens=5, special_tokens=0, special_frames=0), 1, 2, num_heads=1)
    for count in (2, 4, 6):
        game.look()
        game.judge([np.full(count, 2 / count)])
    assert game.ids == [[0, 1, 3, 4, 5]]


def test_unevenness_has_no_unit_and_is_zero_where_all_is_equal() -> None:
    values = np.asarray([1.0, 2.0, 6.0], dtype=np.float32)
    assert unevenness(values) == pytest.approx(math.log1p(14 / 3 / 9))
    assert unevenness(1000 * values) == pytest.approx(unevenness(values))
    assert unevenness(np.full(4, 3.0, dtype=np.float32)) == 0
    assert unevenness(np.zeros(4, dtype=np.float32)) == 0


def test_statistic_is_taken_as_it_is_at_first_and_smoothed_then(play: Any) -> None:
    game = play(Managed(num_tokens=1000, special_tokens=0, smoothing=0.75, special_frames=0), 1, 2, num_heads=1)
    memos = []
    for attention_mass in (
        [1, 1],
        [0.5, 0.5, 0.5, 0.5],
        [0.1, 0.1, 0.6, 0.2, 0.5, 0.5],
        [0.2] * 2 + [0.3] * 4 + [0.1] * 2,
    ):
        game.look()
        game.judge([np.asarray(attention_mass)])
        memos.append(game.memos[0])
    first = math.log1p(0.25)
    assert memos[:2] == [(0.0, 0.0)] * 2
    np.testing.assert_allclose(memos[2:], [(first, 1.0), (0.75 * first, 1.0)], atol=1e-6)


def test_layer_that_attends_evenly_keeps_more(play: Any) -> None:
    game = play(Managed(num_tokens=120, special_tokens=1), 2, 10)
    for step in range(20):
        game.step(step)
    even, uneven = map(len, game.tokens)
    assert even > uneven
    assert even + uneven == 120


def test_sink_does_not_starve_its_layer(play: Any) -> None:
    """One token that draws a third of all attention costs its layer part of its share, not its memory."""
    game = play(Managed(num_tokens=200, special_tokens=1), 2, 10, num_heads=1)
    for _ in range(30):
        game.look()
        attention_mass = [np.ones(len(tokens)) for tokens in game.tokens]
        attention_mass[1][10:11] += len(attention_mass[1]) / 2
        game.judge([10 * of_layer / of_layer.sum() for of_layer in attention_mass])
    assert len(game.tokens[1]) > 40


def test_budget_below_what_is_protected_is_refused_with_the_smallest_that_works() -> None:
    options = {"special_tokens": 3, "anchors": 1, "recent": 2, "special_frames": 6}
    least = 4 * (3 * 10 + 4 * 3)
    with pytest.raises(BudgetError, match=f"A budget of {least - 1} tokens .* the smallest that works is {least}"):
        Managed(num_tokens=least - 1, **options).most_tokens(LAYOUT)
    assert Managed(num_tokens=least, **options).most_tokens(LAYOUT, clip_frames=8) == least


@pytest.mark.parametrize(
    "options",
    [
        {"num_tokens": 0},
        {"recent": 0},
        {"anchors": -1},
        {"special_tokens": -1},
        {"special_frames": -1},
        {"decay": 0.0},
        {"decay": 1.5},
        {"smoothing": 1.0},
        {"temperature": 0.0},
    ],
)
def test_settings_without_meaning_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match="but got"):
        Managed(**{"num_tokens": 100, "special_tokens": 5} | options)
