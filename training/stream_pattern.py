"""What a clip in training sees of itself: as a stream would, with its window, its keyframes and what it forgets."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from longtake.attention.masks import arrivals, clip_mask, clip_ordinals
from longtake.attention.recall import ClipRecall
from longtake.geometry.config import CAMERA, TRUNK, GeometryConfig
from longtake.memory.policies.lockstep import ContextRetention
from longtake.runtime.memory_plan import trunk_layout

_SCALE_FRAMES = (2, 4, 4, 6, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPattern:
    """How a stream of this length is remembered: scale frames, window, keyframes."""

    num_frames: int
    num_scale_frames: int
    window: int
    interval: int
    """Every so many frames after the scale block one is kept."""

    def recall(self, config: GeometryConfig, size: tuple[int, int], device: torch.device) -> ClipRecall:
        """What each frame of the clip sees of the others."""
        retention = ContextRetention(anchors=self.num_scale_frames, window=self.window, history=None)
        later = range(self.num_frames - self.num_scale_frames)
        sequence = arrivals(self.num_scale_frames, [at % self.interval == 0 for at in later])
        # All patches of a frame are seen alike, so one stands for them until the mask is spread out on the device.
        special = config.special_tokens
        kinds = clip_mask(retention.for_stream(trunk_layout(config, size)), sequence, special + 1)
        of_camera = clip_mask(retention.camera(), sequence, 1)
        return ClipRecall(
            {TRUNK: spread(kinds.to(device), special, config.tokens_per_frame(*size)), CAMERA: of_camera.to(device)},
            ordinals=clip_ordinals(sequence),
            num_scale_frames=self.num_scale_frames,
        )


def spread(kinds: Bool[Tensor, "kinds kinds"], special: int, tokens_per_frame: int) -> Bool[Tensor, "tokens tokens"]:
    """A mask over special tokens and one patch of each frame, for all its patches."""
    num_frames = len(kinds) // (special + 1)
    within = torch.arange(tokens_per_frame, device=kinds.device).clamp(max=special)
    kind = (torch.arange(num_frames, device=kinds.device)[:, None] * (special + 1) + within).flatten()
    return kinds[kind][:, kind]


def random_pattern(num_frames: int, rng: np.random.Generator) -> StreamPattern:
    """Few or more scale frames, short or long windows, all frames kept or only some."""
    return StreamPattern(
        num_frames=num_frames,
        num_scale_frames=int(rng.choice([count for count in _SCALE_FRAMES if count <= num_frames])),
        window=int(rng.integers(4, 24, endpoint=True)),
        interval=int(rng.choice([1, 1, 1, 2, 3])),
    )
