"""Whether streaming is exact: against one masked pass over the whole clip, and against itself after a break."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from longtake.attention.backend import Backend
from longtake.attention.masks import arrivals, clip_mask, clip_ordinals
from longtake.attention.recall import ClipRecall
from longtake.geometry.config import CAMERA, TRUNK
from longtake.geometry.model import GeometryModel
from longtake.memory.policy import Keep, LockstepPolicy
from longtake.runtime.build import SessionSettings, open_session
from longtake.runtime.memory_plan import trunk_layout
from longtake.runtime.session import SequenceSession
from longtake.runtime.windowed import resume_session
from longtake.types import Geometry

Images = Float[Tensor, "frames 3 height width"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exactness:
    """Of one clip, streamed without windows."""

    stream_to_clip_error: float
    """Largest |difference| / (1 + |value|) of pose and depth to one masked pass over all frames at once."""
    resumed_is_identical: bool
    """Whether a session saved half-way and resumed from its file predicts the same, to the bit."""


def measure_exactness(
    model: GeometryModel, images: Images, settings: SessionSettings, backend: Backend | None = None
) -> Exactness:
    """Frames have the network's size; which of them are kept must be known before they are seen."""
    alone = replace(settings, windows=None)
    streamed = Geometry.join(list(_open(model, images, alone, backend).run(images)))
    return Exactness(
        stream_to_clip_error=_error_to_clip(model, images, alone, streamed),
        resumed_is_identical=_resumed_is_identical(model, images, alone, streamed, backend),
    )


def _open(model: GeometryModel, images: Images, settings: SessionSettings, backend: Backend | None) -> SequenceSession:
    session = open_session(model, settings, (images.shape[-2], images.shape[-1]), backend)
    assert isinstance(session, SequenceSession)
    return session


@torch.no_grad()
def _error_to_clip(model: GeometryModel, images: Images, settings: SessionSettings, streamed: Geometry) -> float:
    size = (images.shape[-2], images.shape[-1])
    num_scale_frames = min(settings.num_scale_frames, len(images))
    kept = [settings.keyframes.before(step) is Keep.YES for step in range(len(images) - num_scale_frames)]
    sequence, rule = arrivals(num_scale_frames, kept), settings.retention
    trunk = rule.for_stream(trunk_layout(model.config, size))
    assert isinstance(trunk, LockstepPolicy)
    masks = {
        TRUNK: clip_mask(trunk, sequence, model.config.tokens_per_frame(*size)).to(images.device),
        CAMERA: clip_mask(rule.camera(), sequence, 1).to(images.device),
    }
    recall, dtype = ClipRecall(masks, clip_ordinals(sequence), num_scale_frames), settings.precision.dtype
    with torch.autocast(images.device.type, dtype=dtype, enabled=dtype != torch.float32):
        whole = model(images[None], recall, model.grid(*size))
    pairs = ((streamed.pose_encoding, whole.pose_encoding[0]), (streamed.depth, whole.depth[0]))
    return max(float(((got - want).abs() / (1 + want.abs())).max()) for got, want in pairs)


def _resumed_is_identical(
    model: GeometryModel, images: Images, settings: SessionSettings, streamed: Geometry, backend: Backend | None
) -> bool:
    first, half = _open(model, images, settings, backend), len(images) // 2
    for image in images[:half]:
        first.step(image)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session.safetensors"
        first.save(path)
        second = resume_session(path, model, backend)
    rest = Geometry.join(list(second.run(images[half:])))
    want = streamed.frames(len(streamed) - len(rest), len(streamed))
    return torch.equal(rest.depth, want.depth) and torch.equal(rest.pose_encoding, want.pose_encoding)
