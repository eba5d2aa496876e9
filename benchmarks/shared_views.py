"""What two frames of a walk truly share, and whether an index of descriptors was right about places.

Two frames show the same place if a part of each one's pixels, lifted by its true depth, is seen in the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from longtake.places.index import Candidate, IndexRule
from longtake.world.tour import View

SHARED = 0.25
"""Of the pixels of both, in frames that show the same place."""
_PIXELS = 7
"""Between pixels that are lifted."""
_AGREE = 0.15
"""Of the depth by which a pixel may differ, beside a tenth of a metre."""


@dataclass(frozen=True, slots=True)
class TruePlace:
    """What is true of a frame that became a place."""

    frame: int
    depth: Float[Tensor, "height width"]
    world_from_camera: Float[Tensor, "4 4"]
    intrinsics: Float[Tensor, "3 3"]

    @classmethod
    def of(cls, view: View) -> "TruePlace":
        return cls(view.index, view.depth, view.world_from_camera, view.intrinsics)


@dataclass(frozen=True, slots=True)
class JudgedPlace:
    """What an index said of a place, and the truth."""

    similarity: float
    """Of the best candidate."""
    is_right: bool
    """Whether that shows the same place."""
    any_is_right: bool
    is_known: bool
    """Whether the walk has seen the place before."""


def judge_place(found: Sequence[Candidate], places: Mapping[int, TruePlace], rule: IndexRule) -> JudgedPlace:
    """The place that candidates were found for, by all places that were seen long enough before it."""
    here = places[found[0].frame]
    old = [place for place in places.values() if place.frame <= here.frame - rule.gap_frames]
    shared = dict(zip((place.frame for place in old), shares(here, old).tolist(), strict=True)) if old else {}
    right = [shared.get(candidate.old_frame, 0.0) >= SHARED for candidate in found]
    return JudgedPlace(found[0].similarity, right[0], any(right), max(shared.values(), default=0.0) >= SHARED)


def shares(here: TruePlace, others: Sequence[TruePlace]) -> Float[Tensor, " others"]:
    """Share of the pixels that each other view and this one have in common, the smaller of the two."""
    stacked = tuple(
        torch.stack([getter.double() for getter in column])
        for column in zip(*((view.depth, view.world_from_camera) for view in others), strict=True)
    )
    ours = (here.depth.double()[None].expand_as(stacked[0]), here.world_from_camera.expand_as(stacked[1]))
    intrinsics = here.intrinsics.double()
    return torch.minimum(
        _seen(ours, stacked, intrinsics).double().mean(dim=1), _seen(stacked, ours, intrinsics).double().mean(dim=1)
    )


def _seen(
    views: tuple[Tensor, ...], others: tuple[Tensor, ...], intrinsics: Float[Tensor, "3 3"]
) -> Bool[Tensor, "views pixels"]:
    """Whether pixels of each view are seen in the other one."""
    height, width = views[0].shape[1:]
    rows, columns = torch.meshgrid(torch.arange(0, height, _PIXELS), torch.arange(0, width, _PIXELS), indexing="ij")
    pixels = torch.stack([columns + 0.5, rows + 0.5, torch.ones_like(rows)], dim=-1).double().flatten(0, 1)
    depth = views[0][:, rows, columns].flatten(1)
    lifted = (pixels @ intrinsics.inverse().T) * depth.nan_to_num(posinf=0)[..., None]
    other_from_view = torch.linalg.inv(others[1]) @ views[1]
    points = lifted @ other_from_view[:, :3, :3].transpose(1, 2) + other_from_view[:, None, :3, 3]
    projected = points @ intrinsics.T
    column, row = (projected[..., axis] / projected[..., 2] for axis in (0, 1))
    inside = (points[..., 2] > 0.1) & (column >= 0) & (column < width) & (row >= 0) & (row < height)
    place = (row.nan_to_num(0, 0, 0).clamp(0, height - 1).long(), column.nan_to_num(0, 0, 0).clamp(0, width - 1).long())
    there = others[0][torch.arange(len(points))[:, None], *place]
    near = (there - points[..., 2]).abs() < _AGREE * points[..., 2] + 0.1
    seen: Tensor = inside & near & depth.isfinite()
    return seen
