"""Depth errors against loops over pixels, what each alignment leaves unchanged, and what is refused."""

import math
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longtake.errors import InputError, SettingError
from longtake.evaluation.depth import (
    DepthErrors,
    DepthMeter,
    DepthPair,
    measure_alignments,
    measure_depth,
    valid_pixels,
)
from longtake.evaluation.depth_alignment import AlignmentSpan, Correction, DepthAlignment

FRAME, SEQUENCE = AlignmentSpan.FRAME, AlignmentSpan.SEQUENCE
METRIC, SCALE, SCALE_AND_SHIFT = DepthAlignment.METRIC, DepthAlignment.SCALE, DepthAlignment.SCALE_AND_SHIFT


def make_pairs(seed: int, num_frames: int = 4, height: int = 5, width: int = 7) -> list[DepthPair]:
    """Frames with holes in truth and prediction, and a mask on every other one."""
    generator = torch.Generator().manual_seed(seed)
    pairs = []
    for index in range(num_frames):
        true = 0.5 + 5 * torch.rand(height, width, generator=generator)
        predicted = true * (0.4 + 0.5 * torch.rand(height, width, generator=generator)) + 0.1
        for holes, value in (
            (true, 0.0),
            (true, torch.nan),
            (true, torch.inf),
            (predicted, -1.0),
            (predicted, torch.nan),
        ):
            holes.view(-1)[torch.randint(0, height * width, (2,), generator=generator)] = value
        mask = torch.rand(height, width, generator=generator) > 0.2
        pairs.append(DepthPair(predicted, true, mask if index % 2 else None))
    return pairs


def reader(pairs: list[DepthPair]) -> Callable[[], Iterator[DepthPair]]:
    return lambda: iter(pairs)


def changed(pairs: list[DepthPair], scale: float, shift: float = 0.0) -> list[DepthPair]:
    """Predictions scaled and shifted where they are valid."""
    return [replace(pair, predicted=_changed(pair.predicted.double(), scale, shift)) for pair in pairs]


def _changed(predicted: Tensor, scale: float, shift: float) -> Tensor:
    return torch.where(predicted > 0, scale * predicted + shift, predicted)


def counted(pair: DepthPair, max_depth: float) -> list[tuple[float, float]]:
    """Valid pixels, one by one."""
    pixels = []
    for v in range(pair.true.shape[0]):
        for u in range(pair.true.shape[1]):
            predicted, true = float(pair.predicted[v, u]), float(pair.true[v, u])
            usable = math.isfinite(true) and 0 < true <= max_depth and math.isfinite(predicted) and predicted > 0
            if usable and (pair.mask is None or bool(pair.mask[v, u])):
                pixels.append((predicted, true))
    return pixels


