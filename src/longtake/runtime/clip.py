"""A whole clip at once: for networks in which every frame sees every frame, and as the twin of a stream."""

from collections.abc import Sequence

import torch

from longtake.attention.masks import Mask, arrivals, clip_mask
from longtake.attention.recall import ClipRecall
from longtake.errors import InputError, SettingError
from longtake.geometry.config import CAMERA, TRUNK, Attention, GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.memory.policies.lockstep import KeepAll, Window
from longtake.memory.policy import LockstepPolicy
from longtake.runtime.steps import Frame, check_frame, describe, own_pixels
from longtake.types import FrameKind, Geometry

WINDOW = Window(anchors=1, window=5)
"""What `Attention.WINDOW` means: the first frame, and five with the frame itself, in both streams."""

_RETENTIONS: dict[Attention, LockstepPolicy] = {Attention.CAUSAL: KeepAll(), Attention.WINDOW: WINDOW}


def clip_retention(attention: Attention) -> LockstepPolicy:
    """The rule under which a stream sees frame by frame what a clip sees at once; the same in both streams."""
    if attention not in _RETENTIONS:
        choices = " or ".join(_RETENTIONS)
        raise SettingError(f"Expected attention that is {choices}, but got {attention}; choose one of the two.")
    return _RETENTIONS[attention]


def clip_recall(
    config: GeometryConfig,
    num_frames: int,
    size: tuple[int, int],
    *,
    attention: Attention | None = None,
    device: torch.device | str = "cpu",
) -> ClipRecall:
    """What each frame of a clip sees: as the network was trained, or as asked for."""
    attention = attention or config.attention
    if attention is Attention.CONTEXT:
        raise SettingError(
            "This network was trained to watch frame by frame, not a clip at once; open a session, or choose "
            f"attention among {', '.join(kind for kind in Attention if kind is not Attention.CONTEXT)}."
        )
    masks: dict[str, Mask | None] = {TRUNK: None, CAMERA: None}
    if attention is not Attention.FULL:
        sequence = arrivals(1, [True] * (num_frames - 1))
        tokens = {TRUNK: config.tokens_per_frame(*size), CAMERA: 1}
        retention = clip_retention(attention)
        masks = {stream: clip_mask(retention, sequence, count).to(device) for stream, count in tokens.items()}
    return ClipRecall(masks, ordinals=tuple(range(num_frames)), num_scale_frames=1)


@torch.no_grad()
def watch_clip(
    model: GeometryModel,
    frames: Sequence[Frame] | Frame,
    timestamps_s: Sequence[float] | None = None,
    *,
    attention: Attention | None = None,
) -> Geometry:
    """What a network says of a clip that it sees at once; memory grows with the square of the clip's length.

    Pixels are 0 to 255 as bytes or 0 to 1 as floats. Without timestamps a frame's index stands in for its time.
    """
    if not len(frames):
        raise InputError("Expected a clip of at least one frame, but got none.")
    times = tuple(map(float, range(len(frames)))) if timestamps_s is None else tuple(timestamps_s)
    if len(times) != len(frames):
        raise InputError(f"Expected a timestamp for each of {len(frames)} frames, but got {len(times)}.")
    size = _one_size(frames)
    device = next(model.parameters()).device
    recall = clip_recall(model.config, len(frames), size, attention=attention, device=device)
    images = torch.stack([own_pixels(frame, device) for frame in frames])
    return describe(
        model(images.unsqueeze(0), recall, model.grid(*size)),
        model.config.camera,
        frame_index=range(len(frames)),
        timestamps_s=times,
        kinds=(FrameKind.SCALE, *(FrameKind.KEYFRAME for _ in frames[1:])),
    )


def _one_size(frames: Sequence[Frame] | Frame) -> tuple[int, int]:
    """Height and width of all frames, each of which is fit to be seen."""
    shapes = {tuple(frame.shape) for frame in frames}
    if len(shapes) > 1 or any(len(shape) != 3 for shape in shapes):
        found = ", ".join(" x ".join(map(str, shape)) or "a single number" for shape in sorted(shapes))
        raise InputError(f"Expected all frames of a clip as 3 x height x width of one size, but got {found}.")
    size = (frames[0].shape[1], frames[0].shape[2])
    for frame in frames:
        check_frame(frame, size)
    return size
