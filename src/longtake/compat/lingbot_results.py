"""Results under the published names and in the published shapes, and their unit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from jaxtyping import Float, Shaped, UInt8
from torch import Tensor

from longtake.geometry.model import Prediction
from longtake.runtime.windowed import WindowSpan
from longtake.spatial.pinhole import unproject
from longtake.spatial.pose import decode_pose, matrix_from_quaternion, quaternion_from_matrix, rigid_pose
from longtake.types import FrameKind, Geometry

Named = Mapping[str, Shaped[Tensor, "..."]]

_KINDS = {FrameKind.SCALE: 0, FrameKind.KEYFRAME: 1, FrameKind.PASSING: 2}
_POSES = ("pose_enc", "pose_enc_list")
_LENGTHS = ("depth", "world_points", "cam_points")


def of_prediction(prediction: Prediction, *, with_depth: bool) -> dict[str, Tensor]:
    """A clip from the model; the refinements of a pose lie on the third axis until `listed`."""
    dense = _dense(prediction) if with_depth else {}
    poses = {"pose_enc": prediction.pose_encoding, "pose_enc_list": prediction.pose_iterations.movedim(0, 2)}
    return poses | dense | _points(prediction)


def of_geometry(geometry: Geometry, *, with_depth: bool) -> dict[str, Tensor]:
    """A whole video from a session, as a batch of one."""
    dense = _dense(geometry) if with_depth else {}
    named = {"pose_enc": geometry.pose_encoding} | dense | _points(geometry)
    return {name: value.unsqueeze(0) for name, value in named.items()}


def _dense(output: Prediction | Geometry) -> dict[str, Tensor]:
    return {"depth": output.depth.unsqueeze(-1), "depth_conf": output.depth_confidence}


def _points(output: Prediction | Geometry) -> dict[str, Tensor]:
    heads = {
        "world_points": output.points,
        "world_points_conf": output.points_confidence,
        "cam_points": output.camera_points,
        "cam_points_conf": output.camera_points_confidence,
    }
    return {name: value for name, value in heads.items() if value is not None}


def joined(parts: Sequence[Named], dim: int) -> dict[str, Tensor]:
    """Frames (1) or batch entries (0) side by side; a single part is not copied."""
    if len(parts) == 1:
        return dict(parts[0])
    return {name: torch.cat([part[name] for part in parts], dim=dim) for name in parts[0]}


def listed(results: Named) -> dict[str, Any]:
    """The same with the refinements of each pose as a list."""
    return {**results, "pose_enc_list": list(results["pose_enc_list"].unbind(dim=2))}


def gather(parts: Iterable[Geometry], device: torch.device | str) -> Geometry:
    """All frames of a video, each moved as it comes so that the model's device holds no more than one step."""
    return Geometry.join([_moved(part, device) for part in parts])


def _moved(geometry: Geometry, device: torch.device | str) -> Geometry:
    values = {field.name: getattr(geometry, field.name) for field in fields(geometry)}
    moved: dict[str, Any] = {name: value.to(device) for name, value in values.items() if isinstance(value, Tensor)}
    return replace(geometry, **moved)


def frame_types(kinds: Sequence[FrameKind]) -> UInt8[Tensor, "1 frames"]:
    """0 scale, 1 keyframe, 2 passing."""
    return torch.tensor([[_KINDS[kind] for kind in kinds]], dtype=torch.uint8)


def with_unit_quaternions(geometry: Geometry) -> Geometry:
    """The first window's quaternions as later windows have them: of length 1, with `w ≥ 0`."""
    first = geometry.window.count(0)
    pose = geometry.pose_encoding.clone()
    pose[:first, 3:7] = quaternion_from_matrix(matrix_from_quaternion(pose[:first, 3:7]))
    return replace(geometry, pose_encoding=pose)


def chunks(runs: Sequence[Sequence[WindowSpan]], device: torch.device | str) -> dict[str, Tensor]:
    """Scale and rigid part of `world_from_window`; NaN where a video of the batch had fewer windows than another."""
    most = max(map(len, runs))
    scales = torch.full((len(runs), most), torch.nan)
    transforms = torch.full((len(runs), most, 4, 4), torch.nan)
    for row, spans in enumerate(runs):
        for column, span in enumerate(spans):
            window = span.world_from_window
            scales[row, column] = window.scale
            transforms[row, column] = rigid_pose(window.rotation, window.translation)
    return {"chunk_scales": scales.to(device), "chunk_transforms": transforms.to(device)}


def unit_of(results: Named, num_scale_frames: int) -> Float[Tensor, " batch"]:
    """Mean distance of the scale frames' points from the origin, where the first camera stands."""
    if "depth" in results:
        depth = results["depth"][:, :num_scale_frames, ..., 0]
        world_from_camera, intrinsics = decode_pose(results["pose_enc"][:, :num_scale_frames], *depth.shape[-2:])
        points = unproject(depth, intrinsics, world_from_camera)
    else:
        points = results["world_points"][:, :num_scale_frames]
    unit: Tensor = points.norm(dim=-1).flatten(1).nanmean(dim=1)
    return unit


def in_unit(results: Named, unit: Float[Tensor, " batch"]) -> dict[str, Tensor]:
    """All lengths divided by the unit: camera centres, depth, points, and where windows lie."""
    scaled = dict(results)

    def divide(value: Tensor) -> Tensor:
        return value / unit.to(value).reshape(-1, *[1] * (value.dim() - 1))

    for name in _LENGTHS:
        if name in results:
            scaled[name] = divide(results[name])
    for name in _POSES:
        if name in results:
            scaled[name] = torch.cat([divide(results[name][..., :3]), results[name][..., 3:]], dim=-1)
    if "chunk_transforms" in results:
        scaled["chunk_transforms"] = results["chunk_transforms"].clone()
        scaled["chunk_transforms"][..., :3, 3] = divide(results["chunk_transforms"][..., :3, 3])
    return scaled
