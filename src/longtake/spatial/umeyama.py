"""The similarity that brings paired points closest together (Umeyama, PAMI 1991)."""

import torch
from jaxtyping import Float
from torch import Tensor

from longtake.spatial.rotation import nearest_rotation
from longtake.spatial.similarity import Similarity

_ROUNDING = 64 * torch.finfo(torch.float64).eps


def best_similarity(
    source: Float[Tensor, "points 3"], target: Float[Tensor, "points 3"], *, with_scale: bool = True
) -> Similarity:
    """`target_from_source` with the least sum of squared distances; without scale, among rigid motions.

    The rotation is proper even for reflected points; where several are best, as for points on a line, it is one of
    them. Points that fix no rotation (those of one side coincide, or the sides are uncorrelated) are only translated.
    """
    assert len(source) > 0, "no points to align"
    source_mean, target_mean = source.double().mean(dim=0), target.double().mean(dim=0)
    from_source, from_target = source.double() - source_mean, target.double() - target_mean
    covariance = from_target.T @ from_source
    scale, rotation = torch.ones_like(covariance[0, 0]), torch.eye(3).to(covariance)
    limit = _ROUNDING * from_source.norm() * from_target.norm()
    if _spread(from_source, source_mean) and _spread(from_target, target_mean) and covariance.norm() > limit:
        rotation = nearest_rotation(covariance)
        if with_scale:
            scale = (rotation * covariance).sum() / from_source.square().sum()
    translation = target_mean - scale * rotation @ source_mean
    return Similarity(scale.to(source.dtype), rotation.to(source.dtype), translation.to(source.dtype))


def _spread(centred: Float[Tensor, "points 3"], mean: Float[Tensor, "3"]) -> bool:
    """Whether points differ from their mean by more than rounding."""
    return bool(centred.abs().max() > _ROUNDING * mean.abs().max())