def slow_correction(pixels: list[tuple[float, float]], alignment: DepthAlignment) -> tuple[float, float]:
    if alignment is METRIC:
        return 1.0, 0.0
    if alignment is SCALE:
        return sorted(true / predicted for predicted, true in pixels)[(len(pixels) - 1) // 2], 0.0
    x, y = (sum(column) / len(pixels) for column in zip(*pixels, strict=True))
    scale = sum((p - x) * (t - y) for p, t in pixels) / sum((p - x) ** 2 for p, _ in pixels)
    return scale, y - scale * x


def slow_errors(
    pairs: list[DepthPair], alignment: DepthAlignment, span: AlignmentSpan, max_depth: float
) -> dict[str, float | list[float]]:
    frames = [counted(pair, max_depth) for pair in pairs]
    shared = slow_correction([pixel for frame in frames for pixel in frame], alignment)
    rows = []
    for frame in frames:
        scale, shift = shared if span is SEQUENCE else slow_correction(frame, alignment)
        rows.append([(max(scale * predicted + shift, 1e-5), true) for predicted, true in frame])
    everything = [pixel for row in rows for pixel in row]
    num = len(everything)
    return {
        "abs_rel": sum(abs(p - t) / t for p, t in everything) / num,
        "mae": sum(abs(p - t) for p, t in everything) / num,
        "rmse": math.sqrt(sum((p - t) ** 2 for p, t in everything) / num),
        "log_rmse": math.sqrt(sum(math.log(p / t) ** 2 for p, t in everything) / num),
        "delta_1": sum(max(p / t, t / p) < 1.25 for p, t in everything) / num,
        "delta_2": sum(max(p / t, t / p) < 1.5625 for p, t in everything) / num,
        "delta_3": sum(max(p / t, t / p) < 1.953125 for p, t in everything) / num,
        "num_pixels": num,
        "num_frames": len(pairs),
        "num_empty_frames": 0,
        "frame_abs_rel": [sum(abs(p - t) / t for p, t in row) / len(row) for row in rows],
    }


@pytest.mark.parametrize("alignment", DepthAlignment)
@pytest.mark.parametrize("span", AlignmentSpan)
@pytest.mark.parametrize("max_depth", [None, 4.0])
def test_errors_equal_a_loop_over_pixels(
    alignment: DepthAlignment, span: AlignmentSpan, max_depth: float | None
) -> None:
    for seed in range(3):
        pairs = make_pairs(seed)
        got = measure_depth(reader(pairs), alignment=alignment, span=span, max_depth=max_depth)
        want = slow_errors(pairs, alignment, span, math.inf if max_depth is None else max_depth)
        # the scale of a sequence is exact to 1e-5
        tolerance = 1e-4 if (alignment, span) == (SCALE, SEQUENCE) else 1e-9
        for name in want:
            value = getattr(got, name)
            assert (list(value) if isinstance(value, tuple) else value) == pytest.approx(want[name], rel=tolerance), (
                name
            )
        shared = span is SEQUENCE or alignment is METRIC
        assert (got.correction is not None) is shared


@pytest.mark.parametrize("span", AlignmentSpan)
@pytest.mark.parametrize("alignment", DepthAlignment)
def test_true_depth_has_no_error(alignment: DepthAlignment, span: AlignmentSpan) -> None:
    pairs = [replace(pair, predicted=pair.true) for pair in make_pairs(5)]
    errors = measure_depth(reader(pairs), alignment=alignment, span=span)
    assert errors.abs_rel < 1.1e-5
    assert (errors.mae < 1e-4, errors.rmse < 1e-4, errors.log_rmse < 1.1e-5) == (True, True, True)
    assert (errors.delta_1, errors.delta_2, errors.delta_3) == (1, 1, 1)
    if alignment is METRIC:
        assert (errors.abs_rel, errors.mae, errors.rmse, errors.log_rmse) == (0, 0, 0, 0)


def assert_same_errors(got: DepthErrors, want: DepthErrors, tolerance: float) -> None:
    for name in ("abs_rel", "mae", "rmse", "log_rmse"):
        assert getattr(got, name) == pytest.approx(getattr(want, name), rel=tolerance, abs=tolerance), name
    assert list(got.frame_abs_rel) == pytest.approx(list(want.frame_abs_rel), rel=tolerance, abs=tolerance)
    assert got.num_pixels == want.num_pixels


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 1000), factor=st.floats(1e-3, 1e3), span=st.sampled_from(AlignmentSpan))
def test_scale_alignment_does_not_see_the_scale_of_the_prediction(
    seed: int, factor: float, span: AlignmentSpan
) -> None:
    pairs = make_pairs(seed)
    want = measure_depth(reader(pairs), alignment=SCALE, span=span)
    got = measure_depth(reader(changed(pairs, factor)), alignment=SCALE, span=span)
    assert_same_errors(got, want, 1e-4 if span is SEQUENCE else 1e-9)


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 1000),
    factor=st.floats(1e-2, 1e2),
    shift=st.floats(0, 50),
    span=st.sampled_from(AlignmentSpan),
)
def test_scale_and_shift_alignment_does_not_see_scale_and_shift(
    seed: int, factor: float, shift: float, span: AlignmentSpan
) -> None:
    pairs = make_pairs(seed)
    want = measure_depth(reader(pairs), alignment=SCALE_AND_SHIFT, span=span)
    got = measure_depth(reader(changed(pairs, factor, shift)), alignment=SCALE_AND_SHIFT, span=span)
    assert_same_errors(got, want, 1e-6)


def test_metric_errors_see_scale_and_scale_errors_see_shift() -> None:
    pairs = make_pairs(1)
    assert measure_depth(reader(pairs)).abs_rel != pytest.approx(measure_depth(reader(changed(pairs, 1.5))).abs_rel)
    scaled = [measure_depth(reader(some), alignment=SCALE).abs_rel for some in (pairs, changed(pairs, 1.0, 2.0))]
    assert scaled[0] != pytest.approx(scaled[1], rel=1e-2)


def test_one_correction_of_each_frame_fits_no_worse_than_one_of_all() -> None:
    pairs = [changed([pair], 1.0 + index)[0] for index, pair in enumerate(make_pairs(2))]
    each = measure_depth(reader(pairs), alignment=SCALE_AND_SHIFT, span=FRAME)
    shared = measure_depth(reader(pairs), alignment=SCALE_AND_SHIFT, span=SEQUENCE)
    assert each.rmse < 0.9 * shared.rmse


def test_correction_of_a_sequence_is_reported() -> None:
    pairs = [replace(pair, predicted=(pair.true - 0.25) / 3) for pair in make_pairs(3)]
    errors = measure_depth(reader(pairs), alignment=SCALE_AND_SHIFT)
    assert errors.correction is not None
    assert (errors.correction.scale, errors.correction.shift) == (pytest.approx(3, rel=1e-5), pytest.approx(0.25, 1e-4))
    assert errors.abs_rel < 1e-6


def test_depth_shifted_below_zero_counts_as_hardly_any() -> None:
    meter = DepthMeter(lambda *_: Correction(1.0, -5.0))
    meter.add(torch.full((1, 1), 2.0), torch.full((1, 1), 2.0))
    errors = meter.errors()
    assert errors.log_rmse == pytest.approx(math.log(2 / 1e-5))
    assert errors.abs_rel == pytest.approx(1, rel=1e-4)
    assert errors.delta_3 == 0


