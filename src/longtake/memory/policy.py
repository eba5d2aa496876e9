"""What a memory policy is: a frozen value, counted in frames, that says what stays and what leaves. Pure; no state.

    Policy
    ├─ StreamPolicy         what streams of keys and values remember while a video is mapped
    │  ├─ LockstepPolicy    all layers remember the same tokens: two questions about frames
    │  └─ PerLayerPolicy    each layer forgets on its own, by what attention or the keys say of every token
    │     └─ StackedPolicy  decides on a GPU too, all layers at once, without waiting for the host
    └─ SegmentPolicy        which whole frames of a dialogue leave when its memory is full

A policy may be both a stream's and a dialogue's. What it learns about a token or a layer belongs to the memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Float64, Int32, Int64
from torch import Tensor

from longtake.errors import SettingError
from longtake.memory.tokens import Flags, StreamLayout, Tokens

Own = TypeVar("Own", bound="Policy")
"""The policy's own class."""
SLOT_BOOKKEEPING_BYTES = 1 + 3 * 8 + 3 * 8
"""Of one slot: its state, owner and two epochs, and its token's frame, index and slot. Books on a device, those before
a clip and those after it, take less."""


class Keep(Enum):
    """What is known of a clip before the model looks at it."""

    YES = "kept"
    NO = "not kept"
    DEFERRED = "judged afterwards"


class Policy(ABC):  # noqa: B024
    """What a memory keeps. A frozen dataclass of plain values, so that a saved session can record it."""

    argument: ClassVar[str | None] = None
    """The field that `name:N` sets, for a policy that cannot do without a number."""


class StreamPolicy(Policy):
    """A policy of streams: tokens come with every kept frame, and it says which of them stay."""

    def for_stream(self: Own, layout: StreamLayout) -> Own:  # noqa: ARG002
        """This policy with what it leaves to the stream's layout filled in, such as how many tokens are special."""
        return self

    @abstractmethod
    def camera(self) -> "LockstepPolicy":
        """The policy of the camera head's stream, which has a token or a few for each frame."""

    def of_frames(self: Own, num_frames: int, layout: StreamLayout) -> Own:  # noqa: ARG002
        """This policy with as much memory as so many whole frames take in a stream of this layout."""
        raise SettingError(
            f"The policy {type(self).__name__} takes no memory in frames; give its budget in bytes, such as 4GB, or "
            "choose managed or window."
        )

    def fitted(self: Own, budget_bytes: int, num_bytes: Callable[[Own], int]) -> Own:  # noqa: ARG002
        """This policy within a budget, as far as it can give way; what it takes in all is what `num_bytes` returns."""
        return self

    @abstractmethod
    def slots_per_frame(self, layout: StreamLayout) -> int:
        """Slots that one frame takes while it is staged."""

    @abstractmethod
    def bytes_per_slot(self, layout: StreamLayout) -> int:
        """What one slot costs."""

    @abstractmethod
    def most_slots(self, layout: StreamLayout, *, num_kept: int, clip_frames: int) -> int:
        """The most slots in use between clips, with at most `num_kept` frames kept and `clip_frames` in a clip."""

    @property
    @abstractmethod
    def full_after(self) -> int | None:
        """How many kept frames fill the memory, or None where it grows for ever."""


