"""Which frames are remembered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtake.errors import SettingError
from longtake.memory.policy import Keep
from longtake.runtime.keyframes import EveryNth, interval_for


@pytest.mark.parametrize(
    ("interval", "drawn"),
    [(1, "#######"), (2, "#.#.#.#"), (3, "#..#..#"), (10, "#......")],
)
def test_first_frame_after_the_scale_block_is_kept_then_every_nth(interval: int, drawn: str) -> None:
    signs = {Keep.YES: "#", Keep.NO: "."}
    assert "".join(signs[EveryNth(interval).before(step)] for step in range(7)) == drawn


def test_every_frame_is_kept_unless_asked_otherwise() -> None:
    assert EveryNth() == EveryNth(1)


@pytest.mark.parametrize("interval", [0, -3])
def test_interval_below_one_is_refused(interval: int) -> None:
    with pytest.raises(SettingError, match=f"interval of at least 1, but got {interval}"):
        EveryNth(interval)


@pytest.mark.parametrize(
    ("num_frames", "interval"), [(0, 1), (1, 1), (320, 1), (321, 2), (640, 2), (641, 3), (3200, 10), (36_000, 113)]
)
def test_published_interval_of_a_long_video(num_frames: int, interval: int) -> None:
    assert interval_for(num_frames) == EveryNth(interval)


@given(st.integers(1, 10_000), st.integers(1, 500))
def test_interval_is_the_smallest_that_stays_within_the_trained_frames(num_frames: int, trained: int) -> None:
    interval = interval_for(num_frames, trained).interval
    assert len(range(0, num_frames, interval)) <= trained
    assert interval == 1 or len(range(0, num_frames, interval - 1)) > trained
