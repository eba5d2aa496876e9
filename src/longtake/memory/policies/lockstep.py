"""Policies under which all layers remember the same tokens: everything, a window, or the published context."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from longtake.errors import BudgetError, SettingError
from longtake.memory.budget import format_bytes
from longtake.memory.policy import LockstepPolicy, Segment, SegmentPolicy
from longtake.memory.tokens import Flags, StreamLayout, Tokens

_LONGEST = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepAll(LockstepPolicy, SegmentPolicy):
    """Every token of every kept frame, until the memory is full; then no more frames are taken."""

    def stays(self, tokens: Tokens, *, num_kept: int) -> Flags:  # noqa: ARG002
        return np.ones(len(tokens), dtype=np.bool_)

    def most_tokens(self, tokens_per_frame: int, *, num_kept: int) -> int:
        return num_kept * tokens_per_frame

    @property
    def full_after(self) -> int | None:
        return None

    def of_frames(self, num_frames: int, layout: StreamLayout) -> "KeepAll":  # noqa: ARG002
        raise SettingError("A memory that keeps all takes its budget in bytes, such as 4GB, not in frames.")

    def leaving(self, segments: Sequence[Segment], num_missing: int) -> list[Segment]:  # noqa: ARG002
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(LockstepPolicy, SegmentPolicy):
    """The first `anchors` and the newest `window` frames, whole; a frame counts itself to the window.

    In a dialogue frames are segments, and the window is counted beside those that are coming. A window of None holds as
    many as there is room for; a stream needs a budget for that.
    """

    anchors: int = 1
    window: int | None = 5

    def __post_init__(self) -> None:
        if self.anchors < 0 or (self.window is not None and self.window < 1):
            raise SettingError(
                f"A window needs anchors >= 0 and window >= 1, or None for all that fit, but got {self.anchors} and "
                f"{self.window}."
            )

    @classmethod
    def for_dialogue(cls) -> "Window":
        """No anchors, and as many of the newest as there is room for."""
        return cls(anchors=0, window=None)

    def stays(self, tokens: Tokens, *, num_kept: int) -> Flags:
        return (tokens.frame < self.anchors) | (tokens.frame >= num_kept - self._bounded_window)

    def most_tokens(self, tokens_per_frame: int, *, num_kept: int) -> int:
        return min(num_kept, self.anchors + self._bounded_window) * tokens_per_frame

    @property
    def full_after(self) -> int | None:
        return self.anchors + self._bounded_window

    def of_frames(self, num_frames: int, layout: StreamLayout) -> "Window":  # noqa: ARG002
        require_more_frames(num_frames, self.anchors)
        return replace(self, window=num_frames - self.anchors)

    def fitted(self, budget_bytes: int, num_bytes: Callable[["Window"], int]) -> "Window":
        """As long a window as fits, up to what was asked for."""
        windows = range(1, (self.window or _LONGEST) + 1)
        fitting = bisect_right(windows, budget_bytes, key=lambda window: num_bytes(replace(self, window=window)))
        return replace(self, window=windows[max(0, fitting - 1)])

    def leaving(self, segments: Sequence[Segment], num_missing: int) -> list[Segment]:
        past = segments[self.anchors :]
        surplus = 0 if self.window is None else max(0, len(past) - self.window)
        count, freed = surplus, sum(segment.num_tokens for segment in past[:surplus])
        while freed < num_missing and count < len(past):
            freed += past[count].num_tokens
            count += 1
        return list(past[:count])

    @property
    def _bounded_window(self) -> int:
        if self.window is None:
            raise SettingError("A window of all that fit needs a budget; give one, such as 4GB or 8 frames.")
        return self.window


def require_more_frames(num_frames: int, anchors: int) -> None:
    """Refuse a memory of so many frames that has no room beside the anchors."""
    if num_frames <= anchors:
        raise BudgetError(
            f"A memory of {num_frames} frames cannot hold {anchors} anchors and a window of one; the smallest that "
            f"works is {anchors + 1} frames."
        )


class Trail(StrEnum):
    """What a frame leaves behind when it falls out of the window."""

    SPECIAL = "special"
    CAMERA = "camera"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRetention(LockstepPolicy):
    """The published policy of the geometric context transformer: the first `anchors` and the last `window` frames
    whole; of the frames between, their first few tokens, the trail; and all camera tokens.

    With `n` frames kept, `anchors` = 2, `window` = 3 and a trail of special tokens, drawn as a ruler:

        frame    0  1 │ 2  3  4  … │ n-3  n-2  n-1
                 full │ first few  │ full
                 anchors   trail      window

    `history` bounds how many kept frames leave a trail and a camera token, anchors included; None, the policy as
    published, lets both grow and needs a budget.
    """

    anchors: int = 8
    window: int = 64
    trail: Trail | int = Trail.SPECIAL
    """By name, or how many tokens of each frame."""
    history: int | None = 4096

    def __post_init__(self) -> None:
        if self.anchors < 0 or self.window < 1 or (isinstance(self.trail, int) and self.trail < 0):
            raise SettingError(
                f"Retention needs anchors >= 0, window >= 1 and trail tokens >= 0, but got {self.anchors}, "
                f"{self.window} and {self.trail}."
            )
        if self.history is not None and self.history < self.anchors + self.window:
            raise SettingError(
                f"A history of {self.history} frames cannot hold {self.anchors} anchors and a window of "
                f"{self.window}; give at least {self.anchors + self.window}, or none for an unbounded trail."
            )

    def for_stream(self, layout: StreamLayout) -> "ContextRetention":
        """The trail as a number of tokens."""
        match self.trail:
            case Trail.SPECIAL:
                return replace(self, trail=layout.special_tokens)
            case Trail.CAMERA:
                return replace(self, trail=1)
            case Trail.NONE:
                return replace(self, trail=0)
        return self

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

    def camera(self) -> LockstepPolicy:
        """Every frame within the history."""
        return KeepAll() if self.history is None else Window(anchors=self.anchors, window=self.history - self.anchors)

    def of_frames(self, num_frames: int, layout: StreamLayout) -> "ContextRetention":  # noqa: ARG002
        """Anchors and window together; the trail comes on top."""
        require_more_frames(num_frames, self.anchors)
        return replace(self, window=num_frames - self.anchors)

    def fitted(self, budget_bytes: int, num_bytes: Callable[["ContextRetention"], int]) -> "ContextRetention":
        """The history gives way first, then the window; refused below one frame of it."""
        if self.history is None or num_bytes(self) <= budget_bytes:
            return self
        histories = range(self.anchors + self.window, self.history + 1)
        fitting = bisect_right(histories, budget_bytes, key=lambda history: num_bytes(replace(self, history=history)))
        if fitting:
            return replace(self, history=histories[fitting - 1])
        windows = range(1, self.window + 1)
        fitting = bisect_right(windows, budget_bytes, key=lambda window: num_bytes(self._only_window(window)))
        if not fitting:
            least_bytes = num_bytes(self._only_window(1))
            raise BudgetError(
                f"A budget of {format_bytes(budget_bytes)} cannot hold {self.anchors} anchors, the first clip and a "
                f"window of one; the smallest that works is {format_bytes(least_bytes)}.",
                least_bytes=least_bytes,
            )
        return self._only_window(windows[fitting - 1])

    def _only_window(self, window: int) -> "ContextRetention":
        """As little as anchors and a window can be: no history beyond them."""
        return replace(self, window=window, history=self.anchors + window)

    @property
    def trail_tokens(self) -> int:
        assert not isinstance(self.trail, Trail), "for_stream was not asked"
        return self.trail

    def _oldest_in_trail(self, num_kept: int) -> int:
        return 0 if self.history is None else num_kept - (self.history - self.anchors)
