"""One cloud laid onto another by their nearest points, from a start that is nearly right: trimmed ICP."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longtake.errors import InputError, SettingError
from longtake.evaluation.alignment_mode import AlignmentMode
from longtake.evaluation.neighbours import Neighbours, check_cloud
from longtake.spatial.similarity import Similarity, best_similarity

_FEWEST_POINTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Icp:
    """Rules of the iterative closest point method, in which the farthest pairs do not count."""

    alignment_mode: AlignmentMode = AlignmentMode.SE3
    kept_share: float = 0.9
    """Share of the pairs that count, the nearest ones."""
    max_iterations: int = 50
    least_gain: float = 1e-6
    """An iteration that lowers the error by no more than this share of it is the last."""

    def __post_init__(self) -> None:
        if not 0 < self.kept_share <= 1:
            raise SettingError(f"The share of pairs ICP keeps must be above 0 and at most 1, but is {self.kept_share}.")
        if self.max_iterations < 0:
            raise SettingError(f"ICP cannot run {self.max_iterations} iterations; ask for 0 or more.")
        if not self.least_gain >= 0:
            raise SettingError(f"The least gain of an ICP iteration must be 0 or more, but is {self.least_gain}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """Where the source lies in the target, and how it was found."""

    target_from_source: Similarity
    """In double precision."""
    errors: tuple[float, ...]
    """Root mean square distance of the pairs that count, at the start and after each iteration; it never rises."""
    has_converged: bool
    """Whether another iteration would gain next to nothing."""


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Points that count as the same one, the source's as they lay at the start, and how far apart they are now."""

    source: Float[Tensor, "pairs 3"]
    target: Float[Tensor, "pairs 3"]
    error: float


class _Pairing:
    """Finds the nearest pairs of two clouds wherever the source is moved."""

    def __init__(self, source: Float[Tensor, "points 3"], target: Float[Tensor, "target_points 3"], icp: Icp) -> None:
        self._source, self._target = source, target
        self._kept_share = icp.kept_share
        self._near_target = Neighbours(target)
        # A cloud that shrinks to a point lies close to any other, so a free scale asks the target as well.
        self._near_source = Neighbours(source) if icp.alignment_mode is AlignmentMode.SIM3 else None

    def under(self, moved: Similarity) -> _Pairs:
        """The pairs that count once the source is moved."""
        distance, index = self._near_target.nearest(moved.of_points(self._source))
        kept = self._nearest_share(distance)
        source, target, squares = self._source[kept], self._target[index[kept]], distance[kept].square()
        if self._near_source is not None:
            distance, index = self._near_source.nearest(moved.inverse().of_points(self._target))
            kept = self._nearest_share(distance)
            source, target = torch.cat([source, self._source[index[kept]]]), torch.cat([target, self._target[kept]])
            squares = torch.cat([squares, (moved.scale * distance[kept]).square()])
        return _Pairs(source, target, math.sqrt(float(squares.mean())))

    def _nearest_share(self, distance: Float[Tensor, " points"]) -> Int[Tensor, " kept"]:
        num_kept = max(_FEWEST_POINTS, math.ceil(self._kept_share * len(distance)))
        return distance.argsort(stable=True)[:num_kept]


def register(
    source: Float[Tensor, "points 3"], target: Float[Tensor, "target_points 3"], start: Similarity, icp: Icp
) -> Registration:
    """Refine `start`, a target_from_source that is nearly right; what is not free stays as in it.

    Each source point is paired with its nearest target point and, where the scale is free, each target point with its
    nearest source point. The best fit of the nearest of these pairs moves the source; then they are paired anew.
    """
    check_cloud(source, "predicted", at_least=_FEWEST_POINTS)
    check_cloud(target, "true", at_least=_FEWEST_POINTS)
    start = in_double(start)
    if not (start.matrix.isfinite().all() and start.scale > 0):
        raise InputError(
            f"A registration must start finite and with a positive scale, not from {start.matrix.tolist()}."
        )
    pairing = _Pairing(start.of_points(source.double().cpu()), target.double().cpu(), icp)
    moved = in_double(Similarity.identity(torch.device("cpu")))
    pairs = pairing.under(moved)
    errors, has_converged = [pairs.error], icp.alignment_mode is AlignmentMode.NONE
    while not has_converged and len(errors) <= icp.max_iterations:
        trial = best_similarity(pairs.source, pairs.target, with_scale=icp.alignment_mode is AlignmentMode.SIM3)
        trial_pairs = pairing.under(trial)
        has_converged = not trial_pairs.error < (1 - icp.least_gain) * pairs.error
        if trial_pairs.error < pairs.error:
            moved, pairs = trial, trial_pairs
            errors.append(pairs.error)
    return Registration(target_from_source=moved @ start, errors=tuple(errors), has_converged=has_converged)


def in_double(similarity: Similarity) -> Similarity:
    """The same on the CPU in double precision."""
    parts = (similarity.scale, similarity.rotation, similarity.translation)
    return Similarity(*(part.detach().double().cpu() for part in parts))
