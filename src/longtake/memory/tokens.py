"""The tokens of a stream: what one of them costs, and which are remembered."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int

from longtake.errors import SettingError

Integers = Int[np.ndarray, "_"]
Flags = Bool[np.ndarray, "_"]
TokenStats = Float32[np.ndarray, "_ _"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLayout:
    """One kind of token: a slot holds its key and its value in every layer of the stream.

    Under a `LockstepPolicy` all layers remember the same tokens in the same slots. Under a `PerLayerPolicy` each
    remembers its own, and a slot holds one token of one layer.
    """

    num_layers: int
    num_heads: int
    head_dim: int
    tokens_per_frame: int
    dtype: torch.dtype = torch.float32
    passes: int = 1
    """How often a layer is written for one clip. Pass p brings token p of every frame, and sees those up to its own."""

    special_tokens: int = 0
    """How many of a frame's tokens, the first ones, are not patches of the image: camera and register tokens."""

    causal: bool = False
    """A clip reads what was before it, and orders its own tokens itself; if false it reads its own as well."""

    def __post_init__(self) -> None:
        if self.passes not in (1, self.tokens_per_frame):
            raise SettingError(f"Expected one pass, or one for each token of a frame, but {self} was given.")
        sizes = (self.num_layers, self.num_heads, self.head_dim, self.tokens_per_frame)
        if min(sizes) < 1:
            raise SettingError(f"Every size of a stream layout must be at least 1, but {self} was given.")

    @property
    def bytes_per_slot_layer(self) -> int:
        """Key and value of one token in one layer."""
        return 2 * self.num_heads * self.head_dim * self.dtype.itemsize

    @property
    def bytes_per_slot(self) -> int:
        """Key and value of one token in all layers."""
        return self.num_layers * self.bytes_per_slot_layer

    @property
    def bytes_per_frame(self) -> int:
        """All tokens of one frame in all layers."""
        return self.tokens_per_frame * self.bytes_per_slot


@dataclass(frozen=True, slots=True)
class Tokens:
    """Those remembered, in the order attention reads them, as columns of equal length.

    `frame` counts kept frames from 0; `index` 0 is the frame's first token; `token_stats` are a row of numbers for each
    token, as many as its policy keeps.
    """

    frame: Int[np.ndarray, " tokens"]
    index: Int[np.ndarray, " tokens"]
    slot: Int[np.ndarray, " tokens"]
    token_stats: Float32[np.ndarray, "tokens columns"]

    def __len__(self) -> int:
        return len(self.frame)

    @classmethod
    def empty(cls, num_token_stats: int = 0) -> "Tokens":
        none = np.empty(0, dtype=np.int64)
        return cls(none, none, none, _blank(0, num_token_stats))

    @classmethod
    def of_frames(
        cls, ordinals: Sequence[int], tokens_per_frame: int, slot: Integers, num_token_stats: int = 0
    ) -> "Tokens":
        """All tokens of whole frames, frame by frame, their statistics zero."""
        frame = np.repeat(np.asarray(ordinals, dtype=np.int64), tokens_per_frame)
        index = np.tile(np.arange(tokens_per_frame, dtype=np.int64), len(ordinals))
        return cls(frame, index, slot, _blank(len(frame), num_token_stats))

    @classmethod
    def join(cls, parts: Iterable["Tokens"]) -> "Tokens":
        kept = [part for part in parts if len(part)]
        if not kept:
            return cls.empty()
        return cls(
            np.concatenate([part.frame for part in kept]),
            np.concatenate([part.index for part in kept]),
            np.concatenate([part.slot for part in kept]),
            np.concatenate([part.token_stats for part in kept]),
        )

    def take(self, which: Integers | Flags) -> "Tokens":
        """The tokens at these positions, or where this flag is set; of all of them no copy is made."""
        if which.dtype == np.bool_ and which.all():
            return self
        at = np.flatnonzero(which) if which.dtype == np.bool_ else which  # found once for all columns
        return Tokens(self.frame.take(at), self.index.take(at), self.slot.take(at), self.token_stats.take(at, axis=0))

    def slot_where(self, which: Flags) -> Integers:
        """The slots of those whose flag is set; of all of them no copy is made."""
        slot: Integers = self.slot if which.all() else self.slot[which]
        return slot

    def cut(self, ends: Integers) -> list["Tokens"]:
        """In parts, without a copy: up to each of these ends, and the rest."""
        columns = (np.split(column, ends) for column in (self.frame, self.index, self.slot, self.token_stats))
        return [Tokens(*part) for part in zip(*columns, strict=True)]

    def at(self, slot: Integers) -> "Tokens":
        """The same tokens in other slots."""
        return Tokens(self.frame, self.index, slot, self.token_stats)

    def with_stats(self, token_stats: TokenStats) -> "Tokens":
        """The same tokens with other statistics."""
        return Tokens(self.frame, self.index, self.slot, token_stats)


def _blank(num_tokens: int, num_token_stats: int) -> TokenStats:
    return np.zeros((num_tokens, num_token_stats), dtype=np.float32)
