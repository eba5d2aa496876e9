"""How a budget of tokens is divided between layers, shares by a statistic, filled like vessels; and who leaves then.

Layer `l` holds `size` tokens, of which `floor` must stay. It keeps

    keep = min(size, floor + level · share)

with the one level at which the sum is the budget.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float64, Int

SMALLEST_SHARE = 1e-300
FRACTIONS = 2.0**30
"""Of a token; fractions nearer to each other are equal, whatever the last bits that a device's logarithm gave them."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """How many tokens each layer keeps."""

    keep: tuple[int, ...]
    overflow: bool
    """Whether what must stay is already more than the budget; then it is all that is kept."""


def softmax_shares(statistics: Sequence[float], temperature: float) -> Float64[np.ndarray, " layers"]:
    """Shares that sum to 1: the lower a layer's statistic, the larger its share."""
    exact = np.asarray(statistics, dtype=np.float64)
    weights = np.exp((exact.min() - exact) / temperature)
    shares: Float64[np.ndarray, " layers"] = weights / weights.sum()
    return shares


def fill(
    total: int, shares: Float64[np.ndarray, " layers"], *, floors: Sequence[int], sizes: Sequence[int]
) -> Allocation:
    """Divide `total` tokens; whole numbers go to the largest fractions, of equal ones to the lower layer."""
    floor, size = np.asarray(floors, dtype=np.int64), np.asarray(sizes, dtype=np.int64)
    if size.sum() <= total:
        return Allocation(tuple(size.tolist()), overflow=False)
    if floor.sum() >= total:
        return Allocation(tuple(floor.tolist()), overflow=bool(floor.sum() > total))
    room = size - floor
    rest = total - int(floor.sum())
    served = shares > SMALLEST_SHARE
    if room[served].sum() <= rest:
        extra = np.where(served, room, 0)
        extra += _pour(rest - int(extra.sum()), room - extra, (room - extra).astype(np.float64))
    else:
        extra = _pour(rest, np.where(served, room, 0), np.where(served, shares, 0.0))
    return Allocation(tuple((floor + extra).tolist()), overflow=False)


def _pour(
    amount: int, room: Int[np.ndarray, " layers"], shares: Float64[np.ndarray, " layers"]
) -> Int[np.ndarray, " layers"]:
    """`amount` in whole units, by shares, into vessels that hold `room` and together at least as much."""
    full = _fills_up(amount, room, shares)
    level = (amount - room[full].sum()) / max(shares[~full].sum(), SMALLEST_SHARE)
    exact = np.where(full, room, level * shares)
    whole = np.floor(exact).astype(np.int64)
    by_fraction = np.argsort(np.round((whole - exact) * FRACTIONS), kind="stable")
    by_fraction = by_fraction[whole[by_fraction] < room[by_fraction]]
    whole[by_fraction[: amount - int(whole.sum())]] += 1
    return whole


def _fills_up(
    amount: int, room: Int[np.ndarray, " layers"], shares: Float64[np.ndarray, " layers"]
) -> Bool[np.ndarray, " layers"]:
    """Which vessels the level reaches the brim of; each that fills up raises the level for the others."""
    full: Bool[np.ndarray, " layers"] = room == 0
    while True:
        left = amount - room[full].sum()
        newly = ~full & (shares > 0) & (left * shares >= room * shares[~full].sum())
        if not newly.any():
            return full
        full |= newly


def without_lowest(
    scores: Float[np.ndarray, " tokens"], num_leaving: int, *, may_leave: Bool[np.ndarray, " tokens"]
) -> Bool[np.ndarray, " tokens"]:
    """Who stays when the lowest scores of those who may leave go; of equals the earlier in attention order goes."""
    if num_leaving <= 0:
        return np.ones(len(scores), dtype=np.bool_)
    assert num_leaving <= np.count_nonzero(may_leave)
    of_candidates = np.where(may_leave, scores, np.inf)
    highest_leaving = np.partition(of_candidates, num_leaving - 1)[num_leaving - 1]
    lower: Bool[np.ndarray, " tokens"] = of_candidates < highest_leaving
    equals = np.flatnonzero((of_candidates == highest_leaving) & may_leave)
    stays: Bool[np.ndarray, " tokens"] = ~lower
    stays[equals[: num_leaving - int(np.count_nonzero(lower))]] = False
    return stays
