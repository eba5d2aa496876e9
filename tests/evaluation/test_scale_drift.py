"""Scale drift: none for one scale throughout, the true one for a scale that grows, and none to tell without motion."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longtake.errors import SettingError
from longtake.evaluation.absolute import absolute_error
from longtake.evaluation.alignment_mode import AlignmentMode
from longtake.evaluation.association import PosePairs
from longtake.evaluation.scale_drift import scale_drift
from longtake.spatial.pose import matrix_from_quaternion, rigid_pose
from longtake.spatial.similarity import Similarity

MakePairs = Callable[..., PosePairs]


def along(centres: Tensor) -> Tensor:
    return rigid_pose(torch.eye(3).double().expand(len(centres), 3, 3), centres)


def straight(steps: Tensor) -> Tensor:
    """Cameras on a line, so far apart."""
    x = torch.cat([torch.zeros(1).double(), steps.double().cumsum(dim=0)])
    return along(torch.stack([x, 0 * x, 0 * x], dim=-1))


def slow_local_scales(pairs: PosePairs, steps: int, scale: float) -> dict[int, float]:
    """By the first frame of each segment."""
    result, truth = scale * pairs.result[:, :3, 3].numpy(), pairs.truth[:, :3, 3].numpy()

    def way(points: np.ndarray, start: int) -> float:
        return sum(math.dist(points[k], points[k + 1]) for k in range(start, start + steps))

    starts = range(len(pairs) - steps)
    mean = sum(way(truth, start) for start in starts) / len(starts)
    return {start: way(result, start) / way(truth, start) for start in starts if way(truth, start) > mean / 100}


@given(seed=st.integers(0, 1000), steps=st.integers(1, 11), alignment_mode=st.sampled_from(AlignmentMode))
@settings(deadline=None, max_examples=40)
def test_local_scales_are_those_of_the_slow_version(
    make_pairs: MakePairs, seed: int, steps: int, alignment_mode: AlignmentMode
) -> None:
    pairs = make_pairs(seed)
    found = scale_drift(pairs, segment_steps=steps, alignment_mode=alignment_mode)
    assert found is not None
    scales = slow_local_scales(pairs, steps, absolute_error(pairs, alignment_mode=alignment_mode).scale)
    starts, values = list(scales), list(scales.values())
    assert found.local_scale.tolist() == pytest.approx(values)
    assert found.largest_over_smallest == pytest.approx(max(values) / min(values))
    slope = np.polyfit(starts, values, 1)[0] if len(starts) > 1 else 0.0
    assert found.percent_per_100_frames == pytest.approx(1e4 * slope / np.mean(values), abs=1e-6)


@given(seed=st.integers(0, 1000), alignment_mode=st.sampled_from(AlignmentMode))
@settings(deadline=None, max_examples=30)
def test_scaled_copy_has_no_drift(make_pairs: MakePairs, seed: int, alignment_mode: AlignmentMode) -> None:
    pairs = make_pairs(seed, num_frames=40)
    numbers = torch.randn(8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    moved = Similarity(numbers[0].exp(), matrix_from_quaternion(numbers[1:5]), numbers[5:])
    found = scale_drift(replace(pairs, result=moved.of_cameras(pairs.truth)), alignment_mode=alignment_mode)
    assert found is not None
    assert found.segment_steps == 3
    assert found.largest_over_smallest == pytest.approx(1, abs=1e-9)
    assert found.percent_per_100_frames == pytest.approx(0, abs=1e-6)


def test_scale_that_grows_by_a_fifth_in_100_frames_says_so() -> None:
    num_steps = 200
    growing = 1 + 0.4 * (torch.arange(num_steps).double() + 0.5) / num_steps
    pairs = PosePairs(
        timestamp_s=torch.arange(num_steps + 1).double(),
        truth=straight(torch.ones(num_steps)),
        result=straight(growing),
    )
    found = scale_drift(pairs, segment_steps=10)
    assert found is not None
    assert found.percent_per_100_frames == pytest.approx(20 / 1.2)
    assert found.largest_over_smallest == pytest.approx(1.39 / 1.01)
    assert found.timestamp_s.tolist() == list(range(5, 196))
    backwards = scale_drift(replace(pairs, result=pairs.truth, truth=pairs.result), segment_steps=10)
    assert backwards is not None
    assert backwards.percent_per_100_frames < 0


def test_segments_in_which_the_truth_stands_still_are_left_out() -> None:
    steps = torch.tensor([1.0, 1, 0, 1e-3, 0, 1, 1])
    pairs = PosePairs(
        timestamp_s=torch.arange(8).double(), truth=straight(steps), result=straight(steps + 1e-2 * (steps < 1))
    )
    found = scale_drift(pairs, segment_steps=1, alignment_mode=AlignmentMode.NONE)
    assert found is not None
    assert found.timestamp_s.tolist() == [0, 1, 5, 6]
    assert found.local_scale.tolist() == pytest.approx([1, 1, 1, 1])


def test_short_trajectory_is_one_segment(make_pairs: MakePairs) -> None:
    found = scale_drift(make_pairs(0, num_frames=4), segment_steps=50)
    assert found is not None
    assert found.segment_steps == 3
    assert (found.largest_over_smallest, found.percent_per_100_frames) == (1, 0)


def test_result_that_stops_has_endless_drift() -> None:
    pairs = PosePairs(
        timestamp_s=torch.arange(7).double(),
        truth=straight(torch.ones(6)),
        result=straight(torch.tensor([1.0, 1, 1, 0, 0, 0])),
    )
    found = scale_drift(pairs, segment_steps=2, alignment_mode=AlignmentMode.NONE)
    assert found is not None
    assert found.largest_over_smallest == math.inf
    assert found.percent_per_100_frames < 0


@pytest.mark.parametrize("whose", ["result", "truth"])
def test_camera_that_goes_nowhere_has_no_scale(make_pairs: MakePairs, whose: str) -> None:
    pairs = replace(make_pairs(0), **{whose: along(torch.ones(12, 3).double())})
    assert scale_drift(pairs) is None


def test_segment_needs_a_step(make_pairs: MakePairs) -> None:
    with pytest.raises(SettingError, match="1 step at least, but 0 came"):
        scale_drift(make_pairs(0), segment_steps=0)
