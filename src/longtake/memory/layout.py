"""What one slot of a stream holds, and what it costs."""

from dataclasses import dataclass

import torch

from longtake.errors import SettingError


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
