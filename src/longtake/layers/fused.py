"""A block whose norms, residuals and phases are kernels of our own; its products are those of the block it stands for.

The block itself, one operation after another, is the twin that says what is right.
"""

from importlib import import_module
from typing import Any

import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn
from torch.nn import functional

from longtake.layers.block import Attend, Block
from longtake.layers.rotary import AdjacentRotation, HalvesRotation, Rotate, leave_unrotated


class FusedBlock(nn.Module):
    """The same weights, for products in a half type on a GPU, without gradients."""

    def __init__(self, block: Block, dtype: torch.dtype) -> None:
        super().__init__()
        self.block = block
        self._dtype = dtype
        self._kernels: Any = import_module("longtake.layers.block_kernels")

    def forward(
        self, x: Float[Tensor, "batch tokens width"], rotate: Rotate, attend: Attend
    ) -> Float32[Tensor, "batch tokens width"]:
        block, kernels = self.block, self._kernels
        normed = kernels.norm(x.float().contiguous(), block.norm1, self._dtype)
        mixed = self._attended(normed, rotate, attend)
        x, normed = kernels.add_norm(x.float().contiguous(), block.attn.proj(mixed), block.ls1.gamma, block.norm2)
        out: Tensor = kernels.add(x, self._mlp(normed), block.ls2.gamma)
        return out

    def _attended(
        self, normed: Float[Tensor, "batch tokens width"], rotate: Rotate, attend: Attend
    ) -> Float[Tensor, "batch tokens width"]:
        attention = self.block.attn
        mixed = attention.qkv(normed).unflatten(-1, (3, attention.heads, -1))
        q, k, v = mixed.unbind(dim=-3)
        norms = None
        if isinstance(attention.q_norm, nn.LayerNorm) and isinstance(attention.k_norm, nn.LayerNorm):
            norms = attention.q_norm, attention.k_norm
        rotation = rotate if isinstance(rotate, AdjacentRotation | HalvesRotation) else None
        assert rotation is not None or rotate is leave_unrotated, "there is no kernel for this rotation"
        if norms is not None or rotation is not None:
            q, k = self._kernels.turn(mixed, norms, rotation)
        return attend(q, k, v).flatten(-2)

    def _mlp(self, normed: Float[Tensor, "batch tokens width"]) -> Float[Tensor, "batch tokens width"]:
        mlp = self.block.mlp
        out: Tensor = mlp.fc2(functional.gelu(mlp.fc1(normed)))
        return out
