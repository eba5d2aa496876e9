"""What policies with a constant budget of tokens have in common: the budget, and what it must hold."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from jaxtyping import Float32, Float64

from longtake.errors import BudgetError, SettingError
from longtake.memory.budget import format_bytes
from longtake.memory.layout import StreamLayout
from longtake.memory.policies.allocation import fill
from longtake.memory.policies.protection import CAMERA_FRAMES, Protection, anchors_and_history
from longtake.memory.policies.scoring import without_lowest
from longtake.memory.policies.window import Window
from longtake.memory.policy import PerLayerPolicy
from longtake.memory.tokens import Flags

Own = TypeVar("Own", bound="Budgeted")
_MOST_TOKENS = 2**40


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
            least = bisect_right(candidates, 0, key=taken) + 1
            raise BudgetError(
                f"A budget of {format_bytes(budget_bytes)} cannot hold {self.anchors} anchors, {self.recent} recent "
                f"frames and the special tokens of {self.special_frames}; the smallest that works is "
                f"{format_bytes(taken(least))}."
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
