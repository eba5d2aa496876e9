"""Six numbers against Python's own statistics."""

import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.evaluation.statistics import Statistics


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=20))
@settings(deadline=None, max_examples=100)
def test_numbers_are_those_of_the_standard_library(errors: list[float]) -> None:
    found = Statistics.of(torch.tensor(errors, dtype=torch.float64))
    assert found.mean == pytest.approx(statistics.fmean(errors), abs=1e-9)
    assert found.median == pytest.approx(statistics.median(errors), abs=1e-9)
    assert found.std == pytest.approx(statistics.pstdev(errors), abs=1e-6)
    assert found.rmse == pytest.approx(math.sqrt(statistics.fmean(error**2 for error in errors)), abs=1e-9)
    assert (found.min, found.max) == (min(errors), max(errors))
