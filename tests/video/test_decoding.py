"""Pictures are turned as a display matrix says, checked point by point."""

import itertools

import numpy as np
import pytest

from longtake.video.decoding import turned

QUARTERS = [
    np.array(rows) * 65536
    for rows in itertools.product(itertools.product((-1, 0, 1), repeat=2), repeat=2)
    if abs(np.linalg.det(np.array(rows))) == 1 and np.abs(rows).sum() == 2
]


def test_there_are_eight_ways_to_hold_a_phone() -> None:
    assert len(QUARTERS) == 8


@pytest.mark.parametrize("matrix", QUARTERS, ids=str)
def test_every_point_is_shown_where_the_matrix_sends_it(matrix: np.ndarray) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    shown = turned(pixels, matrix)
    points = {(x, y): np.array([x, y]) @ (matrix // 65536) for y in range(5) for x in range(7)}
    corner = np.min(list(points.values()), axis=0)
    for (x, y), point in points.items():
        column, row = point - corner
        np.testing.assert_array_equal(shown[row, column], pixels[y, x])


@pytest.mark.parametrize(("degrees", "quarters"), [(2, 0), (44, 0), (46, 1), (89, 1), (181, 2), (-91, 3)])
def test_other_angles_become_the_nearest_quarter_turn(degrees: float, quarters: int) -> None:
    pixels = np.random.default_rng(2).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    cosine, sine = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    matrix = np.rint(np.array([[cosine, -sine], [sine, cosine]]) * 65536).astype(np.int32)
    np.testing.assert_array_equal(turned(pixels, matrix), np.rot90(pixels, quarters))
