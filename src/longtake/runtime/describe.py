"""From what a network says of a clip to what longtake says of its frames."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from longtake.geometry.config import CameraConfig
from longtake.geometry.model import Prediction
from longtake.spatial.pose import decode_pose, invert_encoding
from longtake.types import FrameKind, Geometry


def describe(
    prediction: Prediction,
    camera: CameraConfig,
    *,
    frame_index: Sequence[int],
    timestamps_s: Sequence[float],
    kinds: Sequence[FrameKind],
) -> Geometry:
    """The frames of a clip, the only one in its batch; poses are `world_from_camera`, encoded or not."""
    pose_encoding = pose_in_world(prediction.pose_encoding.squeeze(0), camera)
    world_from_camera, intrinsics = decode_pose(pose_encoding, *prediction.depth.shape[-2:])
    return Geometry(
        frame_index=tuple(frame_index),
        timestamp_s=tuple(timestamps_s),
        kind=tuple(kinds),
        window=(0,) * len(frame_index),
        provisional=(False,) * len(frame_index),
        pose_encoding=pose_encoding,
        world_from_camera=world_from_camera,
        intrinsics=intrinsics,
        depth=prediction.depth.squeeze(0),
        depth_confidence=prediction.depth_confidence.squeeze(0),
        points=_first(prediction.points),
        points_confidence=_first(prediction.points_confidence),
        camera_points=_first(prediction.camera_points),
        camera_points_confidence=_first(prediction.camera_points_confidence),
    )


def pose_in_world(said: Float[Tensor, "*batch 9"], camera: CameraConfig) -> Float[Tensor, "*batch 9"]:
    """What a network said of its cameras, as `world_from_camera` whichever way it speaks."""
    return invert_encoding(said) if camera.camera_from_world else said


def _first(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.squeeze(0)