def test_frames_without_a_valid_pixel_are_skipped_and_counted() -> None:
    pairs = make_pairs(4, num_frames=2)
    blind = DepthPair(torch.ones(2, 3), torch.zeros(2, 3))
    masked = DepthPair(torch.ones(2, 3), torch.ones(2, 3), torch.zeros(2, 3, dtype=torch.bool))
    for alignment in DepthAlignment:
        for span in AlignmentSpan:
            want = measure_depth(reader(pairs), alignment=alignment, span=span)
            got = measure_depth(reader([blind, pairs[0], masked, pairs[1]]), alignment=alignment, span=span)
            assert (got.num_frames, got.num_empty_frames) == (2, 2)
            assert math.isnan(got.frame_abs_rel[0])
            assert math.isnan(got.frame_abs_rel[2])
            assert got.frame_abs_rel[1::2] == want.frame_abs_rel
            assert got.rmse == want.rmse


def test_deltas_do_not_include_their_bounds() -> None:
    meter = DepthMeter()
    meter.add(torch.tensor([[1.25, 1.24, 0.8, 1.5625]]), torch.ones(1, 4))
    errors = meter.errors()
    assert (errors.delta_1, errors.delta_2, errors.delta_3) == (0.5, 0.75, 1)


def test_frames_are_let_go_one_by_one() -> None:
    alive: list[weakref.ref[Tensor]] = []

    def read() -> Iterator[DepthPair]:
        for index in range(6):
            assert sum(frame() is not None for frame in alive) <= 1
            predicted = torch.rand(4, 4) + 1
            alive.append(weakref.ref(predicted))
            yield DepthPair(predicted, torch.full((4, 4), 2.0 + index))
            del predicted

    for alignment in DepthAlignment:
        assert measure_depth(read, alignment=alignment).num_frames == 6


@pytest.mark.parametrize(("alignment", "num_readings"), [(METRIC, 1), (SCALE, 2), (SCALE_AND_SHIFT, 2)])
def test_only_the_alignment_of_a_sequence_reads_twice(alignment: DepthAlignment, num_readings: int) -> None:
    readings = []

    def read() -> list[DepthPair]:
        readings.append(1)
        return make_pairs(6)

    measure_depth(read, alignment=alignment)
    assert len(readings) == num_readings
    measure_depth(read, alignment=alignment, span=FRAME)
    assert len(readings) == num_readings + 1


@pytest.mark.parametrize(("span", "num_readings"), [(SEQUENCE, 2), (FRAME, 1)])
def test_all_alignments_at_once_are_each_alone_in_no_more_readings(span: AlignmentSpan, num_readings: int) -> None:
    readings = []

    def read() -> list[DepthPair]:
        readings.append(1)
        return make_pairs(9)

    together = measure_alignments(read, list(DepthAlignment), span=span, max_depth=4.0)
    assert len(readings) == num_readings
    for alignment in DepthAlignment:
        assert together[alignment] == measure_depth(read, alignment=alignment, span=span, max_depth=4.0)


def test_frames_that_can_be_read_only_once_are_refused() -> None:
    once = iter(make_pairs(7))
    with pytest.raises(InputError, match="4 came first and 0 then; pass a function that starts anew"):
        measure_depth(lambda: once, alignment=SCALE)
    shrinking = [make_pairs(7), make_pairs(7)[:3]]
    with pytest.raises(InputError, match="4 came first and 3 then; pass a function that starts anew"):
        measure_depth(lambda: shrinking.pop(0), alignment=SCALE)


@pytest.mark.parametrize("alignment", DepthAlignment)
@pytest.mark.parametrize("span", AlignmentSpan)
def test_sequence_without_a_valid_pixel_is_refused(alignment: DepthAlignment, span: AlignmentSpan) -> None:
    blind = DepthPair(torch.ones(2, 3), torch.zeros(2, 3))
    for pairs in ([], [blind, blind]):
        with pytest.raises(InputError, match=f"none of {len(pairs)} frames has one; check the unit"):
            measure_depth(reader(pairs), alignment=alignment, span=span)


def test_maps_of_different_sizes_are_refused() -> None:
    with pytest.raises(InputError, match="predicted depth map is 3x2 pixels but the true one 2x3; resample"):
        valid_pixels(DepthPair(torch.ones(2, 3), torch.ones(3, 2)))
    with pytest.raises(InputError, match="mask is 2x2 pixels but the depth maps 3x2"):
        DepthMeter().add(torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 2, dtype=torch.bool))


@pytest.mark.parametrize("max_depth", [0.0, -1.0, math.nan])
@pytest.mark.parametrize("alignment", DepthAlignment)
def test_largest_depth_must_be_positive(max_depth: float, alignment: DepthAlignment) -> None:
    with pytest.raises(SettingError, match="largest depth that counts must be positive"):
        measure_depth(reader(make_pairs(8)), alignment=alignment, max_depth=max_depth)
