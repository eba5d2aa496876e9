"""Corners that look alike are found again where the picture moved to, and plain pictures have none."""

import numpy as np
from jaxtyping import Float64

from longtake.places.matching import _edges, find_corners, match
from longtake.places.pictures import blurred, sampled


def texture(seed: int) -> Float64[np.ndarray, "140 160 3"]:
    rng = np.random.default_rng(seed)
    soft = blurred(blurred(rng.random((140, 160, 3)), 2), 1)
    return np.asarray((soft - soft.min()) / (soft.max() - soft.min()))


def test_corners_of_a_moved_picture_are_matched_to_themselves() -> None:
    whole = texture(0)
    old, new = find_corners(whole[20:118, 15:141]), find_corners(whole[26:124, 11:137])
    pairs = match(old, new)
    moved = new.pixels[pairs[:, 1]] - old.pixels[pairs[:, 0]]
    right = np.abs(moved - np.array([4, -6])).max(axis=1) < 1.5  # a pixel of the smaller picture
    assert len(pairs) > 150
    assert right.mean() > 0.9


def test_brighter_and_stronger_light_changes_few_matches() -> None:
    whole = texture(1)[:98, :126]
    pairs = match(find_corners(whole), find_corners(0.6 * whole + 0.2))
    old, new = find_corners(whole), find_corners(0.6 * whole + 0.2)
    still = np.abs(old.pixels[pairs[:, 0]] - new.pixels[pairs[:, 1]]).max(axis=1) < 1
    assert still.sum() > 200
    assert still.mean() > 0.9


def test_a_plain_picture_has_no_corners_and_matches_nothing() -> None:
    plain = find_corners(np.full((98, 126, 3), 0.4))
    assert len(plain.pixels) == 0
    assert match(plain, find_corners(texture(0)[:98, :126])).shape == (0, 2)
    assert match(plain, plain).shape == (0, 2)


def test_descriptors_are_whole_numbers_whose_products_float32_holds_exactly() -> None:
    descriptors = find_corners(texture(2)[:98, :126]).descriptors
    assert (descriptors == descriptors.round()).all()
    assert (descriptors.astype(np.float64) ** 2).sum(axis=1).max() < 2**22


def test_a_blur_is_the_mean_of_a_square_and_samples_lie_between_pixels() -> None:
    maps = np.random.default_rng(0).random((9, 8, 2))
    np.testing.assert_allclose(blurred(maps, 2)[4, 3], maps[2:7, 1:6].mean(axis=(0, 1)))
    between = sampled(maps, np.array([[2.25, 3.5]]))[0]
    expected = 0.5 * (0.75 * maps[3, 2] + 0.25 * maps[3, 3]) + 0.5 * (0.75 * maps[4, 2] + 0.25 * maps[4, 3])
    np.testing.assert_allclose(between, expected)
    np.testing.assert_array_equal(sampled(maps, np.array([[7.0, 8.0]]))[0], maps[8, 7])


def test_edges_lie_along_the_two_directions_nearest_to_them() -> None:
    brightness = texture(3)[..., 0]
    down, right = np.gradient(brightness)
    away = np.arctan2(down, right)[..., None] * (8 / (2 * np.pi)) - np.arange(8) + 4
    slow = np.hypot(right, down)[..., None] * np.maximum(0, 1 - np.abs(away % 8 - 4))
    np.testing.assert_array_equal(_edges(brightness), slow)


def test_pairs_are_those_of_whom_each_is_the_nearest_of_the_other_the_first_of_equals() -> None:
    old, new = (find_corners(np.round(8 * texture(seed)[:98, :126]) / 8) for seed in (4, 5))
    one, other = old.descriptors.astype(np.float64), new.descriptors.astype(np.float64)
    distance = ((one[:, None] - other) ** 2).sum(axis=2)
    nearest, back = distance.argmin(axis=1), distance.argmin(axis=0)
    slow = [(place, near) for place, near in enumerate(nearest.tolist()) if back[near] == place]
    assert match(old, new).tolist() == [list(pair) for pair in slow]


def test_the_border_goes_on_outside_where_a_picture_is_blurred() -> None:
    maps = np.random.default_rng(0).random((9, 12, 2))
    for radius in (1, 2, 3):
        padded = np.pad(maps, ((radius, radius), (radius, radius), (0, 0)), mode="edge")
        squares = np.lib.stride_tricks.sliding_window_view(padded, (2 * radius + 1, 2 * radius + 1), axis=(0, 1))
        np.testing.assert_allclose(blurred(maps, radius), squares.mean(axis=(3, 4)), rtol=1e-13)
