"""Similarities of space: scale, rotate, translate. They form a group, Sim(3); one fits paired points best."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from longtake.spatial.pose import nearest_rotation, rigid_pose

_ROUNDING = 64 * torch.finfo(torch.float64).eps


@dataclass(frozen=True, slots=True)
class Similarity:
    """x ↦ scale · rotation x + translation. Named `a_from_b`, it takes what is known in b into a."""

    scale: Float[Tensor, ""]
    rotation: Float[Tensor, "3 3"]
    translation: Float[Tensor, "3"]

    @classmethod
    def identity(cls, device: torch.device) -> "Similarity":
        return cls(torch.ones((), device=device), torch.eye(3, device=device), torch.zeros(3, device=device))

    @classmethod
    def of_numbers(cls, numbers: Sequence[float], dtype: torch.dtype = torch.float32) -> "Similarity":
        """On the host: scale, rotation row by row, translation."""
        values = torch.tensor(numbers, dtype=dtype)
        return cls(values[0], values[1:10].reshape(3, 3), values[10:])

    @classmethod
    def of_matrix(cls, matrix: Float[Tensor, "4 4"]) -> "Similarity":
        """From one that acts on homogeneous points, whose rotation is scaled."""
        scale = torch.linalg.det(matrix[:3, :3]).pow(1 / 3)
        return cls(scale, matrix[:3, :3] / scale, matrix[:3, 3])

    def numbers(self) -> tuple[float, ...]:
        """From which `of_numbers` makes it again, in its own number type."""
        parts = (self.scale, self.rotation, self.translation)
        return tuple(torch.cat([part.reshape(-1) for part in parts]).tolist())

    def to(self, device: torch.device) -> "Similarity":
        return Similarity(self.scale.to(device), self.rotation.to(device), self.translation.to(device))

    @property
    def matrix(self) -> Float[Tensor, "4 4"]:
        """The scale included, so that it acts on homogeneous points."""
        return rigid_pose(self.scale * self.rotation, self.translation)

    def of_points(self, points: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3"]:
        return self.scale * points @ self.rotation.T + self.translation

    def of_cameras(self, world_from_camera: Float[Tensor, "*batch 4 4"]) -> Float[Tensor, "*batch 4 4"]:
        """Cameras moved along; they stay rigid, the scale goes into their centres and into depth."""
        rotation = self.rotation @ world_from_camera[..., :3, :3]
        return rigid_pose(rotation, self.of_points(world_from_camera[..., :3, 3]))

    def __matmul__(self, inner: "Similarity") -> "Similarity":
        """First the inner one, then this."""
        return Similarity(self.scale * inner.scale, self.rotation @ inner.rotation, self.of_points(inner.translation))

    def inverse(self) -> "Similarity":
        back = self.rotation.T / self.scale
        return Similarity(1 / self.scale, self.rotation.T, -back @ self.translation)


def best_similarity(
    source: Float[Tensor, "points 3"], target: Float[Tensor, "points 3"], *, with_scale: bool = True
) -> Similarity:
    """`target_from_source` with the least sum of squared distances (Umeyama, PAMI 1991).

    Without scale, among rigid motions. The rotation is proper even for reflected points; where several are best, as for
    points on a line, it is one of them. Points that fix no rotation (those of one side coincide, or the sides are
    uncorrelated) are only translated.
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
