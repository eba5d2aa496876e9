"""Which tokens no policy may evict: a mask, never a large score."""

from dataclasses import dataclass

from jaxtyping import Bool
from torch import Tensor

from longtake.errors import SettingError
from longtake.memory.policies.lockstep import Window
from longtake.memory.policy import StackedState
from longtake.memory.tokens import Flags, Tokens

CAMERA_FRAMES = 1024
"""Kept frames whose camera tokens are remembered, anchors included: 256 KiB each in a published network."""


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

    def covers_stacked(self, state: StackedState) -> Bool[Tensor, "layers places"]:
        """The same of all layers at once; some padding too."""
        whole = (state.frame < self.anchors) | (state.frame >= state.num_kept - self.recent)
        special = (state.index < self.special_tokens) & (state.frame >= state.num_kept - self.special_frames)
        return whole | special

    def most_tokens(self, tokens_per_frame: int) -> int:
        """The most tokens of one layer that are protected at once."""
        special = min(self.special_tokens, tokens_per_frame)
        return (self.anchors + self.recent) * tokens_per_frame + max(0, self.special_frames - self.recent) * special


def anchors_and_history(anchors: int, num_frames: int) -> Window:
    """For a camera head beside layers that forget on their own: anchors and the newest frames, so many in all."""
    return Window(anchors=anchors, window=max(1, num_frames - anchors))


def refuse_size(name: str) -> SettingError:
    """What to say where a budget in frames is given to a policy that has none."""
    return SettingError(
        f"The policy '{name}' has no size to set: it keeps what its ratio says; choose managed for a memory of so many "
        "frames."
    )
