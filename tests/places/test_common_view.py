"""A picture that moved has most of its squares in common with what it was; another one hardly any."""

import numpy as np
import pytest
import torch
from rendered_views import filmed

from longtake.places.common_view import Grey, common_share

SIZE = (98, 126)


def grey(seed: int, frame: int) -> Grey:
    pixels: torch.Tensor = (255 * filmed(seed, frame, SIZE).image).round()
    return pixels.mean(dim=0).byte().numpy()


def noise(seed: int) -> Grey:
    return np.random.default_rng(seed).integers(0, 256, SIZE, dtype=np.uint8)


def test_a_picture_has_all_in_common_with_itself_and_nothing_with_noise() -> None:
    assert common_share(noise(0), noise(0)) == 1.0
    assert common_share(noise(0), noise(1)) == 0.0


def test_what_left_the_picture_is_not_common() -> None:
    moved = np.roll(noise(0), 14, axis=1)
    moved[:, :14] = noise(1)[:, :14]
    assert common_share(noise(0), moved) == pytest.approx(8 / 9)


def test_squares_that_move_apart_are_not_common() -> None:
    torn = np.concatenate([np.roll(noise(0)[:49], 20, axis=1), np.roll(noise(0)[49:], -20, axis=1)])
    assert common_share(noise(0), torn) < 0.5


def test_nothing_on_a_picture_is_nothing_in_common() -> None:
    plain = np.full(SIZE, 128, dtype=np.uint8)
    assert common_share(plain, plain) == 0.0


def test_the_next_frame_of_a_walk_is_common_and_one_of_much_later_is_not() -> None:
    assert common_share(grey(18, 60), grey(18, 61)) > 0.4
    assert common_share(grey(18, 60), grey(18, 120)) < 0.2
    assert common_share(grey(18, 60), grey(28, 60)) < 0.2


def test_small_pictures_are_compared_too() -> None:
    small = noise(0)[:9, :11].copy()
    assert common_share(small, small) == 1.0
