"""Policies: what a clip may see and what stays after it is kept. Values and pure functions; no state.

Frames are counted by how many were kept before them. The published rule of the geometric context transformer, with
`n` frames kept, `anchors` = 2, `window` = 3 and a trail of special tokens, drawn as a ruler:

    frame    0  1 │ 2  3  4  … │ n-3  n-2  n-1
             full │ first few  │ full
             anchors   trail      window
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum

import numpy as np

from longtake.errors import SettingError
from longtake.memory.tokens import Flags, Tokens


class Keep(Enum):
    """What is known of a clip before the model looks at it."""

    YES = "kept"
    NO = "not kept"
    DEFERRED = "judged afterwards"


class Retention(ABC):
    """Answers two questions about tokens; `num_kept` counts the frames kept up to that moment."""

    @abstractmethod
    def stays(self, tokens: Tokens, *, num_kept: int) -> Flags:
        """Which of these tokens are still remembered once `num_kept` frames have been kept."""

    @abstractmethod
    def most_tokens(self, tokens_per_frame: int, *, num_kept: int) -> int:
        """The most tokens that can be remembered while no more than `num_kept` frames have been kept."""

    @property
    @abstractmethod
    def full_after(self) -> int | None:
        """How many kept frames fill the memory, or None where it grows for ever."""

    def sees(self, tokens: Tokens, *, num_kept: int, num_coming: int, keep: Keep) -> Flags:
        """Which of the remembered tokens a clip of `num_coming` frames may see, besides its own.

        A clip known to be kept does not see what its own commit will evict; any other sees all.
        """
        if keep is Keep.YES:
            return self.stays(tokens, num_kept=num_kept + num_coming)
        return np.ones(len(tokens), dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class KeepAll(Retention):
    """Nothing is ever forgotten; the memory's size is the only limit."""

    def stays(self, tokens: Tokens, *, num_kept: int) -> Flags:  # noqa: ARG002
        return np.ones(len(tokens), dtype=np.bool_)

    def most_tokens(self, tokens_per_frame: int, *, num_kept: int) -> int:
        return num_kept * tokens_per_frame

    @property
    def full_after(self) -> int | None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorsWindowTrail(Retention):
    """The first `anchors` and the last `window` frames whole; of the frames between, their first `trail_tokens`.

    `history` bounds how many kept frames leave anything at all, anchors included; None lets the trail grow for ever.
    """

    anchors: int
    window: int
    trail_tokens: int = 0
    history: int | None = None

    def __post_init__(self) -> None:
        if self.anchors < 0 or self.window < 1 or self.trail_tokens < 0:
            raise SettingError(
                f"Retention needs anchors >= 0, window >= 1 and trail tokens >= 0, but got {self.anchors}, "
                f"{self.window} and {self.trail_tokens}."
            )
        if self.history is not None and self.history < self.anchors + self.window:
            raise SettingError(
                f"A history of {self.history} frames cannot hold {self.anchors} anchors and a window of "
                f"{self.window}; give at least {self.anchors + self.window}, or none for an unbounded trail."
            )

    def stays(self, tokens: Tokens, *, num_kept: int) -> Flags:
        whole = (tokens.frame < self.anchors) | (tokens.frame >= num_kept - self.window)
        return whole | ((tokens.index < self.trail_tokens) & (tokens.frame >= self._oldest_in_trail(num_kept)))

    def most_tokens(self, tokens_per_frame: int, *, num_kept: int) -> int:
        num_whole = min(num_kept, self.anchors + self.window)
        remembered = num_kept if self.history is None else min(num_kept, self.history)
        return num_whole * tokens_per_frame + (remembered - num_whole) * min(self.trail_tokens, tokens_per_frame)

    @property
    def full_after(self) -> int | None:
        return self.history if self.trail_tokens else self.anchors + self.window

    def _oldest_in_trail(self, num_kept: int) -> int:
        return 0 if self.history is None else num_kept - (self.history - self.anchors)
