"""A constant budget of tokens for a video without an end, divided between layers by how they attend."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from longtake.errors import SettingError
from longtake.memory.policies.allocation import softmax_shares
from longtake.memory.policies.budgeted import Budgeted
from longtake.memory.policy import Clip, EvictionDecision, LayerState
from longtake.memory.tokens import Flags, TokenStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Managed(Budgeted):
    """All layers together keep at most `num_tokens` tokens; anchors, the newest frames and the special tokens of the
    newest `special_frames` frames are protected.

    Each clip adds to a token what it got of the clip's attention, relative to the mean of its layer; its score is that
    sum over the frames it was exposed to. `decay` below 1 lets both fade by that factor with each frame.

    A layer's statistic is log(1 + squared coefficient of variation) of the attention mass of its unprotected tokens,
    which has no unit; it is smoothed over time, `smoothing` being the weight of the past. Layers share what protection
    leaves by softmax(-statistic / temperature). In each layer the lowest scores leave; of equal ones the earlier in
    attention order.
    """

    decay: float = 1.0
    smoothing: float = 0.9
    temperature: float = 1.0

    def __post_init__(self) -> None:
        Budgeted.__post_init__(self)
        if not (0 < self.decay <= 1 and 0 <= self.smoothing < 1 and 0 < self.temperature < math.inf):
            raise SettingError(
                f"A managed memory needs 0 < decay <= 1, 0 <= smoothing < 1 and a temperature above 0, but got "
                f"{self.decay}, {self.smoothing} and {self.temperature}."
            )

    @property
    def num_token_stats(self) -> int:
        """Attention mass and exposure."""
        return 2

    @property
    def num_layer_stats(self) -> int:
        """The smoothed statistic, and 1 once there is one."""
        return 2

    @property
    def wants_attention_mass(self) -> bool:
        return True

    def decide(self, layers: Sequence[LayerState], clip: Clip) -> list[EvictionDecision]:
        protected = [self.protection.covers(state.tokens, num_kept=clip.num_kept) for state in layers]
        layer_stats = [self._watch(state, ~covered) for state, covered in zip(layers, protected, strict=True)]
        token_stats = [self._accumulate(state, clip) for state in layers]
        scores = [with_stats[:, 0] / with_stats[:, 1] for with_stats in token_stats]
        shares = softmax_shares([statistic for statistic, _ in layer_stats], self.temperature)
        stays = self.stays_within(shares, scores, protected)
        return [
            EvictionDecision(stays=flags, token_stats=with_stats, layer_stats=of_layer)
            for flags, with_stats, of_layer in zip(stays, token_stats, layer_stats, strict=True)
        ]

    def _watch(self, state: LayerState, unprotected: Flags) -> tuple[float, ...]:
        assert state.attention_mass is not None
        before, is_known = state.layer_stats
        if not unprotected.any():
            return state.layer_stats
        now = unevenness(state.attention_mass[unprotected])
        return (self.smoothing * before + (1 - self.smoothing) * now if is_known else now, 1.0)

    def _accumulate(self, state: LayerState, clip: Clip) -> TokenStats:
        """A clip of several frames counts as so many frames that looked alike."""
        assert state.attention_mass is not None
        queries = clip.tokens_per_frame * clip.num_heads
        fade = np.float32(self.decay**clip.num_frames)
        mass = fade * state.tokens.token_stats[:, 0] + state.attention_mass * np.float32(len(state.tokens) / queries)
        return np.stack((mass, fade * state.tokens.token_stats[:, 1] + np.float32(clip.num_frames)), axis=1)


def unevenness(attention_mass: Float32[np.ndarray, " tokens"]) -> float:
    """log(1 + squared coefficient of variation): 0 where all tokens got the same, whatever the amount."""
    exact = attention_mass.astype(np.float64)
    mean = exact.mean()
    return math.log1p(exact.var() / mean**2) if mean > 0 else 0.0