class LockstepPolicy(StreamPolicy):
    """All layers remember the same tokens. `num_kept` counts the frames kept up to that moment."""

    @abstractmethod
    def stays(self, tokens: Tokens, *, num_kept: int) -> Flags:
        """Which of these tokens are still remembered once `num_kept` frames have been kept."""

    @abstractmethod
    def most_tokens(self, tokens_per_frame: int, *, num_kept: int) -> int:
        """The most tokens that can be remembered while no more than `num_kept` frames have been kept."""

    def sees(self, tokens: Tokens, *, num_kept: int, num_coming: int, keep: Keep) -> Flags:
        """Which of the remembered tokens a clip of `num_coming` frames may see, besides its own.

        A clip known to be kept does not see what its own commit will evict; any other sees all.
        """
        if keep is Keep.YES:
            return self.stays(tokens, num_kept=num_kept + num_coming)
        return np.ones(len(tokens), dtype=np.bool_)

    def camera(self) -> "LockstepPolicy":
        """The same frames, unless a policy says otherwise."""
        return self

    def slots_per_frame(self, layout: StreamLayout) -> int:
        return layout.tokens_per_frame

    def bytes_per_slot(self, layout: StreamLayout) -> int:
        """Keys and values of one token in all layers."""
        return layout.bytes_per_slot

    def most_slots(self, layout: StreamLayout, *, num_kept: int, clip_frames: int) -> int:  # noqa: ARG002
        return self.most_tokens(layout.tokens_per_frame, num_kept=num_kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """What was just looked at and will be kept."""

    num_kept: int
    """Frames kept, those of the clip included."""
    num_frames: int
    """Frames of the clip; their tokens are the last of each layer."""
    tokens_per_frame: int
    num_heads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerState:
    """What one layer remembers once a clip was looked at."""

    tokens: Tokens
    """In attention order, the clip's own last; their statistics as they were before it, zero for its own."""
    attention_mass: Float32[np.ndarray, " tokens"] | None
    """What each key got of the attention of the clip's queries, summed over queries and heads; only if wanted."""
    keys: Float[Tensor, "tokens heads head_dim"] | None
    """As stored; only if wanted."""
    layer_stats: tuple[float, ...]
    """The policy's statistics of the layer after the clip before; zeros at first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionDecision:
    """What becomes of one layer's tokens."""

    stays: Bool[np.ndarray, " tokens"]
    token_stats: Float32[np.ndarray, "tokens columns"]
    """Of all tokens, those that leave included."""
    layer_stats: tuple[float, ...]


class PerLayerPolicy(StreamPolicy):
    """Each layer forgets on its own; all layers of a stream are decided together when a clip is kept.

    state of all layers ──▶ decide ──▶ decisions: who stays, statistics        one for each layer
    """

    @property
    def num_token_stats(self) -> int:
        """Numbers kept about each token."""
        return 0

    @property
    def num_layer_stats(self) -> int:
        """Numbers kept about each layer."""
        return 0

    @property
    def wants_attention_mass(self) -> bool:
        """Whether layer states must hold what each key got of the attention."""
        return False

    @property
    def wants_keys(self) -> bool:
        """Whether layer states must hold the keys."""
        return False

    @abstractmethod
    def decide(self, layers: Sequence[LayerState], clip: Clip) -> list[EvictionDecision]:
        """One decision for each layer."""

    @abstractmethod
    def most_tokens(self, layout: StreamLayout, *, clip_frames: int = 1) -> int:
        """The most tokens that can stay, over all layers together, whatever the video, if no clip has more frames.

        Refuses a budget that cannot hold what the policy protects.
        """

    def slots_per_frame(self, layout: StreamLayout) -> int:
        return layout.num_layers * layout.tokens_per_frame

    def bytes_per_slot(self, layout: StreamLayout) -> int:
        """Key and value of one token in one layer, and all that is kept about it."""
        statistics = self.num_token_stats * np.dtype(np.float32).itemsize
        return layout.bytes_per_slot_layer + SLOT_BOOKKEEPING_BYTES + statistics

    def most_slots(self, layout: StreamLayout, *, num_kept: int, clip_frames: int) -> int:  # noqa: ARG002
        return self.most_tokens(layout, clip_frames=clip_frames)

    @property
    def full_after(self) -> int | None:
        """Their size does not depend on how many frames were kept."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StackedState:
    """What all layers remember once a clip was looked at: a row of tensors for each layer, padded behind its tokens."""

    frame: Int32[Tensor, "layers places"]
    index: Int32[Tensor, "layers places"]
    size: Int64[Tensor, "layers 1"]
    """How many tokens each layer has."""
    token_stats: Float32[Tensor, "stats layers places"]
    attention_mass: Float32[Tensor, "layers places"]
    layer_stats: Float64[Tensor, "layers layer_stats"]
    num_kept: Int64[Tensor, ""]
    """Frames kept, those of the clip included."""
    num_frames: int
    tokens_per_frame: int
    num_heads: int

    @property
    def is_token(self) -> Bool[Tensor, "layers places"]:
        return torch.arange(self.frame.shape[1], device=self.frame.device) < self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class StackedDecision:
    """What becomes of them; of the padding it says nothing."""

    stays: Bool[Tensor, "layers places"]
    token_stats: Float32[Tensor, "stats layers places"]
    layer_stats: Float64[Tensor, "layers layer_stats"]


class StackedPolicy(PerLayerPolicy):
    """Forgets by attention mass, and decides for all layers at once as well, in tensors whose shapes never change.

    On a GPU this is how it decides, always: sums round differently than in `decide`, which is its slow twin.
    """

    @property
    def wants_attention_mass(self) -> bool:
        return True

    @property
    def holds_until(self) -> int | None:
        """Kept frames up to which `most_tokens` holds; None for ever."""
        return None

    @abstractmethod
    def decide_stacked(self, state: StackedState) -> StackedDecision:
        """The same decision; bits must not depend on how much padding there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Tokens of a dialogue that only make sense together: a temporal grid of an open clip, or a turn."""

    first: int
    """Which token of the conversation is its first."""
    num_tokens: int
    time_s: float
    novelty: float
    """How much it differs from the one before it; infinite for the first."""
    extent: int = 0
    """By how many positions what comes after it moves back when it leaves: all that a turn takes up, and nothing for a
    grid, as time has gone on."""


class SegmentPolicy(Policy):
    """Chooses which segments of a dialogue leave, when more comes than there is room for.

    What comes before the first frame, the sink, and remembered questions are no segments, and stay.
    """

    @classmethod
    def for_dialogue(cls: type[Own]) -> Own:
        """The policy as a dialogue uses it where nothing else is said."""
        return cls()

    @abstractmethod
    def leaving(self, segments: Sequence[Segment], num_missing: int) -> list[Segment]:
        """Which of these, oldest first, leave to make room for so many tokens; fewer where there are not enough."""
