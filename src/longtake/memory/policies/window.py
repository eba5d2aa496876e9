"""The newest whole frames, beside the first ones."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from longtake.errors import BudgetError, SettingError
from longtake.memory.layout import StreamLayout
from longtake.memory.policy import LockstepPolicy, Segment, SegmentPolicy
from longtake.memory.tokens import Flags, Tokens

_LONGEST = 2**31


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
