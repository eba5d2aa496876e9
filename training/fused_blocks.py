"""Blocks of a geometry network whose sums, norms and turns a GPU runs as a few kernels, compiled once for all shapes.

Products and attention are the library's own. Whole blocks, compiled for every length of clips and size of pictures,
took over a minute for each pair of these.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from longtake.layers.block import Attend, Attention, Block
from longtake.layers.rotary import AdjacentRotation, HalvesRotation, Rotate, Tokens, leave_unrotated
from training.fusing import fused_for_any_length

Rows = Float[Tensor, "rows width"]
Vector = Float[Tensor, " width"]
Table = Float[Tensor, "tokens pairs"]


class FusedBlock(Block):
    """The same weights and the same function as a `Block`."""

    def forward(
        self, x: Float[Tensor, "batch tokens width"], rotate: Rotate, attend: Attend
    ) -> Float[Tensor, "batch tokens width"]:
        own, dtype, rows = self.attn, _product_type(x), x.flatten(0, 1)
        normed = fused_for_any_length(_normed, x.device)(
            rows, self.norm1.weight, self.norm1.bias, self.norm1.eps, dtype
        )
        qkv = own.qkv(normed).unflatten(0, x.shape[:2])
        attended = attend(*_queries_keys_values(own, qkv, rotate)).flatten(2).flatten(0, 1)
        rows, normed = fused_for_any_length(_added_and_normed, x.device)(
            rows, own.proj(attended), self.ls1.gamma, self.norm2.weight, self.norm2.bias, self.norm2.eps, dtype
        )
        added = fused_for_any_length(_added, x.device)(rows, self.mlp(normed), self.ls2.gamma)
        out: Tensor = added.unflatten(0, x.shape[:2])
        return out


def fuse_blocks(model: nn.Module) -> None:
    """Every block of this model is a fused one from now on."""
    for module in model.modules():
        if type(module) is Block:
            module.__class__ = FusedBlock


def _product_type(x: Tensor) -> torch.dtype:
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def _queries_keys_values(
    attention: Attention, qkv: Float[Tensor, "batch tokens three"], rotate: Rotate
) -> tuple[Tokens, Tokens, Tokens]:
    q, k, v = qkv.unflatten(-1, (3, attention.heads, -1)).unbind(dim=-3)
    if rotate is leave_unrotated:
        return attention.q_norm(q).to(v.dtype), attention.k_norm(k).to(v.dtype), v
    assert isinstance(rotate, HalvesRotation | AdjacentRotation)
    turn = _turned_by_halves if isinstance(rotate, HalvesRotation) else _turned_by_neighbours
    cos, sin = rotate.phases.cos, rotate.phases.sin
    q, k = (
        fused_for_any_length(turn, qkv.device)(heads, *_weights(norm), cos, sin)
        for heads, norm in ((q, attention.q_norm), (k, attention.k_norm))
    )
    return q, k, v


def _weights(norm: nn.Module) -> tuple[Vector | None, Vector | None]:
    return (norm.weight, norm.bias) if isinstance(norm, nn.LayerNorm) else (None, None)


def _normed(rows: Rows, weight: Vector, bias: Vector, eps: float, dtype: torch.dtype) -> Rows:
    return functional.layer_norm(rows, weight.shape, weight, bias, eps).to(dtype)


def _added_and_normed(
    rows: Rows, branch: Rows, gamma: Vector, weight: Vector, bias: Vector, eps: float, dtype: torch.dtype
) -> tuple[Rows, Rows]:
    rows = rows + branch * gamma
    return rows, _normed(rows, weight, bias, eps, dtype)


def _added(rows: Rows, branch: Rows, gamma: Vector) -> Rows:
    return rows + branch * gamma


def _turned_by_halves(tokens: Tokens, weight: Vector | None, bias: Vector | None, cos: Table, sin: Table) -> Tokens:
    first, second = _normed_heads(tokens, weight, bias).unflatten(-1, (2, 2, -1)).unbind(dim=-2)
    cos, sin = (table.unflatten(-1, (2, -1))[:, None] for table in (cos, sin))
    turned = torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-2)
    return turned.flatten(-3).to(tokens.dtype)


def _turned_by_neighbours(tokens: Tokens, weight: Vector | None, bias: Vector | None, cos: Table, sin: Table) -> Tokens:
    first, second = _normed_heads(tokens, weight, bias).unflatten(-1, (-1, 2)).unbind(dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    turned = torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return turned.flatten(-2).to(tokens.dtype)


def _normed_heads(tokens: Tokens, weight: Vector | None, bias: Vector | None) -> Tokens:
    if weight is None:
        return tokens.float()
    return functional.layer_norm(tokens.float(), weight.shape, weight, bias)
