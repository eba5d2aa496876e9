"""Frozen records that cross rooms."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """What is known of some frames, in order; none, one or, for the scale frames, several.

    Lengths are in the model's own unit. Axes follow OpenCV: x right, y down, z forward; depth is along z.
    """

    frame_index: tuple[int, ...]
    """Place of each frame in the video, from 0."""
    timestamp_s: tuple[float, ...]
    is_keyframe: tuple[bool, ...]
    """Whether the frame is remembered."""
    pose_encoding: Float[Tensor, "frames 9"]
    """As the network says it: centre, quaternion x y z w, vertical and horizontal field of view."""
    world_from_camera: Float[Tensor, "frames 4 4"]
    intrinsics: Float[Tensor, "frames 3 3"]
    depth: Float[Tensor, "frames height width"]
    depth_confidence: Float[Tensor, "frames height width"]
    points: Float[Tensor, "frames height width 3"] | None = None
    """Points in the world, where the checkpoint has such a head."""
    points_confidence: Float[Tensor, "frames height width"] | None = None
    camera_points: Float[Tensor, "frames height width 3"] | None = None
    """Points before the camera, where the checkpoint has such a head."""
    camera_points_confidence: Float[Tensor, "frames height width"] | None = None

    def __len__(self) -> int:
        return len(self.frame_index)
