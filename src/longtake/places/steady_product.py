"""Products of matrices to the same bits on any number of threads: sums over small blocks, in a fixed order."""

import numpy as np
from jaxtyping import Float64

from longtake.places.steady_solve import BLOCK


def steady_product(
    a: Float64[np.ndarray, "rows inner"], b: Float64[np.ndarray, "inner columns"]
) -> Float64[np.ndarray, "rows columns"]:
    """a · b."""
    left, right = _blocks(a), _blocks(b)
    total = np.zeros((len(left), right.shape[1], BLOCK, BLOCK))
    for inner in range(len(right)):
        total += left[:, inner, None] @ right[None, inner]
    whole = total.transpose(0, 2, 1, 3).reshape(len(left) * BLOCK, -1)
    return np.ascontiguousarray(whole[: len(a), : b.shape[1]])


def _blocks(matrix: Float64[np.ndarray, "rows columns"]) -> Float64[np.ndarray, "down across 56 56"]:
    """With zeros at the ends."""
    rows, columns = matrix.shape
    padded = np.zeros((rows + -rows % BLOCK, columns + -columns % BLOCK))
    padded[:rows, :columns] = matrix
    return np.ascontiguousarray(padded.reshape(-1, BLOCK, padded.shape[1] // BLOCK, BLOCK).transpose(0, 2, 1, 3))
