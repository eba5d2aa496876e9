"""Linear systems solved to the same bits on any number of threads.

Libraries share large products among threads, and where they cut decides how sums are rounded. Blocks of 56 are below
what any of them shares, so the factors here are made of such blocks, in a fixed order.

        k k k k          lower triangle, blocks of k = 56
      ┌ L             a column: factor its diagonal block, divide those below,
      │ P L                     subtract their products from all columns to its right
      └ P . L
"""

import numpy as np
from jaxtyping import Float64

BLOCK = 56


def in_blocks(matrix: Float64[np.ndarray, "n n"]) -> Float64[np.ndarray, "rows rows 56 56"]:
    """A square matrix as blocks, continued by rows of the identity."""
    rows = -(-len(matrix) // BLOCK)
    blocks = np.zeros((rows, rows, BLOCK, BLOCK))
    cuts = [slice(row * BLOCK, (row + 1) * BLOCK) for row in range(rows)]
    for row, column in np.ndindex(rows, rows):
        part = matrix[cuts[row], cuts[column]]
        blocks[row, column, : part.shape[0], : part.shape[1]] = part
    missing = np.arange(BLOCK - (rows * BLOCK - len(matrix)), BLOCK)
    blocks[-1, -1, missing, missing] = 1
    return blocks


def solve_positive(
    blocks: Float64[np.ndarray, "rows rows 56 56"], right: Float64[np.ndarray, "rows 56"]
) -> Float64[np.ndarray, "rows 56"]:
    """x with matrix · x = right, of a symmetric positive matrix; its lower blocks are overwritten by its factor."""
    inverses = _factor(blocks)
    found = right.copy()
    for row in range(len(blocks)):
        found[row] = inverses[row] @ found[row]
        found[row + 1 :] -= (blocks[row + 1 :, row] @ found[row][:, None])[:, :, 0]
    for row in reversed(range(len(blocks))):
        below = (blocks[row + 1 :, row].transpose(0, 2, 1) @ found[row + 1 :, :, None])[:, :, 0]
        found[row] = inverses[row].T @ (found[row] - below.sum(axis=0))
    return found


def inverse_factor(matrix: Float64[np.ndarray, "n n"]) -> Float64[np.ndarray, "n n"]:
    """The inverse of Cholesky's factor of a symmetric positive matrix: it takes what varies so to what varies alike."""
    blocks = in_blocks(matrix)
    count, rows = len(matrix), len(blocks)
    inverses = _factor(blocks)
    inverse = np.zeros_like(blocks)
    for column in range(rows):
        inverse[column, column] = inverses[column]
        for row in range(column + 1, rows):
            above = (blocks[row, column:row] @ inverse[column:row, column]).sum(axis=0)
            inverse[row, column] = -inverses[row] @ above
    return np.ascontiguousarray(inverse.transpose(0, 2, 1, 3).reshape(rows * BLOCK, -1)[:count, :count])


def _factor(blocks: Float64[np.ndarray, "rows rows 56 56"]) -> list[Float64[np.ndarray, "56 56"]]:
    """Cholesky's factor in place of the lower blocks; returns the inverses of its diagonal."""
    inverses = []
    for column in range(len(blocks)):
        diagonal = np.linalg.cholesky(blocks[column, column])
        inverses.append(np.linalg.inv(diagonal))
        blocks[column, column] = diagonal
        blocks[column + 1 :, column] = blocks[column + 1 :, column] @ inverses[-1].T
        for right in range(column + 1, len(blocks)):
            blocks[right:, right] -= blocks[right:, column] @ blocks[right, column].T
    return inverses
