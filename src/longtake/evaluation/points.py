"""Errors of a predicted cloud against the true one: how far its points lie off, and what of the truth it misses."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from longtake.errors import InputError, SettingError
from longtake.evaluation.neighbours import Neighbours, check_cloud
from longtake.evaluation.registration import in_double
from longtake.spatial.similarity import Similarity

_SHORTEST_NORMAL = 1e-6


@dataclass(frozen=True, slots=True)
class Cloud:
    """Points, and their normals where known; a normal of no length is unknown, any other length does not matter."""

    points: Float[Tensor, "points 3"]
    normals: Float[Tensor, "points 3"] | None = None

    def moved(self, similarity: Similarity) -> "Cloud":
        """The same cloud elsewhere, in double precision."""
        similarity = in_double(similarity)
        turned = None if self.normals is None else self.normals.double().cpu() @ similarity.rotation.T
        return Cloud(similarity.of_points(self.points.double().cpu()), turned)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointErrors:
    """Distances are in the unit of the truth, shares from 0 to 1."""

    accuracy_mean: float
    """Distance from a predicted point to the nearest true one."""
    accuracy_median: float
    completeness_mean: float
    """Distance from a true point to the nearest predicted one."""
    completeness_median: float
    threshold: float
    precision: float
    """Share of predicted points with a true one closer than the threshold."""
    recall: float
    """Share of true points with a predicted one closer than the threshold."""
    f1: float
    """Harmonic mean of precision and recall; 0 where both are."""
    normal_accuracy: float | None
    """Mean |cosine| between a predicted point's normal and that of the nearest true one; none where unknown."""
    normal_completeness: float | None
    """The same from the true points."""
    num_predicted: int
    num_true: int

    @property
    def normal_consistency(self) -> float | None:
        """The mean of both directions."""
        if self.normal_accuracy is None or self.normal_completeness is None:
            return None
        return (self.normal_accuracy + self.normal_completeness) / 2


def measure_points(predicted: Cloud, true: Cloud, *, threshold: float) -> PointErrors:
    """Errors of two clouds that lie in the same place, at the same scale."""
    if not threshold > 0:
        raise SettingError(f"The distance at which points count as met must be positive, but is {threshold}.")
    _check(predicted, "predicted")
    _check(true, "true")
    accuracy, nearest_true = Neighbours(true.points).nearest(predicted.points)
    completeness, nearest_predicted = Neighbours(predicted.points).nearest(true.points)
    precision, recall = _share_below(accuracy, threshold), _share_below(completeness, threshold)
    return PointErrors(
        accuracy_mean=float(accuracy.mean()),
        accuracy_median=float(np.median(accuracy.numpy())),
        completeness_mean=float(completeness.mean()),
        completeness_median=float(np.median(completeness.numpy())),
        threshold=threshold,
        precision=precision,
        recall=recall,
        f1=2 * precision * recall / (precision + recall) if precision + recall else 0.0,
        normal_accuracy=_mean_cosine(predicted, true, nearest_true),
        normal_completeness=_mean_cosine(true, predicted, nearest_predicted),
        num_predicted=len(predicted.points),
        num_true=len(true.points),
    )


def _check(cloud: Cloud, name: str) -> None:
    check_cloud(cloud.points, name)
    if cloud.normals is not None and not cloud.normals.isfinite().all():
        raise InputError(f"Expected finite normals of the {name} points, but some are not; set unknown ones to zero.")


def _share_below(distance: Float[Tensor, " points"], threshold: float) -> float:
    return float((distance < threshold).double().mean())


def _mean_cosine(cloud: Cloud, other: Cloud, nearest: Int[Tensor, " points"]) -> float | None:
    """Mean |cosine| of each point's normal and its nearest neighbour's, over the points where both are known."""
    if cloud.normals is None or other.normals is None:
        return None
    normal, met = cloud.normals.double().cpu(), other.normals.double().cpu()[nearest]
    lengths = normal.norm(dim=1), met.norm(dim=1)
    known = torch.minimum(*lengths) > _SHORTEST_NORMAL
    cosine = (normal * met).sum(dim=1)[known].abs() / (lengths[0] * lengths[1])[known]
    return float(cosine.clamp_max(1).mean()) if len(cosine) else None
