"""A map on disk against the walk that it is of: both as takes, in memory."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from longtake.errors import InputError
from longtake.evaluation.agreement import ClipGeometry
from longtake.evaluation.walk_quality import FilmedWalk, MappedWalk, WorldQuality, score_walk
from longtake.takes.take import Take


def read_walk(truth: Take) -> FilmedWalk:
    """All frames of a filmed walk, in memory."""
    images = torch.from_numpy(np.stack(list(truth.images()))).permute(0, 3, 1, 2)
    return FilmedWalk(images=images.float() / 255, truth=_clip(truth), intrinsics=truth.intrinsics[0].float())


def score_take(result: Take, film: FilmedWalk, *, seed: int, watched_s: float) -> WorldQuality:
    """A map on disk against the truth of its walk."""
    if len(result) != len(film.images):
        raise InputError(
            f"Expected a result for each of {len(film.images)} frames, but {result.folder} has {len(result)}."
        )
    found = MappedWalk(_clip(result), result.intrinsics.float())
    return score_walk(found, film, seed=seed, watched_s=watched_s)


def _clip(take: Take) -> ClipGeometry:
    return ClipGeometry(depth_of(take), take.trajectory.world_from_camera)


def depth_of(take: Take) -> Float[Tensor, "frames height width"]:
    """Of all frames, as they were written."""
    return torch.stack([torch.from_numpy(take.depth(position)) for position in range(len(take))])
