"""What one slot of a stream holds, and what it costs."""

from dataclasses import dataclass

import torch

from longtake.errors import SettingError


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLayout:
    """One kind of token: a slot holds its key and its value in every layer of the stream.

    All layers of a stream move in lockstep: they remember the same tokens in the same slots.
    """

    num_layers: int
    num_heads: int
    head_dim: int
    tokens_per_frame: int
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
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
