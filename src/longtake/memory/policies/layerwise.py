"""Layer-wise eviction by accumulated attention, index for index as published; and its variant that keeps its word.

It needs the number of frames in advance. The arithmetic is in functions, for those who count in another shape.
"""

import math
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Int64
from torch import Tensor

from longtake.errors import SettingError
from longtake.memory.policies import stacked
from longtake.memory.policies.allocation import softmax_shares, without_lowest
from longtake.memory.policies.lockstep import Window
from longtake.memory.policies.protection import anchors_and_history, refuse_size
from longtake.memory.policy import (
    Clip,
    EvictionDecision,
    LayerState,
    StackedDecision,
    StackedPolicy,
    StackedState,
)
from longtake.memory.tokens import Flags, StreamLayout, Tokens, TokenStats

_EXPOSURE_EPSILON = 1e-6
_MOST_FRAMES = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Layerwise(StackedPolicy):
    """Each frame adds to a token the attention it got (mean over heads, times the number of tokens there); its
    score is that sum over the number of frames it was exposed to. Layers where attention is spread evenly get a larger
    share of `budget_ratio · num_frames` frames for each layer. In every layer the lowest scores leave until no more
    than its share is left.

    The first frame and the special tokens of all frames score infinity, which only sorts them last: where the share is
    smaller than they are, they leave too, and a layer can end up empty. `strict` never evicts them. The last declared
    frame and what comes after it evict nothing. Frames of a clip count one by one.
    """

    argument: ClassVar[str | None] = "num_frames"
    num_frames: int
    budget_ratio: float = 0.5
    temperature: float = 0.5
    strict: bool = True
    special_tokens: int | None = None
    """Of each frame, its first ones; None for as many as the stream has."""

    def __post_init__(self) -> None:
        if not (0 < self.budget_ratio < math.inf and 0 < self.temperature < math.inf):
            raise SettingError(
                f"Layer-wise eviction needs a budget ratio and a temperature above 0, but got {self.budget_ratio} and "
                f"{self.temperature}; the usual ones are 0.5 and 0.5."
            )
        if not 1 <= self.num_frames <= _MOST_FRAMES or (self.special_tokens or 0) < 0:
            raise SettingError(
                f"Layer-wise eviction needs the number of frames of the video, 1 to {_MOST_FRAMES}, and special "
                f"tokens >= 0, but got {reprlib.repr(self.num_frames)} and {reprlib.repr(self.special_tokens)}."
            )

    def for_stream(self, layout: StreamLayout) -> "Layerwise":
        return self if self.special_tokens is not None else replace(self, special_tokens=layout.special_tokens)

    def camera(self) -> Window:
        """All frames of the video."""
        return anchors_and_history(1, self.num_frames)

    def of_frames(self, num_frames: int, layout: StreamLayout) -> "Layerwise":  # noqa: ARG002
        raise refuse_size("layerwise")

    @property
    def num_token_stats(self) -> int:
        """Accumulated attention and exposure."""
        return 2

    @property
    def holds_until(self) -> int:
        return self.num_frames

    def decide(self, layers: Sequence[LayerState], clip: Clip) -> list[EvictionDecision]:
        sums = [_head_means(state, clip.num_heads) for state in layers]
        token_stats = [
            self._accumulate(state.tokens, of_layer, clip) for state, of_layer in zip(layers, sums, strict=True)
        ]
        if clip.num_kept == 1 or clip.num_kept >= self.num_frames:
            stays = [np.ones(len(of_layer), dtype=np.bool_) for of_layer in sums]
        else:
            stays = self._choose([of_layer / clip.num_frames for of_layer in sums], token_stats, clip)
        return [
            EvictionDecision(stays=flags, token_stats=with_stats, layer_stats=())
            for flags, with_stats in zip(stays, token_stats, strict=True)
        ]

    def decide_stacked(self, state: StackedState) -> StackedDecision:
        sums = state.attention_mass / state.num_heads
        attention = state.token_stats[0] + state.size.float() * sums
        special = (state.index < self._num_special) & (state.frame >= state.num_kept - state.num_frames)
        attention = torch.where(special | (state.frame == 0), torch.inf, attention)
        exposure = state.token_stats[1] + state.num_frames
        may_leave = state.is_token & attention.isfinite() if self.strict else state.is_token
        stays = stacked.without_lowest(
            attention / (exposure + _EXPOSURE_EPSILON),
            torch.minimum(self._num_leaving(sums / state.num_frames, state), may_leave.sum(1)),
            may_leave=may_leave,
        )
        is_spared = (state.num_kept == 1) | (state.num_kept >= self.num_frames)
        return StackedDecision(
            stays=stays | is_spared, token_stats=torch.stack((attention, exposure)), layer_stats=state.layer_stats
        )

    def _num_leaving(self, sums: Float32[Tensor, "layers places"], state: StackedState) -> Int64[Tensor, " layers"]:
        """As `dropped_by_now` has it, in float32."""
        _, spreads = stacked.moments(sums, state.is_token)
        shares = stacked.softmax_shares(spreads, self.temperature).float()
        kept = shares * (self.budget_ratio * self.num_frames * state.tokens_per_frame * len(shares))
        seen = state.num_kept * state.tokens_per_frame
        return (seen.float() - kept).clamp(min=0).long() - (seen - state.size[:, 0])

    def most_tokens(self, layout: StreamLayout, *, clip_frames: int = 1) -> int:
        """While no more than the declared frames come; after them it grows for ever."""
        frame, layers = layout.tokens_per_frame, layout.num_layers
        most = max(0, self.num_frames - 1) * frame
        # every layer's share is rounded up, and float32 may round it up once more
        budget = math.ceil(self.budget_ratio * self.num_frames * layers * frame) + 2 * layers
        protected = frame + max(0, self.num_frames - 2) * min(self._num_special, frame) if self.strict else 0
        held = max(_most_unequal(budget, cap=most, least=min(protected, most), layers=layers), frame * layers)
        return min(self.num_frames * frame * layers, held + clip_frames * frame * layers)

    def _accumulate(self, tokens: Tokens, sums: Float32[np.ndarray, " tokens"], clip: Clip) -> TokenStats:
        attention = tokens.token_stats[:, 0] + np.float32(len(tokens)) * sums
        special = (tokens.index < self._num_special) & (tokens.frame >= clip.num_kept - clip.num_frames)
        attention[special | (tokens.frame == 0)] = np.inf
        return np.stack((attention, tokens.token_stats[:, 1] + np.float32(clip.num_frames)), axis=1)

    @property
    def _num_special(self) -> int:
        assert self.special_tokens is not None, "for_stream was not asked"
        return self.special_tokens

    def _choose(
        self, sums: Sequence[Float32[np.ndarray, "_"]], token_stats: Sequence[TokenStats], clip: Clip
    ) -> list[Flags]:
        shares = softmax_shares([spread(of_layer) for of_layer in sums], self.temperature)
        seen = clip.num_kept * clip.tokens_per_frame
        targets = dropped_by_now(shares, seen, self.budget_ratio * self.num_frames * clip.tokens_per_frame)
        return [
            stays_of_layer(with_stats[:, 0], with_stats[:, 1], target - (seen - len(with_stats)), strict=self.strict)
            for target, with_stats in zip(targets, token_stats, strict=True)
        ]


