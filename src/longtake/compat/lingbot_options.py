"""The published constructor's options in longtake's terms, and which of them have none."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch

from longtake.attention.backend import Backend, SdpaBackend
from longtake.attention.flashinfer import FA2, FlashInferBackend
from longtake.errors import MissingExtraError, SettingError
from longtake.geometry.config import GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.memory.policies.lockstep import ContextRetention, Trail
from longtake.runtime.memory_plan import STORED_DTYPES

PATCH_EMBED = "dinov2_vitl14_reg"

IDLE_OPTIONS: Mapping[str, object] = MappingProxyType(
    {
        "pretrained_path": "",
        "enable_track": False,
        "enable_normalize": False,
        "sliding_window_size": -1,
        "num_random_frames": 0,
        "attend_to_special_tokens": False,
        "attend_to_scale_frames": False,
        "enable_stream_inference": True,
        "use_scale_token": True,
        "use_gradient_checkpoint": True,
    }
)
"""Options of the constructor that change nothing when a checkpoint is run, with their defaults."""

IDLE_ARGUMENTS: Mapping[str, object] = MappingProxyType(
    {
        "query_points": None,
        "sliding_window_size": None,
        "mask": None,
        "ordered_video": None,
        "gather_outputs": True,
        "point_masks": None,
    }
)
"""Arguments of `forward` that change nothing, with their defaults."""


def warn_of_idle(idle: Mapping[str, object], **given: object) -> None:
    """One warning that names all options which were given and have no effect."""
    named = [name for name, value in given.items() if value is not idle[name] and value != idle[name]]
    if named:
        warnings.warn(
            f"LingBot-Map accepts {', '.join(named)}, but what it predicts does not depend on it; "
            "longtake goes on without.",
            stacklevel=3,
        )


def published_config(
    sizes: GeometryConfig,
    *,
    img_size: int,
    patch_size: int,
    embed_dim: int,
    disable_global_rope: bool,
    enable_3d_rope: bool,
    enable_point: bool,
    enable_local_point: bool,
    enable_camera_3d_rope: bool,
    camera_rope_theta: float,
    camera_num_iterations: int,
) -> GeometryConfig:
    """The network these options describe; what they leave open is taken from `sizes`."""
    camera = replace(
        sizes.camera,
        iterations=camera_num_iterations,
        rotary=enable_camera_3d_rope,
        rotary_theta=camera_rope_theta,
    )
    return replace(
        sizes,
        width=embed_dim,
        patch=patch_size,
        encoder=replace(sizes.encoder, side=img_size // patch_size),
        trunk=replace(sizes.trunk, global_rotary=not disable_global_rope, temporal_rotary=enable_3d_rope),
        camera=camera,
        dense=replace(sizes.dense, points=enable_point, camera_points=enable_local_point),
    )


def refuse_unsupported(*, patch_embed: str, enable_camera: bool) -> None:
    """What no published checkpoint was made with, and longtake has no network for."""
    if patch_embed != PATCH_EMBED:
        raise SettingError(
            f"Expected patch_embed '{PATCH_EMBED}', as every checkpoint has it, but got '{patch_embed}'."
        )
    if not enable_camera:
        raise SettingError(
            "Expected enable_camera to be true: keyframes, windows and points need poses; leave the option out and "
            "ignore pose_enc."
        )


def published_retention(
    *,
    sliding_window: int,
    scale_frames: int,
    cross_frame_special: bool,
    include_scale_frames: bool,
    camera_only: bool,
    max_frame_num: int,
) -> ContextRetention:
    """The published cache rule; beyond `max_frame_num` kept frames, where it ended, the oldest traces are forgotten."""
    anchors = scale_frames if include_scale_frames else 0
    left_behind = Trail.CAMERA if camera_only else Trail.SPECIAL
    return ContextRetention(
        anchors=anchors,
        window=sliding_window,
        trail=left_behind if cross_frame_special else Trail.NONE,
        history=max(max_frame_num, anchors + sliding_window),
    )


def shortened(retention: ContextRetention, num_kept: int) -> ContextRetention:
    """The same rule for a sequence that never keeps more frames, so that no slot is set aside in vain."""
    assert retention.history is not None
    anchors = min(retention.anchors, num_kept)
    window = min(retention.window, max(num_kept - anchors, 1))
    history = max(min(retention.history, num_kept), anchors + window)
    return replace(retention, anchors=anchors, window=window, history=history)


def published_backend(*, use_sdpa: bool, fa3: bool = False) -> Backend:
    """FlashInfer unless torch's own kernels were asked for or nothing else is installed."""
    if use_sdpa:
        return SdpaBackend()
    try:
        return FlashInferBackend("fa3" if fa3 else FA2)
    except MissingExtraError:
        return SdpaBackend()


@dataclass(frozen=True, slots=True)
class Precision:
    """In which types products are computed and keys and values stored."""

    compute: torch.dtype
    stored: torch.dtype

    @classmethod
    def of(cls, network: GeometryModel) -> "Precision":
        """The surrounding autocast's type, else that of the trunk's own weights."""
        weight = network.tokens.camera
        kind = weight.device.type
        if torch.is_autocast_enabled(kind):
            half = torch.get_autocast_dtype(kind)
            return cls(compute=half, stored=half)
        return cls(compute=torch.float32, stored=weight.dtype if weight.dtype in STORED_DTYPES else torch.float32)
