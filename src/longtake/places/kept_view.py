"""What is kept of an old place to verify by: a small picture with its depth, where its camera was."""

from dataclasses import dataclass

import torch
from jaxtyping import Float16, Float64, UInt8
from torch import Tensor

from longtake.places.key_view import KeyView
from longtake.places.pictures import LONGEST_SIDE
from longtake.types import Geometry


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeptView:
    """A keyframe on the host. Lengths are those of the session, before any loop moved its world."""

    frame: int
    image: UInt8[Tensor, "3 height width"]
    depth: Float16[Tensor, "height width"]
    """Over `unit`."""
    confidence: Float16[Tensor, "height width"]
    unit: float
    intrinsics: Float64[Tensor, "3 3"]
    world_from_camera: Float64[Tensor, "4 4"]

    @classmethod
    def of(cls, geometry: Geometry, place: int, image: UInt8[Tensor, "3 height width"]) -> "KeptView":
        """One of the frames of a geometry; pixels beyond what is compared are left out."""
        depth = geometry.depth[place].detach().float().cpu()
        some = _kept_of((depth.shape[0], depth.shape[1]))
        step = some.step
        usable = depth[depth.isfinite() & (depth > 0)]
        unit = float(usable.median()) if usable.numel() else 1.0
        intrinsics = geometry.intrinsics[place].detach().double().cpu().clone()
        intrinsics[:2, 2] -= step // 2
        intrinsics[:2] /= step
        confidence = geometry.depth_confidence[place].detach().float().cpu()
        return cls(
            frame=geometry.frame_index[place],
            image=image[:, some, some].contiguous(),
            depth=(depth[some, some] / unit).half(),
            confidence=confidence[some, some].clamp(max=torch.finfo(torch.float16).max).half(),
            unit=unit,
            intrinsics=intrinsics,
            world_from_camera=geometry.world_from_camera[place].detach().double().cpu().clone(),
        )

    @classmethod
    def bytes_for(cls, size: tuple[int, int]) -> int:
        """Of each view of frames of this height and width."""
        height, width = (len(range(side)[_kept_of(size)]) for side in size)
        return _bytes_of(height * width)

    @property
    def num_bytes(self) -> int:
        return _bytes_of(self.depth.numel())

    def as_view(self, intrinsics: Float64[Tensor, "3 3"]) -> KeyView:
        return KeyView(
            frame_index=self.frame,
            image=self.image,
            depth=self.depth.double() * self.unit,
            depth_confidence=self.confidence.double(),
            intrinsics=intrinsics,
        )


def _kept_of(size: tuple[int, int]) -> slice:
    """Which rows and columns are kept."""
    step = -(-max(size) // LONGEST_SIDE)
    return slice(step // 2, None, step)


def _bytes_of(num_pixels: int) -> int:
    return 7 * num_pixels + 8 * (9 + 16 + 2)
