"""Linear systems in blocks against those of numpy."""

import numpy as np

from longtake.places.steady_solve import BLOCK, inverse_factor, solve_positive


def test_solution_is_that_of_the_whole_matrix() -> None:
    random = np.random.default_rng(0)
    for rows in (1, 2, 5):
        size = rows * BLOCK
        root = random.normal(size=(size, size // 2))
        matrix, right = np.eye(size) + root @ root.T, random.normal(size=size)
        blocks = matrix.reshape(rows, BLOCK, rows, BLOCK).transpose(0, 2, 1, 3).copy()
        found = solve_positive(blocks, right.reshape(rows, BLOCK)).ravel()
        np.testing.assert_allclose(found, np.linalg.solve(matrix, right), atol=1e-10)


def test_inverse_factor_makes_what_varies_so_vary_alike() -> None:
    random = np.random.default_rng(1)
    for size in (1, 55, 56, 57, 150):
        root = random.normal(size=(size, size))
        matrix = np.eye(size) + root @ root.T
        found = inverse_factor(matrix)
        np.testing.assert_allclose(found @ matrix @ found.T, np.eye(size), atol=1e-10)
        np.testing.assert_array_equal(found, np.tril(found))
