"""A fixed part of what is not protected leaves after every clip."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from longtake.errors import SettingError
from longtake.memory.policies import stacked
from longtake.memory.policies.allocation import without_lowest
from longtake.memory.policies.lockstep import Window
from longtake.memory.policies.protection import CAMERA_FRAMES, Protection, anchors_and_history, refuse_size
from longtake.memory.policy import (
    Clip,
    EvictionDecision,
    LayerState,
    StackedDecision,
    StackedPolicy,
    StackedState,
)
from longtake.memory.tokens import StreamLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio(StackedPolicy):
    """Of the unprotected tokens of each layer, the part `drop` that got least of the current clip's attention,
    over all heads, leaves; whole tokens, rounded down.

    Anchors, and the special tokens of anchors and of the newest `special_frames` frames, are protected. There is no
    budget: what is left converges to what a frame brings times (1 - drop) / drop.
    """

    drop: float = 0.3
    anchors: int = 1
    special_frames: int = 64
    camera_frames: int = CAMERA_FRAMES
    special_tokens: int | None = None
    """Of each frame, its first ones; None for as many as the stream has."""

    def __post_init__(self) -> None:
        if not 0 < self.drop < 1:
            raise SettingError(
                f"Ratio eviction drops a part between 0 and 1 of the tokens after each frame, but {self.drop} was "
                "given; the usual part is 0.3."
            )
        self._protection(self.special_tokens or 0).check()

    def for_stream(self, layout: StreamLayout) -> "Ratio":
        return self if self.special_tokens is not None else replace(self, special_tokens=layout.special_tokens)

    def camera(self) -> Window:
        return anchors_and_history(self.anchors, self.camera_frames)

    def of_frames(self, num_frames: int, layout: StreamLayout) -> "Ratio":  # noqa: ARG002
        raise refuse_size("ratio")

    @property
    def protection(self) -> Protection:
        assert self.special_tokens is not None, "for_stream was not asked"
        return self._protection(self.special_tokens)

    def decide(self, layers: Sequence[LayerState], clip: Clip) -> list[EvictionDecision]:
        return [self._decide_layer(state, clip.num_kept) for state in layers]

    def decide_stacked(self, state: StackedState) -> StackedDecision:
        may_leave = state.is_token & ~self.protection.covers_stacked(state)
        num_leaving = (self.drop * may_leave.sum(1).double()).long()
        stays = stacked.without_lowest(state.attention_mass, num_leaving, may_leave=may_leave)
        return StackedDecision(stays=stays, token_stats=state.token_stats, layer_stats=state.layer_stats)

    def most_tokens(self, layout: StreamLayout, *, clip_frames: int = 1) -> int:
        arriving = clip_frames * layout.tokens_per_frame
        protected = self.protection.most_tokens(layout.tokens_per_frame)
        return layout.num_layers * (protected + self._steady_size(arriving))

    def _decide_layer(self, state: LayerState, num_kept: int) -> EvictionDecision:
        assert state.attention_mass is not None
        may_leave = ~self.protection.covers(state.tokens, num_kept=num_kept)
        num_leaving = int(self.drop * int(may_leave.sum()))
        stays = without_lowest(state.attention_mass, num_leaving, may_leave=may_leave)
        return EvictionDecision(stays=stays, token_stats=state.tokens.token_stats, layer_stats=())

    def _steady_size(self, arriving: int) -> int:
        """Unprotected tokens left once as many leave as arrive: the size from which no number of arrivals leads up."""
        before = math.floor(arriving / self.drop)
        while int(self.drop * before) < arriving:
            before += 1
        return before - arriving

    def _protection(self, special_tokens: int) -> Protection:
        return Protection(
            anchors=self.anchors, recent=0, special_tokens=special_tokens, special_frames=self.special_frames
        )
