"""Which tokens no policy may evict: a mask, never a large score."""

from dataclasses import dataclass

from longtake.errors import SettingError
from longtake.memory.tokens import Flags, Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """Anchors and the newest frames whole; of the newest `special_frames` frames, their special tokens.

    The special tokens of older frames lose their protection and compete like any other token, so that what is protected
    has a bound. With `n` frames kept:

        frame    0 … │ …          │ n-special_frames … │ n-recent … n-1
                 full│ nothing    │ special tokens     │ full
    """

    anchors: int
    recent: int
    special_tokens: int
    special_frames: int

    def check(self) -> None:
        """Refuse counts below 0."""
        if min(self.anchors, self.recent, self.special_tokens, self.special_frames) < 0:
            raise SettingError(
                "Anchors, recent frames, special tokens and frames with special tokens must be at least 0, but got "
                f"{self.anchors}, {self.recent}, {self.special_tokens} and {self.special_frames}."
            )

    def covers(self, tokens: Tokens, *, num_kept: int) -> Flags:
        """Which of these tokens must stay once `num_kept` frames are kept."""
        whole = (tokens.frame < self.anchors) | (tokens.frame >= num_kept - self.recent)
        special = (tokens.index < self.special_tokens) & (tokens.frame >= num_kept - self.special_frames)
        return whole | special

    def most_tokens(self, tokens_per_frame: int) -> int:
        """The most tokens of one layer that are protected at once."""
        special = min(self.special_tokens, tokens_per_frame)
        return (self.anchors + self.recent) * tokens_per_frame + max(0, self.special_frames - self.recent) * special
