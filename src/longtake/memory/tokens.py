"""The tokens a stream remembers, in the order attention reads them: which frame, which place in it, which slot, and
a policy's statistics of each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int

Integers = Int[np.ndarray, "_"]
Flags = Bool[np.ndarray, "_"]
TokenStats = Float32[np.ndarray, "_ _"]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Columns of equal length. `frame` counts kept frames from 0; `index` 0 is the frame's first token; `token_stats`
    are a row of numbers for each token, as many as its policy keeps."""

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
        """The tokens at these positions, or where this flag is set."""
        return Tokens(self.frame[which], self.index[which], self.slot[which], self.token_stats[which])

    def at(self, slot: Integers) -> "Tokens":
        """The same tokens in other slots."""
        return Tokens(self.frame, self.index, slot, self.token_stats)

    def with_stats(self, token_stats: TokenStats) -> "Tokens":
        """The same tokens with other statistics."""
        return Tokens(self.frame, self.index, self.slot, token_stats)


def _blank(num_tokens: int, num_token_stats: int) -> TokenStats:
    return np.zeros((num_tokens, num_token_stats), dtype=np.float32)
