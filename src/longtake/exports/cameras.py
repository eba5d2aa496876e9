"""A camera that is known beforehand, or shared by all frames, in place of the network's estimates."""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from longtake.errors import InputError, SettingError
from longtake.exports.frame import MappedFrame
from longtake.exports.saved import source_placement
from longtake.takes.take import Take

_LARGEST_STRETCH = 0.02
_HALF = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCamera:
    """A pinhole camera in the video's own pixels, the centre of the first at (0, 0)."""

    focal_x: float
    focal_y: float
    center_x: float
    center_y: float
    size: tuple[int, int] | None = None
    """(width, height) of the pictures it is for; a video of another resolution has it resized. None for any video."""

    def __post_init__(self) -> None:
        numbers = (self.focal_x, self.focal_y, self.center_x, self.center_y)
        if not (all(map(math.isfinite, numbers)) and self.focal_x > 0 and self.focal_y > 0):
            raise SettingError(
                f"Expected focal lengths greater than 0 and a principal point, but got {', '.join(map(str, numbers))}."
            )
        if self.size is not None and min(self.size) < 1:
            raise SettingError(f"Expected a camera for pictures of at least 1x1 pixels, not {self.size}.")

    def intrinsics(self, width: int, height: int) -> Float[Tensor, "3 3"]:
        """For a video of this size, in float64."""
        stretch_x, stretch_y = self._stretch(width, height)
        return torch.tensor(
            [
                [self.focal_x * stretch_x, 0, (self.center_x + _HALF) * stretch_x - _HALF],
                [0, self.focal_y * stretch_y, (self.center_y + _HALF) * stretch_y - _HALF],
                [0, 0, 1],
            ],
            dtype=torch.float64,
        )

    def of(self, frame: MappedFrame) -> MappedFrame:
        """A frame seen by this camera."""
        placement = frame.placement
        intrinsics = self.intrinsics(placement.source_width, placement.source_height)
        return replace(frame, intrinsics=placement.intrinsics_to_model(intrinsics))

    def _stretch(self, width: int, height: int) -> tuple[float, float]:
        if self.size is None:
            return 1.0, 1.0
        stretch_x, stretch_y = width / self.size[0], height / self.size[1]
        if abs(stretch_x / stretch_y - 1) > _LARGEST_STRETCH:
            raise InputError(
                f"Expected a camera for pictures of the video's shape, {width}x{height}, but it is for "
                f"{self.size[0]}x{self.size[1]}; give the camera that filmed this video."
            )
        return stretch_x, stretch_y


def parse_intrinsics(text: str) -> KnownCamera:
    """From `fx,fy,cx,cy`."""
    try:
        focal_x, focal_y, center_x, center_y = map(float, text.split(","))
    except ValueError:
        raise SettingError(
            f"Expected intrinsics as fx,fy,cx,cy in the video's pixels, or a file with a camera, but got '{text}'."
        ) from None
    return KnownCamera(focal_x=focal_x, focal_y=focal_y, center_x=center_x, center_y=center_y)


def shared_camera(take: Take) -> KnownCamera:
    """The medians over all frames, so that a few wrong ones do not count."""
    first = source_placement(take, 0)
    size = first.source_width, first.source_height
    cameras = torch.stack([_resized_to(size, take, position) for position in range(len(take))])
    focal_x, focal_y, center_x, center_y = cameras.quantile(0.5, dim=0).tolist()
    return KnownCamera(focal_x=focal_x, focal_y=focal_y, center_x=center_x, center_y=center_y, size=size)


def _resized_to(size: tuple[int, int], take: Take, position: int) -> Float[Tensor, "4"]:
    """A frame's estimate in the video's pixels, as if the video had this (width, height) there."""
    placement = source_placement(take, position)
    (focal_x, _, center_x), (_, focal_y, center_y), _ = placement.intrinsics_to_source(
        take.intrinsics[position]
    ).tolist()
    own_size = placement.source_width, placement.source_height
    own = KnownCamera(focal_x=focal_x, focal_y=focal_y, center_x=center_x, center_y=center_y, size=own_size)
    matrix = own.intrinsics(*size)
    return torch.stack([matrix[0, 0], matrix[1, 1], matrix[0, 2], matrix[1, 2]])
