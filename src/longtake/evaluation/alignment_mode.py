"""How a result may be moved onto the truth before its errors are counted."""

from dataclasses import replace
from enum import StrEnum

import torch

from longtake.errors import InputError
from longtake.evaluation.association import PosePairs
from longtake.spatial.similarity import Similarity, best_similarity

_FEWEST_FOR_SCALE = 3


class AlignmentMode(StrEnum):
    """What of a result may be chosen so that it lies best: by its camera centres, or by the points of a cloud."""

    SIM3 = "sim3"
    """Scale, rotation and translation: for a result whose unit of length means nothing."""
    SE3 = "se3"
    """Rotation and translation: for a result in metres."""
    NONE = "none"
    """Nothing: for a result in the world of the truth."""


def truth_from_result(pairs: PosePairs, alignment_mode: AlignmentMode) -> Similarity:
    """The best motion that `alignment_mode` allows."""
    if alignment_mode is AlignmentMode.NONE:
        one, eye = torch.ones((), dtype=torch.float64), torch.eye(3, dtype=torch.float64)
        return Similarity(one, eye, torch.zeros(3, dtype=torch.float64))
    if alignment_mode is AlignmentMode.SIM3 and len(pairs) < _FEWEST_FOR_SCALE:
        raise InputError(
            f"Alignment with scale needs {_FEWEST_FOR_SCALE} matched poses at least, but there are {len(pairs)}; "
            f"allow larger gaps in time or align with '{AlignmentMode.SE3}'."
        )
    return best_similarity(
        pairs.result[:, :3, 3], pairs.truth[:, :3, 3], with_scale=alignment_mode is AlignmentMode.SIM3
    )


def move_onto_truth(pairs: PosePairs, alignment_mode: AlignmentMode) -> PosePairs:
    """The same pairs, the result moved as well as `alignment_mode` allows."""
    return replace(pairs, result=truth_from_result(pairs, alignment_mode).of_cameras(pairs.result))
