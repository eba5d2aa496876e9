"""Depth of takes: known changes, other sizes, and what is refused."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.errors import InputError
from longtake.evaluation.depth_alignment import AlignmentSpan, DepthAlignment
from longtake.evaluation.matched import read_matched
from longtake.evaluation.settings import EvalSettings
from longtake.evaluation.take_depth import TakeDepth, measure_take_depth, resample
from longtake.takes.header import Unit

Film = Callable[..., Path]
METRIC, SCALE, SCALE_AND_SHIFT = DepthAlignment.METRIC, DepthAlignment.SCALE, DepthAlignment.SCALE_AND_SHIFT


def measure(result: Path, truth: Path, rules: EvalSettings | None = None) -> TakeDepth:
    rules = rules or EvalSettings()
    return measure_take_depth(read_matched(result, truth, rules), rules)


def test_depth_a_tenth_too_large_is_that_in_metres_and_nothing_with_scale(film_room: Film) -> None:
    found = measure(film_room("result", change_depth=lambda depth: 1.1 * depth), film_room("truth"))
    assert found.by_alignment[METRIC].abs_rel == pytest.approx(0.1, rel=1e-6)
    assert found.by_alignment[SCALE].abs_rel < 2e-5
    assert found.by_alignment[SCALE_AND_SHIFT].abs_rel < 1e-6
    correction = found.by_alignment[SCALE].correction
    assert correction is not None
    assert correction.scale == pytest.approx(1 / 1.1, rel=2e-5)
    assert found.errors == found.by_alignment[SCALE]
    assert found.resampled_from is None


def test_shifted_depth_is_put_right_by_a_shift_alone(film_room: Film) -> None:
    found = measure(film_room("result", change_depth=lambda depth: 0.5 * depth + 0.2), film_room("truth"))
    assert found.by_alignment[SCALE].abs_rel > 0.01
    assert found.by_alignment[SCALE_AND_SHIFT].abs_rel < 1e-6


def test_span_of_a_frame_corrects_each_by_itself(film_room: Film) -> None:
    factors = iter(np.linspace(0.5, 2, 12))
    result = film_room("result", change_depth=lambda depth: next(factors) * depth)
    truth = film_room("truth")
    assert measure(result, truth).errors.abs_rel > 0.1
    by_frame = measure(result, truth, EvalSettings(depth_span=AlignmentSpan.FRAME))
    assert by_frame.errors.abs_rel < 1e-6
    assert by_frame.errors.correction is None


def test_metres_are_measured_where_both_are_in_metres_or_when_asked_for(film_room: Film) -> None:
    truth, result = film_room("truth"), film_room("result", unit=Unit.MODEL)
    assert measure(result, truth).by_alignment.keys() == {SCALE, SCALE_AND_SHIFT}
    assert measure(result, truth, EvalSettings(depth_align=METRIC)).by_alignment.keys() == set(DepthAlignment)


@settings(deadline=None, max_examples=50)
@given(st.tuples(*4 * [st.integers(1, 12)]))
def test_resampling_takes_the_pixel_that_holds_the_centre(sizes: tuple[int, int, int, int]) -> None:
    height, width, new_height, new_width = sizes
    depth = torch.arange(height * width, dtype=torch.float32).view(height, width)
    found = resample(depth, (new_height, new_width))
    for row in range(new_height):
        for column in range(new_width):
            y, x = Fraction(2 * row + 1, 2 * new_height) * height, Fraction(2 * column + 1, 2 * new_width) * width
            assert found[row, column] == depth[int(y), int(x)]


def test_smaller_maps_of_the_same_view_are_resampled(film_room: Film) -> None:
    found = measure(film_room("half", size=(18, 24)), film_room("truth", size=(36, 48)))
    assert found.resampled_from == (18, 24)
    assert 0 < found.by_alignment[METRIC].abs_rel < 0.02
    found = measure(film_room("large", size=(36, 48)), film_room("small", size=(12, 16)))
    # The middle of three pixels is where the one was.
    assert found.by_alignment[METRIC].abs_rel < 1e-6


@pytest.mark.parametrize(
    ("result", "truth", "fits"),
    [
        ((378, 504), (480, 640), True),
        ((378, 518), (480, 640), False),
        ((84, 112), (336, 450), True),
        ((84, 112), (336, 452), False),
        ((336, 450), (84, 112), True),
        ((37, 48), (36, 48), False),
        ((48, 36), (36, 48), False),
    ],
)
def test_maps_of_another_shape_are_refused(
    film_room: Film, result: tuple[int, int], truth: tuple[int, int], fits: bool
) -> None:
    takes = film_room("result", size=result, steps=range(2)), film_room("truth", size=truth, steps=range(2))
    if fits:
        assert measure(*takes).resampled_from == result
    else:
        sentence = f"result's are {result[1]}x{result[0]} and the truth's {truth[1]}x{truth[0]}; crop or pad"
        with pytest.raises(InputError, match=sentence):
            measure(*takes)
