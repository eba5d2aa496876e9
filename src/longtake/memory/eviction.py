"""Policies that let each layer forget on its own, by what attention or the keys themselves say of every token.

They are values, like the other policies; what they learn about a token is in its notes, about a layer in its memo, and
both belong to the memory. All layers are judged together when a clip is kept:

    books of all layers ──▶ judge ──▶ verdicts: who stays, notes, memo        one for each layer
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32
from torch import Tensor

from longtake.memory.layout import StreamLayout
from longtake.memory.tokens import Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """What was just looked at and will be kept."""

    num_kept: int
    """Frames kept, those of the clip included."""
    num_frames: int
    """Frames of the clip; their tokens are the last in each book."""
    tokens_per_frame: int
    num_heads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerState:
    """What one layer remembers once a clip was looked at."""

    tokens: Tokens
    """In attention order, the clip's own last; their notes as they were before it, zero for its own."""
    attention_mass: Float32[np.ndarray, " tokens"] | None
    """What each key got of the attention of the clip's queries, summed over queries and heads; only if wanted."""
    keys: Float[Tensor, "tokens heads head_dim"] | None
    """As stored; only if wanted."""
    layer_stats: tuple[float, ...]
    """What the policy noted about the layer after the clip before; zeros at first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionDecision:
    """What becomes of one layer's tokens."""

    stays: Bool[np.ndarray, " tokens"]
    token_stats: Float32[np.ndarray, "tokens columns"]
    """Of all tokens, those that leave included."""
    layer_stats: tuple[float, ...]


class Eviction(ABC):
    """Decides after each kept clip, for all layers of one stream at once, which tokens stay."""

    @property
    def num_token_stats(self) -> int:
        """Numbers noted about each token."""
        return 0

    @property
    def num_layer_stats(self) -> int:
        """Numbers noted about each layer."""
        return 0

    @property
    def wants_attention_mass(self) -> bool:
        """Whether books must say what each key received."""
        return False

    @property
    def wants_keys(self) -> bool:
        """Whether books must show the keys."""
        return False

    @abstractmethod
    def judge(self, layers: Sequence[LayerState], clip: Clip) -> list[EvictionDecision]:
        """One verdict for each book."""

    @abstractmethod
    def most_tokens(self, layout: StreamLayout, *, clip_frames: int = 1) -> int:
        """The most tokens that can stay, over all layers together, whatever the video, if no clip has more frames.

        Refuses a budget that cannot hold what the policy protects.
        """
