"""Budgets between layers: golden cases, and an oracle that fills the vessels drop by drop."""

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.memory.policies.allocation import Allocation, fill, softmax_shares, without_lowest

CASES = json.loads((Path(__file__).parents[2] / "golden" / "stream3r" / "budget_waterfill.json").read_text())


@pytest.mark.parametrize("case", CASES)
def test_golden_allocation(case: dict[str, Any]) -> None:
    got = fill(case["total"], np.asarray(case["alphas"]), floors=case["floor"], sizes=case["size"])
    assert got == Allocation(tuple(case["keep"]), overflow=case["overflow"])


def filled_exactly(total: int, shares: list[int], floors: list[int], sizes: list[int]) -> list[Fraction]:
    """The level by going through all brims in order, in exact fractions."""
    vessels = list(zip(shares, floors, sizes, strict=True))
    below = Fraction(0)
    for brim in sorted({Fraction(size - floor, share) for share, floor, size in vessels}):
        if sum(_reached(brim, shares, floors, sizes)) > total:
            rising = sum(share for share, floor, size in vessels if Fraction(size - floor, share) > below)
            level = below + (total - sum(_reached(below, shares, floors, sizes))) / Fraction(rising)
            return _reached(level, shares, floors, sizes)
        below = brim
    raise AssertionError("all fits")


def rounded(exact: list[Fraction], total: int) -> list[int]:
    whole = [math.floor(value) for value in exact]
    largest_fractions = sorted(range(len(exact)), key=lambda layer: (whole[layer] - exact[layer], layer))
    for layer in largest_fractions[: total - sum(whole)]:
        whole[layer] += 1
    return whole


def _reached(level: Fraction, shares: list[int], floors: list[int], sizes: list[int]) -> list[Fraction]:
    return [
        min(Fraction(size), floor + level * share) for share, floor, size in zip(shares, floors, sizes, strict=True)
    ]


layers = st.lists(st.tuples(st.integers(1, 64), st.integers(0, 20), st.integers(0, 60)), min_size=1, max_size=6)


@settings(deadline=None, max_examples=200)
@given(layers, st.integers(0, 400))
def test_allocation_equals_the_level_found_in_exact_fractions(vessels: list[tuple[int, int, int]], total: int) -> None:
    weights, floors = [weight for weight, _, _ in vessels], [floor for _, floor, _ in vessels]
    sizes = [floor + room for _, floor, room in vessels]
    got = fill(total, np.asarray(weights) / sum(weights), floors=floors, sizes=sizes)
    assert got.overflow == (sum(floors) > total)
    if sum(sizes) <= total:
        assert list(got.keep) == sizes
    elif sum(floors) >= total:
        assert list(got.keep) == floors
    else:
        assert sum(got.keep) == total
        assert all(floor <= keep <= size for floor, keep, size in zip(floors, got.keep, sizes, strict=True))
        exact = filled_exactly(total, weights, floors, sizes)
        fractions = [value % 1 for value in exact if value % 1]
        if len(set(fractions)) == len(fractions):  # float64 may take equal ones in another order
            assert list(got.keep) == rounded(exact, total)


def test_of_equal_fractions_the_lower_layer_is_served() -> None:
    assert fill(11, np.full(4, 0.25), floors=[1, 1, 1, 1], sizes=[9, 9, 9, 9]).keep == (3, 3, 3, 2)


def test_what_layers_without_a_share_get_is_in_proportion_to_their_room() -> None:
    shares = np.asarray([1.0, 0.0, 0.0])
    assert fill(31, shares, floors=[0, 1, 2], sizes=[10, 31, 12]).keep == (10, 15, 6)


def test_shares_fall_with_the_statistic_and_survive_underflow() -> None:
    shares = softmax_shares([0.0, 1.0, 1e6], 0.5)
    assert shares.tolist() == pytest.approx([1 / (1 + math.exp(-2)), math.exp(-2) / (1 + math.exp(-2)), 0.0])
    assert sum(fill(50, shares, floors=[1, 1, 1], sizes=[20, 20, 20]).keep) == 50


def test_shares_of_equal_layers_are_equal() -> None:
    assert softmax_shares([7.0] * 4, 1e-3).tolist() == [0.25] * 4


scored = st.lists(st.tuples(st.sampled_from([0.0, 1.0, 2.0, 2.5, float("inf")]), st.booleans()), max_size=12)


@settings(deadline=None)
@given(scored, st.integers(-3, 12))
def test_lowest_leave_and_of_equals_the_earlier(tokens: list[tuple[float, bool]], num_leaving: int) -> None:
    candidates = [(score, place) for place, (score, may_leave) in enumerate(tokens) if may_leave]
    num_leaving = min(num_leaving, len(candidates))
    leaving = {place for _, place in sorted(candidates)[: max(0, num_leaving)]}
    scores = np.asarray([score for score, _ in tokens], dtype=np.float32)
    may_leave = np.asarray([flag for _, flag in tokens], dtype=np.bool_)
    stays = without_lowest(scores, num_leaving, may_leave=may_leave)
    assert set(np.flatnonzero(~stays).tolist()) == leaving
