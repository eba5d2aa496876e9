"""What a predicted depth may be corrected by before it is measured: nothing, a scale, or a scale and a shift.

The scale is the median of true / predicted over valid pixels; of an even number, the lower middle one. (Some published
figures divide the median true depth by the median predicted one instead.) Scale and shift are the exact least squares
in depth, where some published figures approach least absolute deviations; a prediction that runs against the truth is
not turned over: its scale is 0.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

_BIN = 2e-5
_NUM_HALF = 1_200_000
_CONSTANT = 1e-12


class DepthAlignment(StrEnum):
    """What may be corrected."""

    METRIC = "metric"
    """Nothing."""
    SCALE = "scale"
    SCALE_AND_SHIFT = "scale-shift"


class AlignmentSpan(StrEnum):
    """Over what one correction holds."""

    SEQUENCE = "sequence"
    FRAME = "frame"


@dataclass(frozen=True, slots=True)
class Correction:
    """scale · depth + shift."""

    scale: float = 1.0
    shift: float = 0.0

    def of(self, depth: Float[Tensor, " pixels"]) -> Float[Tensor, " pixels"]:
        return self.scale * depth + self.shift


FrameFit = Callable[[Float[Tensor, " pixels"], Float[Tensor, " pixels"]], Correction]


@runtime_checkable
class SequenceFit(Protocol):
    """Takes valid pixels of one frame after the other, some without any, and gives the correction for them all."""

    def add(self, predicted: Float[Tensor, " pixels"], true: Float[Tensor, " pixels"]) -> None: ...

    def correction(self) -> Correction: ...


def fit_of_frame(alignment: DepthAlignment) -> FrameFit:
    """How a single frame is corrected, from one valid pixel at least."""
    fits = {
        DepthAlignment.METRIC: lambda *_: Correction(),
        DepthAlignment.SCALE: median_scale,
        DepthAlignment.SCALE_AND_SHIFT: least_squares,
    }
    return fits[alignment]


def sequence_fit(alignment: DepthAlignment) -> SequenceFit:
    """What finds the correction of a whole sequence; a metric one needs none."""
    assert alignment is not DepthAlignment.METRIC
    return MedianScale() if alignment is DepthAlignment.SCALE else LeastSquares()


def median_scale(predicted: Float[Tensor, " pixels"], true: Float[Tensor, " pixels"]) -> Correction:
    """The median of true / predicted, exactly."""
    return Correction(scale=float((true / predicted).median()))


def least_squares(predicted: Float[Tensor, " pixels"], true: Float[Tensor, " pixels"]) -> Correction:
    """Scale and shift with the least sum of squared errors."""
    fit = LeastSquares()
    fit.add(predicted, true)
    return fit.correction()


class MedianScale:
    """The median of true / predicted over a sequence, from a histogram of its logarithm that does not grow.

    Bins are 2e-5 wide, so the scale is within 1e-5 of the exact median, relatively, and 1 where that is 1. They reach
    from e⁻²⁴ to e²⁴; what lies outside is counted in the outermost bin.
    """

    def __init__(self) -> None:
        self._counts = torch.zeros(2 * _NUM_HALF + 1, dtype=torch.int64)

    def add(self, predicted: Float[Tensor, " pixels"], true: Float[Tensor, " pixels"]) -> None:
        bins = ((true.log() - predicted.log()) / _BIN).round().long() + _NUM_HALF
        bins = bins.clamp(0, 2 * _NUM_HALF).cpu()
        self._counts.index_add_(0, bins, torch.ones_like(bins))

    def correction(self) -> Correction:
        reached = self._counts.cumsum(dim=0)
        assert reached[-1]
        middle = int(torch.searchsorted(reached, (reached[-1] + 1) // 2))
        return Correction(scale=math.exp((middle - _NUM_HALF) * _BIN))


class LeastSquares:
    """Scale and shift over a sequence from running means and their products of deviations, which do not cancel."""

    def __init__(self) -> None:
        self._num_pixels = 0
        self._mean = torch.zeros(2, dtype=torch.float64)
        self._spread = torch.zeros(2, dtype=torch.float64)

    def add(self, predicted: Float[Tensor, " pixels"], true: Float[Tensor, " pixels"]) -> None:
        count = len(true)
        if not count:
            return
        mean = torch.stack([predicted.mean(), true.mean()])
        deviation = predicted - mean[0]
        spread = torch.stack([deviation.square().sum(), deviation @ (true - mean[1])]).cpu()
        step = mean.cpu() - self._mean
        total = self._num_pixels + count
        self._spread += spread + step[0] * step * (self._num_pixels * count / total)
        self._mean += step * (count / total)
        self._num_pixels = total

    def correction(self) -> Correction:
        assert self._num_pixels
        (predicted, true), (square, product) = self._mean.tolist(), self._spread.tolist()
        is_constant = square <= self._num_pixels * (_CONSTANT * predicted) ** 2
        scale = 0.0 if is_constant else max(0.0, product / square)
        return Correction(scale=scale, shift=true - scale * predicted)
