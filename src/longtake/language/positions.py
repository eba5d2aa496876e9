"""Rotary positions of a prompt's tokens: three rows (time, row, column) from its pieces and the next free position.

    Text(2)      T 0 1         H 0 1         W 0 1          next 2
    VideoSpan    T 2 2 2 4 4 4 H 2 2 2 2 2 2 W 2 3 4 2 3 4  next = maximum of all three rows + 1 = 5
    Text(1)      T 5           H 5           W 5            next 6

The rule moves with its start: a piece's positions are its own plus one offset, so a prompt may arrive in parts.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Int64

from longtake.errors import InputError

# Times are differences of float64 clocks: since 1970 they are known to 2.4e-7 s, and a frame that is due exactly when
# a position begins must not fall into the one before.
_CLOCK_GRAIN_S = 1e-6


@dataclass(frozen=True, slots=True)
class Text:
    """A run of tokens that are not part of a picture."""

    num_tokens: int

    @property
    def extent(self) -> int:
        """How far the next free position moves."""
        return self.num_tokens

    @property
    def transformers_extent(self) -> int:
        """How far the installed library moves it."""
        return self.num_tokens


@dataclass(frozen=True, slots=True)
class Picture:
    """A still picture of `rows` by `columns` tokens."""

    rows: int
    columns: int

    @property
    def num_tokens(self) -> int:
        return self.rows * self.columns

    @property
    def extent(self) -> int:
        """How far the next free position moves."""
        return max(self.rows, self.columns)

    @property
    def transformers_extent(self) -> int:
        """How far the installed library moves it."""
        return self.extent


@dataclass(frozen=True, slots=True)
class VideoSpan:
    """Consecutive temporal grids of one clip, each of `rows` by `columns` tokens."""

    times: tuple[int, ...]
    """Of each grid, in positions since the clip's first frame; see `grid_times`."""
    rows: int
    columns: int

    def __post_init__(self) -> None:
        _check_never_back(self.times, unit="positions")

    @property
    def num_tokens(self) -> int:
        return len(self.times) * self.rows * self.columns

    @property
    def extent(self) -> int:
        """How far the next free position moves."""
        return max(self.rows, self.columns, self.times[-1] + 1)

    @property
    def transformers_extent(self) -> int:
        """How far the installed library moves it: the clip's duration is left out."""
        return max(self.rows, self.columns)


Piece = Text | Picture | VideoSpan


@dataclass(frozen=True, slots=True, eq=False)
class Positions:
    """Where some tokens stand, and where the next one does."""

    rows: Int64[np.ndarray, "3 tokens"]
    next_position: int


def positions(pieces: Sequence[Piece], next_position: int = 0) -> Positions:
    """Positions of these pieces in order, the first of which begins at `next_position`."""
    return _walk(pieces, next_position, lambda piece: piece.extent)


def library_positions(pieces: Sequence[Piece], next_position: int = 0) -> Positions:
    """Positions of transformers 5.22.2, which may put text after a clip inside its time; for comparison only."""
    return _walk(pieces, next_position, lambda piece: piece.transformers_extent)


def append_grids(base: int, times: tuple[int, ...], rows: int, columns: int) -> Positions:
    """Positions of more grids of the clip that began at `base`; `next_position` is where a question would stand.

    Rows and columns begin at `base` again, and so does the next append: only what closes the clip uses `next_position`.
    """
    return positions([VideoSpan(times, rows, columns)], base)


def grid_times(first_frame_s: Sequence[float], tokens_per_second: float | int) -> tuple[int, ...]:
    """Times of temporal grids in positions, from each grid's first frame in seconds since the clip's first frame."""
    _check_never_back(first_frame_s, unit="s")
    return tuple(math.floor(tokens_per_second * (time_s + _CLOCK_GRAIN_S)) for time_s in first_frame_s)


def uniform_times(num_grids: int, second_per_grid: float, tokens_per_second: float | int) -> tuple[int, ...]:
    """Times of temporal grids that are equally far apart, as the published prompts have them."""
    return tuple(math.floor(grid * tokens_per_second * second_per_grid) for grid in range(num_grids))


def _check_never_back(times: Sequence[float | int], *, unit: str) -> None:
    if not times:
        raise InputError("A clip needs one frame at least, but it has none; show a frame first.")
    if not all(map(math.isfinite, times)):
        raise InputError(f"A frame's time must be a finite number, but {list(times)} {unit} came; give seconds.")
    for earlier, later in pairwise([0, *times]):
        if later < earlier:
            raise InputError(
                f"Times of frames must not go back, but {later} {unit} came after {earlier} {unit}; "
                "give the frames in order, or begin a new stream."
            )


def _walk(pieces: Sequence[Piece], start: int, extent: Callable[[Piece], int]) -> Positions:
    blocks = [np.empty((3, 0), dtype=np.int64)]
    for piece in pieces:
        blocks.append(start + _own_rows(piece))
        start += extent(piece)
    return Positions(np.concatenate(blocks, axis=1), start)


def _own_rows(piece: Piece) -> Int64[np.ndarray, "3 tokens"]:
    """Positions of one piece that begins at 0."""
    if isinstance(piece, Text):
        return np.tile(np.arange(piece.num_tokens, dtype=np.int64), (3, 1))
    times = np.array(piece.times if isinstance(piece, VideoSpan) else (0,), dtype=np.int64)
    shape = (len(times), piece.rows, piece.columns)
    grids, rows, columns = np.indices(shape, dtype=np.int64).reshape(3, -1)
    return np.stack([times[grids], rows, columns])
