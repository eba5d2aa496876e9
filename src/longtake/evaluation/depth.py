"""Errors of predicted depth against the truth, one frame in memory at a time.

Every valid pixel of a sequence counts alike, as in published evaluations of video depth. A pixel is valid where the
true depth is finite, positive and within the limit, the predicted depth finite and positive, and the mask set.
"""

import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from longtake.errors import InputError, SettingError
from longtake.evaluation.depth_alignment import (
    AlignmentSpan,
    Correction,
    DepthAlignment,
    FrameFit,
    SequenceFit,
    fit_of_frame,
    sequence_fit,
)

_DELTA = 1.25
_SMALLEST_DEPTH = 1e-5  # what published evaluations raise an aligned depth to, for a shift may take it below zero


@dataclass(frozen=True, slots=True)
class DepthPair:
    """What was predicted for a frame and what is true; a mask leaves pixels out."""

    predicted: Float[Tensor, "height width"]
    true: Float[Tensor, "true_height true_width"]
    mask: Bool[Tensor, "mask_height mask_width"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthErrors:
    """Errors over all valid pixels of all frames; lengths in the unit of the truth."""

    abs_rel: float
    """Mean of |predicted - true| / true."""
    mae: float
    rmse: float
    log_rmse: float
    """Of natural logarithms."""
    delta_1: float
    """Share of pixels where predicted / true or its inverse, whichever is larger, is below 1.25."""
    delta_2: float
    """Below 1.25²."""
    delta_3: float
    """Below 1.25³."""
    num_frames: int
    """Frames with a valid pixel."""
    num_empty_frames: int
    """Frames without one, which were skipped."""
    num_pixels: int
    frame_abs_rel: tuple[float, ...]
    """`abs_rel` of each frame, the skipped ones too, as NaN."""
    correction: Correction | None
    """What the predicted depths went through; none where each frame had its own."""


class DepthMeter:
    """Adds up errors frame by frame. It holds a few sums, and one number for each frame to plot.

    `fit` gives the correction for a frame's valid pixels, predicted and true; without it there is none.
    """

    def __init__(self, fit: FrameFit | None = None, *, max_depth: float | None = None) -> None:
        self._fit = fit
        self._max_depth = _limit(max_depth)
        self._sums = torch.zeros(7, dtype=torch.float64)
        self._num_pixels = 0
        self._frame_abs_rel = array("d")

    def add(
        self,
        predicted: Float[Tensor, "height width"],
        true: Float[Tensor, "true_height true_width"],
        mask: Bool[Tensor, "mask_height mask_width"] | None = None,
    ) -> None:
        """Count one frame; one without a valid pixel is skipped."""
        self.add_pixels(*valid_pixels(DepthPair(predicted, true, mask), self._max_depth))

    def add_pixels(self, predicted: Float[Tensor, " pixels"], true: Float[Tensor, " pixels"]) -> None:
        """Count the valid pixels of one frame, which may have none."""
        if not len(true):
            self._frame_abs_rel.append(math.nan)
            return
        if self._fit is not None:
            predicted = self._fit(predicted, true).of(predicted)
        sums = _error_sums(predicted.clamp_min(_SMALLEST_DEPTH), true)
        self._sums += sums
        self._num_pixels += len(true)
        self._frame_abs_rel.append(float(sums[0]) / len(true))

    def errors(self, correction: Correction | None = None) -> DepthErrors:
        """The errors of all frames so far, and a note of the correction they share."""
        if not self._num_pixels:
            raise _no_valid_pixel(len(self._frame_abs_rel))
        num_empty = sum(map(math.isnan, self._frame_abs_rel))
        abs_rel, mae, square, log_square, *deltas = (self._sums / self._num_pixels).tolist()
        return DepthErrors(
            abs_rel=abs_rel,
            mae=mae,
            rmse=math.sqrt(square),
            log_rmse=math.sqrt(log_square),
            delta_1=deltas[0],
            delta_2=deltas[1],
            delta_3=deltas[2],
            num_frames=len(self._frame_abs_rel) - num_empty,
            num_empty_frames=num_empty,
            num_pixels=self._num_pixels,
            frame_abs_rel=tuple(self._frame_abs_rel),
            correction=correction,
        )


def measure_depth(
    read_frames: Callable[[], Iterable[DepthPair]],
    *,
    alignment: DepthAlignment = DepthAlignment.METRIC,
    span: AlignmentSpan = AlignmentSpan.SEQUENCE,
    max_depth: float | None = None,
) -> DepthErrors:
    """Errors of a sequence after alignment.

    `read_frames` starts from the first frame each time it is called: to align a whole sequence takes two readings, all
    else takes one.
    """
    return measure_alignments(read_frames, (alignment,), span=span, max_depth=max_depth)[alignment]


def measure_alignments(
    read_frames: Callable[[], Iterable[DepthPair]],
    alignments: Sequence[DepthAlignment],
    *,
    span: AlignmentSpan = AlignmentSpan.SEQUENCE,
    max_depth: float | None = None,
) -> dict[DepthAlignment, DepthErrors]:
    """Errors of a sequence after each alignment, in as many readings as the last of them takes alone."""
    limit = _limit(max_depth)
    shared = {DepthAlignment.METRIC: Correction()}
    fits = {alignment: sequence_fit(alignment) for alignment in alignments if alignment not in shared}
    num_fitted = None
    if fits and span is AlignmentSpan.SEQUENCE:
        num_fitted = _fit_sequence(list(fits.values()), read_frames(), limit)
        shared |= {alignment: fit.correction() for alignment, fit in fits.items()}
    meters = {
        alignment: DepthMeter(_always(shared[alignment]) if alignment in shared else fit_of_frame(alignment))
        for alignment in alignments
    }
    num_read = _read_into(list(meters.values()), read_frames(), limit)
    if num_fitted is not None and num_fitted != num_read:
        raise InputError(
            f"Expected the same frames in both readings, but {num_fitted} came first and {num_read} then; "
            "pass a function that starts anew each time it is called."
        )
    return {alignment: meter.errors(shared.get(alignment)) for alignment, meter in meters.items()}


def _always(correction: Correction) -> FrameFit:
    return lambda *_: correction


def _fit_sequence(fits: Sequence[SequenceFit], pairs: Iterable[DepthPair], limit: float) -> int:
    """Show all frames to all fits; returns how many there are."""
    num_frames = num_pixels = 0
    for pair in pairs:
        predicted, true = valid_pixels(pair, limit)
        for fit in fits:
            fit.add(predicted, true)
        num_frames += 1
        num_pixels += len(true)
    if not num_pixels:
        raise _no_valid_pixel(num_frames)
    return num_frames


def valid_pixels(
    pair: DepthPair, max_depth: float = math.inf
) -> tuple[Float[Tensor, " pixels"], Float[Tensor, " pixels"]]:
    """Predicted and true depth of the pixels that count, in double precision."""
    predicted, true, mask = pair.predicted, pair.true, pair.mask
    if predicted.shape != true.shape:
        raise InputError(
            f"The predicted depth map is {_size(predicted)} pixels but the true one {_size(true)}; "
            "resample the predicted map to the true one first."
        )
    if mask is not None and mask.shape != true.shape:
        raise InputError(f"The mask is {_size(mask)} pixels but the depth maps {_size(true)}; they must be equal.")
    valid = true.isfinite() & (true > 0) & (true <= max_depth) & predicted.isfinite() & (predicted > 0)
    if mask is not None:
        valid &= mask
    return predicted[valid].double(), true[valid].double()


def _limit(max_depth: float | None) -> float:
    if max_depth is not None and not max_depth > 0:
        raise SettingError(f"The largest depth that counts must be positive, but is {max_depth}.")
    return math.inf if max_depth is None else max_depth


def _no_valid_pixel(num_frames: int) -> InputError:
    return InputError(
        f"Expected a pixel with true and predicted depth, but none of {num_frames} frames has one; "
        "check the unit, the mask and the largest depth that counts."
    )


def _size(image: Tensor) -> str:
    return f"{image.shape[1]}x{image.shape[0]}"


def _read_into(meters: Sequence[DepthMeter], pairs: Iterable[DepthPair], limit: float) -> int:
    """Show all frames to all meters; returns how many there are."""
    num_frames = 0
    for pair in pairs:
        predicted, true = valid_pixels(pair, limit)
        for meter in meters:
            meter.add_pixels(predicted, true)
        num_frames += 1
    return num_frames


def _error_sums(predicted: Float[Tensor, " pixels"], true: Float[Tensor, " pixels"]) -> Float[Tensor, "7"]:
    """Sums of relative, absolute, square and square logarithmic error, and how many pixels pass each delta."""
    distance = (predicted - true).abs()
    log_distance = (predicted.log() - true.log()).abs()
    ratio = torch.maximum(predicted / true, true / predicted)
    columns = [distance / true, distance, distance.square(), log_distance.square()]
    columns += [(ratio < _DELTA**power).double() for power in (1, 2, 3)]
    return torch.stack([column.sum() for column in columns]).cpu()
