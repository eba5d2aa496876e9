"""A result moves onto the truth as far as it is free to."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from longtake.errors import InputError
from longtake.evaluation.alignment_mode import AlignmentMode, move_onto_truth, truth_from_result
from longtake.evaluation.association import PosePairs
from longtake.spatial.pose import matrix_from_quaternion
from longtake.spatial.similarity import Similarity


@pytest.mark.parametrize(("alignment_mode", "scale"), [(AlignmentMode.SIM3, 0.25), (AlignmentMode.SE3, 1.0)])
def test_moved_copy_is_moved_back(
    make_pairs: Callable[..., PosePairs], alignment_mode: AlignmentMode, scale: float
) -> None:
    pairs = make_pairs(0)
    known = Similarity(
        torch.tensor(scale).double(),
        matrix_from_quaternion(torch.tensor([0.1, -0.7, 0.4, 0.2]).double()),
        torch.tensor([3.0, -4, 5]).double(),
    )
    moved = replace(pairs, result=known.inverse().of_cameras(pairs.truth))
    torch.testing.assert_close(truth_from_result(moved, alignment_mode).matrix, known.matrix)
    torch.testing.assert_close(move_onto_truth(moved, alignment_mode).result, pairs.truth)


def test_without_freedom_nothing_moves(make_pairs: Callable[..., PosePairs]) -> None:
    pairs = make_pairs(1)
    assert torch.equal(move_onto_truth(pairs, AlignmentMode.NONE).result, pairs.result)


def test_scale_needs_three_poses(make_pairs: Callable[..., PosePairs]) -> None:
    pairs = make_pairs(2, num_frames=2)
    with pytest.raises(InputError, match=r"needs 3 matched poses at least, but there are 2; .* align with 'se3'"):
        truth_from_result(pairs, AlignmentMode.SIM3)
    assert truth_from_result(pairs, AlignmentMode.SE3).scale == 1
