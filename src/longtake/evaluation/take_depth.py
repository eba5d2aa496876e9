"""Depth of a take against that of another, frame by matched frame."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from longtake.errors import InputError
from longtake.evaluation.depth import DepthErrors, DepthPair, measure_alignments
from longtake.evaluation.depth_alignment import AlignmentSpan, DepthAlignment
from longtake.evaluation.matched import Matched
from longtake.evaluation.settings import EvalSettings
from longtake.evaluation.steps import BeginSteps, stepping, uncounted
from longtake.takes.header import Unit
from longtake.takes.take import Take


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeDepth:
    """Errors of depth under several alignments, which count the same pixels."""

    chosen: DepthAlignment
    span: AlignmentSpan
    by_alignment: Mapping[DepthAlignment, DepthErrors]
    resampled_from: tuple[int, int] | None
    """(height, width) of the result's maps where they differ from the truth's."""
    timestamp_s: Float64[Tensor, " frames"]
    """The truth's, of all matched frames."""

    @property
    def errors(self) -> DepthErrors:
        """Under the chosen alignment."""
        return self.by_alignment[self.chosen]


def measure_take_depth(matched: Matched, settings: EvalSettings, begin: BeginSteps = uncounted) -> TakeDepth:
    """Errors of all matched frames of two takes with depth; `begin` is told of each frame that is read.

    A result's maps of another size are resampled to the truth's, to the nearest pixel: by where the video lay in them,
    if the result says so and the truth has the video's size; else if their shape is the same, if the larger map, scaled
    to the height of the smaller, is less than a pixel wider or narrower.
    """
    result, truth = matched.result.take_with_depth(), matched.truth.take_with_depth()
    num_readings = 2 if settings.depth_span is AlignmentSpan.SEQUENCE else 1
    advance = begin(num_readings * len(matched.frames))

    def read_frames() -> Iterator[DepthPair]:
        indices = matched.frames.result_index.tolist(), matched.frames.truth_index.tolist()
        for here, there in stepping(zip(*indices, strict=True), advance):
            yield DepthPair(_seen_as(truth, result, here), torch.from_numpy(truth.depth(there)))

    return TakeDepth(
        chosen=settings.depth_align,
        span=settings.depth_span,
        by_alignment=measure_alignments(read_frames, _alignments(matched, settings), span=settings.depth_span),
        resampled_from=None if result.header.size == truth.header.size else result.header.size,
        timestamp_s=matched.poses.timestamp_s,
    )


def _seen_as(truth: Take, result: Take, position: int) -> Float[Tensor, "height width"]:
    """Depth of a result's frame in the pixels of the truth; 0 where the network saw nothing."""
    depth, size = result.depth(position), truth.header.size
    placement = result.records[position].source or result.header.source
    if placement is not None and (placement.source_height, placement.source_width) == size:
        return torch.from_numpy(placement.depth_to_source(depth))
    _require_same_view(result.header.size, size)
    return resample(torch.from_numpy(depth), size)


def resample(depth: Float[Tensor, "height width"], size: tuple[int, int]) -> Float[Tensor, "new_height new_width"]:
    """The nearest pixel's depth for each pixel of a map of this (height, width), which shows the same view."""
    if depth.shape == size:
        return depth
    row, column = (_nearest(old, new) for old, new in zip(depth.shape, size, strict=True))
    return depth[row[:, None], column]


def _nearest(old: int, new: int) -> Tensor:
    """For each of `new` pixels, which of `old` ones has the same place between the two edges of the view."""
    return ((2 * torch.arange(new) + 1) * old).div(2 * new, rounding_mode="floor")


def _require_same_view(found: tuple[int, int], wanted: tuple[int, int]) -> None:
    (coarse_height, coarse_width), (fine_height, fine_width) = sorted((found, wanted))
    if abs(fine_width * coarse_height - coarse_width * fine_height) >= fine_height:
        raise InputError(
            f"Expected depth maps of one shape, but the result's are {found[1]}x{found[0]} and the truth's "
            f"{wanted[1]}x{wanted[0]}; crop or pad the result's to the view of the truth."
        )


def _alignments(matched: Matched, settings: EvalSettings) -> list[DepthAlignment]:
    """All, but without metric where a unit is unknown, unless it was asked for."""
    are_metric = matched.result.unit is Unit.METRE and matched.truth.unit is Unit.METRE
    return [
        alignment
        for alignment in DepthAlignment
        if are_metric or alignment in (settings.depth_align, DepthAlignment.SCALE, DepthAlignment.SCALE_AND_SHIFT)
    ]
