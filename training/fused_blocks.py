"""Blocks of a geometry network in training on a GPU: between products and attention, which are the library's own, a few
kernels of ours that know their way back. Needs Triton.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from longtake.layers.block import Attend, Attention, Block
from longtake.layers.rotary import AdjacentRotation, HalvesRotation, Rotate, leave_unrotated
from training.head_kernels import queries_keys_values
from training.row_kernels import add, add_norm, gelu, norm


class FusedBlock(Block):
    """The same weights and the same function as a `Block`. Biases of products learn where their sums are at hand."""

    def forward(
        self, x: Float[Tensor, "batch tokens width"], rotate: Rotate, attend: Attend
    ) -> Float[Tensor, "batch tokens width"]:
        own, mlp, first = self.attn, self.mlp, x.flatten(0, 1).contiguous()
        rows, normed = norm(first, self.norm1, _product_type(x))
        mixed = _product(normed, own.qkv).view(*x.shape[:2], 3, own.heads, -1)
        q, k, v = queries_keys_values(mixed, own.qkv.bias, _norms(own), _rotation(rotate))
        attended = attend(q, k, v).flatten(2).flatten(0, 1)
        rows, normed = add_norm(rows, _product(attended, own.proj), own.proj.bias, self.ls1.gamma, self.norm2)
        hidden = gelu(_product(normed, mlp.fc1), mlp.fc1.bias)
        added = add(rows, _product(hidden, mlp.fc2), mlp.fc2.bias, self.ls2.gamma)
        return added.view_as(x)


def fuse_blocks(model: nn.Module) -> None:
    """Every block of this model is a fused one from now on."""
    for module in model.modules():
        if type(module) is Block:
            module.__class__ = FusedBlock


def _product(rows: Float[Tensor, "rows width"], linear: nn.Linear) -> Float[Tensor, "rows out"]:
    """With its bias, which does not learn here."""
    return functional.linear(rows, linear.weight, linear.bias.detach())


def _product_type(x: Tensor) -> torch.dtype:
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def _norms(attention: Attention) -> tuple[nn.LayerNorm, nn.LayerNorm] | None:
    q, k = attention.q_norm, attention.k_norm
    return (q, k) if isinstance(q, nn.LayerNorm) and isinstance(k, nn.LayerNorm) else None


def _rotation(rotate: Rotate) -> AdjacentRotation | HalvesRotation | None:
    if rotate is leave_unrotated:
        return None
    assert isinstance(rotate, AdjacentRotation | HalvesRotation)
    return rotate
