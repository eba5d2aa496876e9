"""A rival that forgets whole frames: those that another kept frame resembles most."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor
from torch.nn.functional import normalize

from longtake.errors import BudgetError, SettingError
from longtake.memory.policies.lockstep import Window
from longtake.memory.policies.protection import CAMERA_FRAMES, anchors_and_history
from longtake.memory.policy import Clip, EvictionDecision, LayerState, PerLayerPolicy
from longtake.memory.tokens import Flags, StreamLayout, Tokens

_MOST_FRAMES = 2**40


@dataclass(frozen=True, slots=True, kw_only=True)
class FarthestFrames(PerLayerPolicy):
    """Every layer keeps `num_frames` whole frames, chosen layer by layer.

    A frame is described by the mean of its tokens' normalised keys. While there are too many, the frame leaves whose
    nearest other kept frame is nearest, of equals the older; the first `anchors` and the newest `recent` frames never
    leave.
    """

    num_frames: int = 16
    anchors: int = 1
    recent: int = 1
    camera_frames: int = CAMERA_FRAMES

    def __post_init__(self) -> None:
        if self.anchors < 0 or self.recent < 1:
            raise SettingError(
                f"Farthest frames need anchors >= 0 and 1 recent frame at least, but got {self.anchors} and "
                f"{self.recent}."
            )
        if self.num_frames < self.anchors + self.recent:
            raise BudgetError(
                f"A budget of {self.num_frames} frames cannot hold {self.anchors} anchors and {self.recent} recent "
                f"frames; the smallest that works is {self.anchors + self.recent}."
            )

    def camera(self) -> Window:
        return anchors_and_history(self.anchors, self.camera_frames)

    def of_frames(self, num_frames: int, layout: StreamLayout) -> "FarthestFrames":  # noqa: ARG002
        return replace(self, num_frames=num_frames)

    def fitted(self, budget_bytes: int, num_bytes: Callable[["FarthestFrames"], int]) -> "FarthestFrames":
        """As many frames as fit, or the fewest there can be."""
        counts = range(self.anchors + self.recent, _MOST_FRAMES)
        fitting = bisect_right(counts, budget_bytes, key=lambda count: num_bytes(replace(self, num_frames=count)))
        return replace(self, num_frames=counts[max(0, fitting - 1)])

    @property
    def wants_keys(self) -> bool:
        return True

    def decide(self, layers: Sequence[LayerState], clip: Clip) -> list[EvictionDecision]:
        return [
            EvictionDecision(stays=self._stays(state, clip), token_stats=state.tokens.token_stats, layer_stats=())
            for state in layers
        ]

    def most_tokens(self, layout: StreamLayout, *, clip_frames: int = 1) -> int:  # noqa: ARG002
        return layout.num_layers * self.num_frames * layout.tokens_per_frame

    def _stays(self, state: LayerState, clip: Clip) -> Flags:
        assert state.keys is not None
        frames, which = np.unique(state.tokens.frame, return_inverse=True)
        if len(frames) <= self.num_frames:
            return np.ones(len(state.tokens), dtype=np.bool_)
        may_leave = (frames >= self.anchors) & (frames < clip.num_kept - self.recent)
        distances = _distances(descriptors(state.keys, state.tokens, clip.tokens_per_frame))
        return without_nearest(distances, len(frames) - self.num_frames, may_leave=may_leave)[which]


def without_nearest(distances: Float32[np.ndarray, "frames frames"], num_leaving: int, *, may_leave: Flags) -> Flags:
    """Which frames stay when so many leave, one after another; a frame's distance to itself does not count."""
    between = distances.copy()
    np.fill_diagonal(between, np.inf)
    stays = np.ones(len(between), dtype=np.bool_)
    for _ in range(num_leaving):
        nearest = np.where(may_leave & stays, between.min(axis=1), np.inf)
        leaving = int(np.argmin(nearest))
        stays[leaving] = False
        between[leaving, :] = between[:, leaving] = np.inf
    return stays


@torch.no_grad()
def descriptors(
    keys: Float[Tensor, "tokens heads head_dim"], tokens: Tokens, tokens_per_frame: int
) -> Float32[Tensor, "frames channels"]:
    """The mean normalised key of each whole frame, all heads side by side; head by head to save memory."""
    order = torch.from_numpy(np.lexsort((tokens.index, tokens.frame))).to(keys.device)
    columns = []
    for head in range(keys.shape[1]):
        directions = normalize(keys[order, head].float(), dim=-1)
        columns.append(directions.unflatten(0, (-1, tokens_per_frame)).mean(1))
    return torch.cat(columns, dim=1)


def _distances(points: Float32[Tensor, "frames channels"]) -> Float32[np.ndarray, "frames frames"]:
    """Exactly symmetric, so that two frames nearest to each other tie."""
    return torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist").cpu().numpy()
