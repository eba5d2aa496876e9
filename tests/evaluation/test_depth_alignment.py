"""Corrections of depth: running fits equal fits of everything at once."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longtake.evaluation.depth_alignment import (
    Correction,
    DepthAlignment,
    LeastSquares,
    MedianScale,
    SequenceFit,
    fit_of_frame,
    least_squares,
    median_scale,
    sequence_fit,
)


def make_pixels(seed: int, count: int, offset: float = 0.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    predicted = 0.2 + 3 * torch.rand(count, generator=generator, dtype=torch.float64)
    true = predicted * (1.5 + torch.rand(count, generator=generator, dtype=torch.float64))
    return predicted + offset, true + offset


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 1000), sizes=st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_running_fits_equal_the_fit_of_all_pixels(seed: int, sizes: list[int]) -> None:
    predicted, true = make_pixels(seed, sum(sizes) + 3)
    running: list[SequenceFit] = [MedianScale(), LeastSquares()]
    for fit in running:
        for some, some_true in zip(predicted.split([*sizes, 3]), true.split([*sizes, 3]), strict=True):
            fit.add(some, some_true)
    assert running[0].correction().scale == pytest.approx(median_scale(predicted, true).scale, rel=1.01e-5)
    whole = running[1].correction()
    scale, shift = np.polyfit(predicted.numpy(), true.numpy(), 1)
    if scale < 0:
        scale, shift = 0.0, float(true.mean())
    assert (whole.scale, whole.shift) == (pytest.approx(scale, rel=1e-8), pytest.approx(shift, rel=1e-8, abs=1e-8))


def test_median_is_the_lower_middle_ratio() -> None:
    predicted, true = torch.ones(4, dtype=torch.float64), torch.tensor([4.0, 1.0, 2.0, 9.0], dtype=torch.float64)
    assert median_scale(predicted, true) == Correction(2.0, 0.0)
    fit = MedianScale()
    fit.add(predicted, true)
    assert fit.correction().scale == pytest.approx(2, rel=1.01e-5)


def test_ratios_beyond_the_histogram_are_counted_at_its_ends() -> None:
    for ratio, end in ((1e-30, np.exp(-24.0)), (1e30, np.exp(24.0))):
        fit = MedianScale()
        fit.add(torch.ones(1, dtype=torch.float64), torch.full((1,), ratio, dtype=torch.float64))
        assert fit.correction().scale == pytest.approx(end, rel=1e-4)


def test_least_squares_far_from_zero_do_not_cancel() -> None:
    predicted, true = make_pixels(1, 500, offset=1e6)
    fit = LeastSquares()
    for some, some_true in zip(predicted.split(50), true.split(50), strict=True):
        fit.add(some, some_true)
    near, near_true = make_pixels(1, 500)
    assert fit.correction().scale == pytest.approx(least_squares(near, near_true).scale, rel=1e-6)


def test_constant_and_contrary_predictions_become_the_mean_of_the_truth() -> None:
    _, true = make_pixels(2, 50)
    for predicted in (torch.full_like(true, 0.1), 10 - true):
        correction = least_squares(predicted, true)
        assert (correction.scale, correction.shift) == (0, pytest.approx(float(true.mean())))
    assert least_squares(true[:1], 2 * true[:1]).of(true[:1]).tolist() == pytest.approx((2 * true[:1]).tolist())


def test_no_other_scale_and_shift_has_less_squared_error() -> None:
    predicted, true = make_pixels(3, 80)
    best = least_squares(predicted, true)
    least = float((best.of(predicted) - true).square().sum())
    for scale, shift in ((1e-3, 0.0), (-1e-3, 0.0), (0.0, 1e-3), (0.0, -1e-3)):
        other = Correction(best.scale + scale, best.shift + shift)
        assert float((other.of(predicted) - true).square().sum()) > least


def test_each_alignment_has_its_fit() -> None:
    predicted, true = make_pixels(4, 9)
    assert fit_of_frame(DepthAlignment.METRIC)(predicted, true) == Correction(1.0, 0.0)
    assert fit_of_frame(DepthAlignment.SCALE)(predicted, true) == median_scale(predicted, true)
    assert fit_of_frame(DepthAlignment.SCALE_AND_SHIFT)(predicted, true) == least_squares(predicted, true)
    assert isinstance(sequence_fit(DepthAlignment.SCALE), MedianScale)
    assert isinstance(sequence_fit(DepthAlignment.SCALE_AND_SHIFT), LeastSquares)
