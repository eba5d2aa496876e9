"""Whether two pictures show the same view, a little moved: squares of the one are looked for in the other.

before ┌──┬──┬──┐      after ┌──┬──┬──┐      squares that are found again, and have moved together, are common
       │ a│ b│ c│            │  │ a│ b│
       └──┴──┴──┘            └──┴──┴──┘

A network may find two such pictures apart, where a window comes into the view of a plain wall; the pixels are the same.
"""

import numpy as np
from jaxtyping import Float64, UInt8

_SQUARE = 14
_REACH = (14, 28)
"""Rows and columns by which a square may have moved."""
_TEXTURED = 3.0
"""Deviation of grey, of 255, from which on a square can be told from others."""
_FOUND = 0.8
"""Correlation from which on a square is found again."""
_TOGETHER = 6
"""Pixels by which squares that move together may differ."""

Grey = UInt8[np.ndarray, "height width"]
Squares = Float64[np.ndarray, "rows columns size size"]


def common_share(before: Grey, after: Grey) -> float:
    """Part of the squares of a picture with something on them that are found again in the next one, moved together."""
    size = min(_SQUARE, *before.shape)
    windows: Squares = np.lib.stride_tricks.sliding_window_view(after.astype(np.float64), (size, size))
    deviation = windows.std(axis=(2, 3))
    moves, num_textured = list[tuple[int, int]](), 0
    for row in range(0, before.shape[0] - size + 1, size):
        for column in range(0, before.shape[1] - size + 1, size):
            square = before[row : row + size, column : column + size].astype(np.float64)
            if square.std() < _TEXTURED:
                continue
            num_textured += 1
            near = tuple(
                slice(max(0, at - reach), at + reach + 1) for at, reach in zip((row, column), _REACH, strict=True)
            )
            correlation = _correlation(square, windows[near], deviation[near])
            best = int(correlation.argmax())
            if correlation.flat[best] >= _FOUND:
                down, right = divmod(best, correlation.shape[1])
                moves.append((near[0].start + down - row, near[1].start + right - column))
    if not moves:
        return 0.0
    apart = np.abs(np.array(moves) - np.median(moves, axis=0)).max(axis=1)
    return float((apart <= _TOGETHER).sum() / num_textured)


def _correlation(
    square: Float64[np.ndarray, "size size"], windows: Squares, deviation: Float64[np.ndarray, "rows columns"]
) -> Float64[np.ndarray, "rows columns"]:
    """Of a square with each of those near it, by sums of one thread."""
    product = np.einsum("ijkl,kl->ij", windows, square - square.mean()) / square.size
    return np.asarray(product / (square.std() * np.maximum(deviation, _TEXTURED)))
