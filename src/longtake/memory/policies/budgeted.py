"""Policies with a constant budget of tokens: what it must hold, and who stays by attention or by keys."""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Float64
from torch import Tensor
from torch.nn.functional import normalize

from longtake.errors import BudgetError, SettingError
from longtake.memory.budget import format_bytes
from longtake.memory.policies import stacked
from longtake.memory.policies.allocation import fill, softmax_shares, without_lowest
from longtake.memory.policies.lockstep import Window
from longtake.memory.policies.protection import CAMERA_FRAMES, Protection, anchors_and_history
from longtake.memory.policy import (
    Clip,
    EvictionDecision,
    LayerState,
    PerLayerPolicy,
    StackedDecision,
    StackedPolicy,
    StackedState,
)
from longtake.memory.tokens import Flags, StreamLayout, TokenStats

Own = TypeVar("Own", bound="Budgeted")
_MOST_TOKENS = 2**40
_KEYS_TEMPERATURE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgeted(PerLayerPolicy):
    """All layers together keep at most `num_tokens` tokens, and those that are protected whatever the budget: the first
    `anchors` and the newest `recent` frames whole, and the special tokens of the newest `special_frames` frames.
    Special tokens of older frames compete like any other token."""

    num_tokens: int | None = None
    """Over all layers; None for as many as `num_frames` whole frames have."""
    num_frames: int = 16
    anchors: int = 1
    recent: int = 1
    special_frames: int = 64
    camera_frames: int = CAMERA_FRAMES
    special_tokens: int | None = None
    """Of each frame, its first ones; None for as many as the stream has."""

    def __post_init__(self) -> None:
        budget = self.num_frames if self.num_tokens is None else self.num_tokens
        if budget < 1 or self.recent < 1:
            raise SettingError(
                f"A budget must be 1 token and protect 1 recent frame at least, but got {budget} "
                f"{'frames' if self.num_tokens is None else 'tokens'} and {self.recent} recent frames."
            )
        self._protection(self.special_tokens or 0).check()

    def for_stream(self: Own, layout: StreamLayout) -> Own:
        of_frames = self.num_frames * layout.num_layers * layout.tokens_per_frame
        return replace(
            self,
            num_tokens=of_frames if self.num_tokens is None else self.num_tokens,
            special_tokens=layout.special_tokens if self.special_tokens is None else self.special_tokens,
        )

    def camera(self) -> Window:
        return anchors_and_history(self.anchors, self.camera_frames)

    def of_frames(self: Own, num_frames: int, layout: StreamLayout) -> Own:
        sized = replace(self, num_frames=num_frames, num_tokens=None)
        protected = sized.for_stream(layout).protection.most_tokens(layout.tokens_per_frame)
        least = -(-protected // layout.tokens_per_frame)
        if num_frames < least:
            raise BudgetError(
                f"A memory of {num_frames} frames cannot hold {self.anchors} anchors, {self.recent} recent frames and "
                f"the special tokens of {self.special_frames}; the smallest that works is {least} frames."
            )
        return sized

    def fitted(self: Own, budget_bytes: int, num_bytes: Callable[[Own], int]) -> Own:
        """As many tokens as the budget holds; refused where it does not hold what is protected."""

        def taken(num_tokens: int) -> int:
            try:
                return num_bytes(replace(self, num_tokens=num_tokens))
            except BudgetError:
                return 0  # fewer than are protected: too few, whatever they take

        candidates = range(1, _MOST_TOKENS)
        num_tokens = bisect_right(candidates, budget_bytes, key=taken)
        if num_tokens == 0 or taken(num_tokens) == 0:
            least_bytes = taken(bisect_right(candidates, 0, key=taken) + 1)
            raise BudgetError(
                f"A budget of {format_bytes(budget_bytes)} cannot hold {self.anchors} anchors, {self.recent} recent "
                f"frames and the special tokens of {self.special_frames}; the smallest that works is "
                f"{format_bytes(least_bytes)}.",
                least_bytes=least_bytes,
            )
        return replace(self, num_tokens=num_tokens)

    @property
    def protection(self) -> Protection:
        assert self.special_tokens is not None, "for_stream was not asked"
        return self._protection(self.special_tokens)

    def least_tokens(self, layout: StreamLayout) -> int:
        """The smallest budget that holds what is protected."""
        return layout.num_layers * self.protection.most_tokens(layout.tokens_per_frame)

    def require_fits(self, layout: StreamLayout) -> None:
        """Refuse a budget that does not hold what is protected."""
        least = self.least_tokens(layout)
        if self._total_tokens < least:
            raise BudgetError(
                f"A budget of {self._total_tokens} tokens over all layers cannot hold the protected ones; the smallest "
                f"that works is {least}."
            )

    def most_tokens(self, layout: StreamLayout, *, clip_frames: int = 1) -> int:  # noqa: ARG002
        self.require_fits(layout)
        return self._total_tokens

    def stays_within(
        self,
        shares: Float64[np.ndarray, " layers"],
        scores: Sequence[Float32[np.ndarray, "_"]],
        protected: Sequence[Flags],
    ) -> list[Flags]:
        """Who stays in each layer, highest scores first, when each gets its share of the budget."""
        sizes = [len(of_layer) for of_layer in scores]
        floors = [int(np.count_nonzero(covered)) for covered in protected]
        allocation = fill(self._total_tokens, shares, floors=floors, sizes=sizes)
        assert not allocation.overflow, "require_fits was not asked"
        return [
            without_lowest(of_layer, size - keep, may_leave=~covered)
            for of_layer, size, keep, covered in zip(scores, sizes, allocation.keep, protected, strict=True)
        ]

    @property
    def _total_tokens(self) -> int:
        assert self.num_tokens is not None, "for_stream was not asked"
        return self.num_tokens

    def _protection(self, special_tokens: int) -> Protection:
        return Protection(
            anchors=self.anchors,
            recent=self.recent,
            special_tokens=special_tokens,
            special_frames=self.special_frames,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Managed(Budgeted, StackedPolicy):
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
        token_stats = fade * state.tokens.token_stats
        token_stats[:, 0] += state.attention_mass * np.float32(len(state.tokens) / queries)
        token_stats[:, 1] += np.float32(clip.num_frames)
        return token_stats

    def decide_stacked(self, state: StackedState) -> StackedDecision:
        covered = self.protection.covers_stacked(state)
        may_leave = state.is_token & ~covered
        layer_stats = self._watch_stacked(state, may_leave)
        token_stats = self._accumulate_stacked(state)
        keep = stacked.fill(
            self._total_tokens,
            stacked.softmax_shares(layer_stats[:, 0], self.temperature),
            floors=(state.is_token & covered).sum(1),
            sizes=state.size[:, 0],
        )
        scores = token_stats[0] / token_stats[1]
        stays = stacked.without_lowest(scores, state.size[:, 0] - keep, may_leave=may_leave)
        return StackedDecision(stays=stays, token_stats=token_stats, layer_stats=layer_stats)

    def _watch_stacked(
        self, state: StackedState, unprotected: Bool[Tensor, "layers places"]
    ) -> Float64[Tensor, "layers 2"]:
        before, is_known = state.layer_stats.unbind(1)
        mean, variance = stacked.moments(state.attention_mass, unprotected)
        now = torch.where(mean > 0, (variance / (mean * mean)).log1p(), 0.0)
        smoothed = torch.where(is_known > 0, self.smoothing * before + (1 - self.smoothing) * now, now)
        known = torch.stack((smoothed, torch.ones_like(smoothed)), dim=1)
        return torch.where(unprotected.any(1, keepdim=True), known, state.layer_stats)

    def _accumulate_stacked(self, state: StackedState) -> Float32[Tensor, "2 layers places"]:
        queries = state.tokens_per_frame * state.num_heads
        attention, exposure = self.decay**state.num_frames * state.token_stats
        added = state.attention_mass * (state.size.double() / queries).float()
        return torch.stack((attention + added, exposure + state.num_frames))


def unevenness(attention_mass: Float32[np.ndarray, " tokens"]) -> float:
    """log(1 + squared coefficient of variation): 0 where all tokens got the same, whatever the amount."""
    exact = attention_mass.astype(np.float64)
    mean = exact.mean()
    return math.log1p(exact.var() / mean**2) if mean > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDiversity(Budgeted):
    """All layers together keep at most `num_tokens` tokens, after the rule of InfiniteVGGT.

    A token's similarity is the cosine between its key and the mean normalised key of the unprotected tokens, averaged
    over heads; the most similar leave. Layers share what protection leaves by softmax((1 - mean similarity) / 0.5).
    Unlike the published rule, tokens leave whole and not head by head, after the clip and not before it, and what is
    protected is as in the managed policy.
    """

    @property
    def wants_keys(self) -> bool:
        return True

    def decide(self, layers: Sequence[LayerState], clip: Clip) -> list[EvictionDecision]:
        protected = [self.protection.covers(state.tokens, num_kept=clip.num_kept) for state in layers]
        scores, mean_similarities = [], []
        for state, covered in zip(layers, protected, strict=True):
            assert state.keys is not None
            similar = similarity(state.keys, ~covered)
            scores.append(-similar)
            mean_similarities.append(float(similar[~covered].mean()) if not covered.all() else 0.0)
        shares = softmax_shares(mean_similarities, _KEYS_TEMPERATURE)
        stays = self.stays_within(shares, scores, protected)
        return [
            EvictionDecision(stays=flags, token_stats=state.tokens.token_stats, layer_stats=())
            for flags, state in zip(stays, layers, strict=True)
        ]


@torch.no_grad()
def similarity(keys: Float[Tensor, "tokens heads head_dim"], of: Flags) -> Float32[np.ndarray, " tokens"]:
    """Cosine of each key with the mean direction of some of them, averaged over heads; head by head to save memory."""
    among = torch.from_numpy(of).to(keys.device)
    total = torch.zeros(len(keys), device=keys.device)
    for head in range(keys.shape[1]):
        directions = normalize(keys[:, head].float(), dim=-1)
        total += directions @ normalize(directions[among].sum(0), dim=0)
    return (total / keys.shape[1]).cpu().numpy()
