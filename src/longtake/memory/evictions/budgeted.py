"""What policies with a constant budget of tokens have in common: the budget, and what it must hold."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64

from longtake.errors import BudgetError, SettingError
from longtake.memory.eviction import Eviction
from longtake.memory.evictions.allocation import fill
from longtake.memory.evictions.protection import Protection
from longtake.memory.evictions.scoring import without_lowest
from longtake.memory.layout import StreamLayout
from longtake.memory.tokens import Flags


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgeted(Eviction):
    """All layers together keep at most `total_tokens` tokens, and those that are protected whatever the budget: the
    first `anchors` and the newest `recent` frames whole, and the special tokens of the newest `special_frames` frames.
    Special tokens of older frames compete like any other token."""

    total_tokens: int
    special_tokens: int
    anchors: int = 1
    recent: int = 1
    special_frames: int = 64

    def __post_init__(self) -> None:
        if self.total_tokens < 1 or self.recent < 1:
            raise SettingError(
                f"A budget must be 1 token and protect 1 recent frame at least, but got {self.total_tokens} tokens and "
                f"{self.recent} recent frames."
            )
        self.protection.check()

    @property
    def protection(self) -> Protection:
        return Protection(
            anchors=self.anchors,
            recent=self.recent,
            special_tokens=self.special_tokens,
            special_frames=self.special_frames,
        )

    def least_tokens(self, layout: StreamLayout) -> int:
        """The smallest budget that holds what is protected."""
        return layout.num_layers * self.protection.most_tokens(layout.tokens_per_frame)

    def require_fits(self, layout: StreamLayout) -> None:
        least = self.least_tokens(layout)
        if self.total_tokens < least:
            raise BudgetError(
                f"A budget of {self.total_tokens} tokens over all layers cannot hold the protected ones; the smallest "
                f"that works is {least}."
            )

    def most_tokens(self, layout: StreamLayout, *, clip_frames: int = 1) -> int:  # noqa: ARG002
        self.require_fits(layout)
        return self.total_tokens

    def stays_within(
        self,
        shares: Float64[np.ndarray, " layers"],
        scores: Sequence[Float32[np.ndarray, "_"]],
        protected: Sequence[Flags],
    ) -> list[Flags]:
        """Who stays in each layer, highest scores first, when each gets its share of the budget."""
        sizes = [len(of_layer) for of_layer in scores]
        floors = [int(np.count_nonzero(covered)) for covered in protected]
        allocation = fill(self.total_tokens, shares, floors=floors, sizes=sizes)
        assert not allocation.overflow, "require_fits was not asked"
        return [
            without_lowest(of_layer, size - keep, may_leave=~covered)
            for of_layer, size, keep, covered in zip(scores, sizes, allocation.keep, protected, strict=True)
        ]
