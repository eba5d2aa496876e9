"""Where a new window lies in the world of the one before, from the frames both have seen.

All rules look at paired frames: those of the overlap that are keyframes in both windows, or the first one if there are
none. `a` is the earlier window, already in the world; `b` the new one, in a frame of its own.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from longtake.errors import InputError, SettingError
from longtake.spatial.pose import nearest_rotation, quaternion_from_matrix
from longtake.spatial.similarity import Similarity
from longtake.types import Geometry

_SMALLEST_SCALE, _LARGEST_SCALE = 1e-3, 1e3
_TRIMMED_SHARE = 0.1


class Anchoring(StrEnum):
    """What decides rotation and translation."""

    FIRST_FRAME = "first-frame"
    """The first overlapping frame alone, which decides the scale too: the older published rule."""
    KEYFRAME_PAIRS = "keyframe-pairs"
    """The last paired frame; the scale from all of them: the newest published rule."""
    ROBUST = "robust"
    """All paired frames, weighted by confidence."""


class ScaleEstimate(StrEnum):
    """How one scale is taken from the ratios of two windows' depths."""

    MEDIAN = "median"
    TRIMMED_MEAN = "trimmed_mean"
    """The mean without the lowest and the highest tenth."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """A rule that puts one window into another's world."""

    anchoring: Anchoring = Anchoring.KEYFRAME_PAIRS
    scale: ScaleEstimate = ScaleEstimate.MEDIAN

    @classmethod
    def named(cls, anchoring: str, scale: str = ScaleEstimate.MEDIAN) -> "Alignment":
        """The rule of these names."""
        if anchoring not in list(Anchoring):
            raise SettingError(f"There is no alignment rule '{anchoring}'; choose one of {', '.join(Anchoring)}.")
        if scale not in list(ScaleEstimate):
            raise SettingError(f"There is no scale estimate '{scale}'; choose one of {', '.join(ScaleEstimate)}.")
        return cls(Anchoring(anchoring), ScaleEstimate(scale))

    def align(self, a: Geometry, b: Geometry) -> Similarity:
        """`world_from_window` of `b`, whose frames are the same as those of `a`, one by one."""
        paired = self._paired(a, b)
        ratios = DepthRatios.of(a, b, paired)
        if self.anchoring is Anchoring.ROBUST:
            return self._fit_all(a, b, paired, ratios.estimate(self.scale, weighted=True))
        anchor = paired[-1]
        scale = ratios.estimate(self.scale, weighted=False)
        rotation = a.world_from_camera[anchor, :3, :3] @ b.world_from_camera[anchor, :3, :3].T
        translation = a.world_from_camera[anchor, :3, 3] - scale * rotation @ b.world_from_camera[anchor, :3, 3]
        return Similarity(scale, rotation, translation)

    def _paired(self, a: Geometry, b: Geometry) -> list[int]:
        if self.anchoring is Anchoring.FIRST_FRAME:
            return [0]
        both = zip(a.is_keyframe, b.is_keyframe, strict=True)
        return [offset for offset, (in_a, in_b) in enumerate(both) if in_a and in_b] or [0]

    def _fit_all(self, a: Geometry, b: Geometry, paired: list[int], scale: Float[Tensor, ""]) -> Similarity:
        weights = torch.minimum(a.depth_confidence[paired], b.depth_confidence[paired]).mean(dim=(1, 2))
        cameras_a, cameras_b = a.world_from_camera[paired], b.world_from_camera[paired]
        turns = cameras_a[:, :3, :3] @ cameras_b[:, :3, :3].transpose(1, 2)
        weighted = (weights[:, None, None] * turns).sum(dim=0)
        if not bool(weighted.isfinite().all()):
            raise InputError(
                "The frames that two windows share have poses or confidences that are not finite, so they cannot be "
                "aligned; use another precision or --align keyframe-pairs (align='keyframe-pairs')."
            )
        rotation = nearest_rotation(weighted)
        shifts = cameras_a[:, :3, 3] - scale * cameras_b[:, :3, 3] @ rotation.T
        translation = torch.stack([weighted_median(axis, weights) for axis in shifts.unbind(dim=1)])
        return Similarity(scale, rotation, translation)


@dataclass(frozen=True, slots=True)
class DepthRatios:
    """depth_a / depth_b where both can be used, and how much both windows trust the pixel."""

    values: Float[Tensor, " pixels"]
    weights: Float[Tensor, " pixels"]

    @classmethod
    def of(cls, a: Geometry, b: Geometry, paired: list[int]) -> "DepthRatios":
        depth_a, depth_b = a.depth[paired], b.depth[paired]
        usable: Bool[Tensor, ...] = torch.isfinite(depth_a) & torch.isfinite(depth_b)
        usable &= depth_b.abs() > torch.finfo(torch.float32).eps
        trust = torch.minimum(a.depth_confidence[paired], b.depth_confidence[paired])
        return cls((depth_a[usable] / depth_b[usable]), trust[usable])

    def estimate(self, rule: ScaleEstimate, *, weighted: bool) -> Float[Tensor, ""]:
        """One scale, 1 where no pixel can be used, within sane bounds."""
        weights = self.weights if weighted else torch.ones_like(self.weights)
        if not len(self.values):
            return torch.ones((), device=self.values.device)
        estimators = {ScaleEstimate.MEDIAN: weighted_median, ScaleEstimate.TRIMMED_MEAN: trimmed_mean}
        return estimators[rule](self.values, weights).clamp(_SMALLEST_SCALE, _LARGEST_SCALE)


def weighted_median(values: Float[Tensor, " n"], weights: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """The lowest value at which half of the weight is reached; with equal weights the lower median."""
    ordered, order = values.sort()
    reached = weights[order].double().cumsum(dim=0)
    index = int(torch.searchsorted(reached, reached[-1] / 2))
    return ordered[min(index, len(ordered) - 1)]


def trimmed_mean(values: Float[Tensor, " n"], weights: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """The weighted mean of what lies between the lowest and the highest tenth of the weight."""
    ordered, order = values.sort()
    share = weights[order].double()
    middle = share.cumsum(dim=0) - share / 2
    inside = (middle >= _TRIMMED_SHARE * share.sum()) & (middle <= (1 - _TRIMMED_SHARE) * share.sum())
    share = share * inside
    return ((ordered.double() * share).sum() / share.sum()).to(values.dtype)


def place(geometry: Geometry, world_from_window: Similarity) -> Geometry:
    """The same frames in the world."""
    world_from_camera = world_from_window.of_cameras(geometry.world_from_camera)
    scale = world_from_window.scale
    points, camera_points = geometry.points, geometry.camera_points
    quaternion = quaternion_from_matrix(world_from_camera[:, :3, :3])
    return replace(
        geometry,
        pose_encoding=torch.cat([world_from_camera[:, :3, 3], quaternion, geometry.pose_encoding[:, 7:]], dim=1),
        world_from_camera=world_from_camera,
        depth=scale * geometry.depth,
        points=None if points is None else world_from_window.of_points(points),
        camera_points=None if camera_points is None else scale * camera_points,
    )