def spread(sums: Float[np.ndarray, "*batch tokens"]) -> float:
    """Population variance of what the keys got, over tokens and, where there are several, over the batch."""
    return float(np.var(sums.astype(np.float64)))


def dropped_by_now(shares: Float64[np.ndarray, " layers"], tokens_seen: int, tokens_per_layer: float) -> list[int]:
    """How many of the tokens seen since the beginning each layer should have dropped.

    In float32 as published: a share of next to nothing rounds away, and then all tokens are to be dropped.
    """
    kept = np.float32(tokens_per_layer * len(shares)) * shares.astype(np.float32)
    return [int(max(0.0, dropped)) for dropped in (np.float32(tokens_seen) - kept).tolist()]


def stays_of_layer(
    attention: Float32[np.ndarray, " tokens"],
    exposure: Float32[np.ndarray, " tokens"],
    num_leaving: int,
    *,
    strict: bool,
) -> Flags:
    """Who stays when so many leave, lowest attention for their exposure first; `strict` spares infinite attention."""
    may_leave = np.isfinite(attention) if strict else np.ones(len(attention), dtype=np.bool_)
    scores = attention / (exposure + np.float32(_EXPOSURE_EPSILON))
    return without_lowest(scores, min(num_leaving, int(np.count_nonzero(may_leave))), may_leave=may_leave)


def _head_means(state: LayerState, num_heads: int) -> Float32[np.ndarray, "_"]:
    assert state.attention_mass is not None
    return state.attention_mass / np.float32(num_heads)


def _most_unequal(budget: int, *, cap: int, least: int, layers: int) -> int:
    """The most that layers can hold when a budget is split as unequally as can be and none goes below `least`."""
    if cap == 0:
        return 0
    num_full = min(layers, budget // cap)
    if num_full == layers:
        return layers * cap
    return num_full * cap + max(least, budget - num_full * cap) + (layers - num_full - 1) * least
