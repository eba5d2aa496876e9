"""What a clip in training sees of itself: as a stream would, with its window, its keyframes and what it forgets."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from longtake.attention.masks import Arrival, arrivals, clip_mask, clip_ordinals
from longtake.attention.recall import ClipRecall
from longtake.geometry.config import CAMERA, TRUNK, GeometryConfig
from longtake.memory.policies.lockstep import ContextRetention
from longtake.runtime.memory_plan import trunk_layout
from training.sparse_recall import SparseClipRecall, sparse_recall

_SCALE_FRAMES = (2, 4, 4, 6, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPattern:
    """How a stream of this length is remembered: scale frames, window, keyframes."""

    num_frames: int
    num_scale_frames: int
    window: int
    interval: int
    """Every so many frames after the scale block one is kept."""

    def whole(self, at: int) -> Int64[np.ndarray, " frames"]:
        """Which frames before this one are remembered with all their patches: scale frames, and the last ones kept."""
        kept = np.arange(self.num_scale_frames, at, self.interval)
        return np.concatenate([np.arange(min(self.num_scale_frames, at)), kept[max(0, len(kept) + 1 - self.window) :]])

    def recall(self, config: GeometryConfig, size: tuple[int, int], device: torch.device) -> ClipRecall:
        """What each frame of the clip sees of the others."""
        kinds = self._kinds(config, size).to(device)
        trunk = spread(kinds, config.special_tokens, config.tokens_per_frame(*size))
        return self._clip_recall({TRUNK: trunk}, device)

    def sparse_recall(self, config: GeometryConfig, size: tuple[int, int], device: torch.device) -> SparseClipRecall:
        """The same, where what is not seen is not computed."""
        kinds = self._kinds(config, size).to(device)
        others = self._clip_recall({}, device)
        return sparse_recall(others, kinds, self.num_frames, config.tokens_per_frame(*size))

    def _clip_recall(self, masks: dict[str, Bool[Tensor, "tokens tokens"]], device: torch.device) -> ClipRecall:
        """With the mask of the camera head beside these."""
        of_camera = clip_mask(self._retention.camera(), self._arrivals, 1)
        return ClipRecall(
            masks | {CAMERA: of_camera.to(device)},
            ordinals=clip_ordinals(self._arrivals),
            num_scale_frames=self.num_scale_frames,
        )

    def _kinds(self, config: GeometryConfig, size: tuple[int, int]) -> Bool[Tensor, "kinds kinds"]:
        """Which special tokens and patches see which; patches of a frame are seen alike, and one stands for them."""
        of_trunk = self._retention.for_stream(trunk_layout(config, size))
        return clip_mask(of_trunk, self._arrivals, config.special_tokens + 1)

    @property
    def _retention(self) -> ContextRetention:
        return ContextRetention(anchors=self.num_scale_frames, window=self.window, history=None)

    @property
    def _arrivals(self) -> tuple[Arrival, ...]:
        later = range(self.num_frames - self.num_scale_frames)
        return arrivals(self.num_scale_frames, [at % self.interval == 0 for at in later])


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
