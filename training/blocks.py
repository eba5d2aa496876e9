"""The blocks of a Qwen2.5-VL network over its own modules, each one function without a branch, which a GPU fuses.

The library's forward passes go grid by grid, ask the device how many there are, and launch each product, sum and cast
by itself: of a small network that is most of the time.
"""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (as everyone calls it)
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from longtake.layers.rotary import Phases


def see(
    block: Any,
    hidden: Float[Tensor, "grids patches channels"],
    cos: Float[Tensor, "patches pairs"],
    sin: Float[Tensor, "patches pairs"],
) -> Float[Tensor, "grids patches channels"]:
    """A block of the vision tower: every patch of a picture sees every other."""
    own = block.attn
    q, k, v = own.qkv(block.norm1(hidden)).unflatten(-1, (3, own.num_heads, -1)).permute(2, 0, 3, 1, 4)
    attended = F.scaled_dot_product_attention(_turned(q, cos, sin), _turned(k, cos, sin), v)
    hidden = hidden + own.proj(attended.transpose(1, 2).flatten(2))
    after: Tensor = hidden + block.mlp(block.norm2(hidden))
    return after


def read(
    layer: Any,
    hidden: Float[Tensor, "clips tokens channels"],
    cos: Float[Tensor, "clips 1 tokens pairs"],
    sin: Float[Tensor, "clips 1 tokens pairs"],
    mask: Bool[Tensor, "clips 1 tokens tokens"],
) -> tuple[
    Float[Tensor, "clips tokens channels"],
    Float[Tensor, "clips heads tokens head_dim"],
    Float[Tensor, "clips heads tokens head_dim"],
]:
    """A layer of the language model, and its queries and keys, of which those that heads share come several times."""
    own, normed = layer.self_attn, layer.input_layernorm(hidden)
    q, k, v = (
        project(normed).unflatten(-1, (-1, own.head_dim)).transpose(1, 2)
        for project in (own.q_proj, own.k_proj, own.v_proj)
    )
    q, k = _turned(q, cos, sin), _turned(k, cos, sin)
    shared = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(shared, dim=1), v.repeat_interleave(shared, dim=1)
    attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    hidden = hidden + own.o_proj(attended.transpose(1, 2).flatten(2))
    return hidden + layer.mlp(layer.post_attention_layernorm(hidden)), q, k


def _turned(
    heads: Float[Tensor, "batch heads tokens head_dim"],
    cos: Float[Tensor, "*tokens pairs"],
    sin: Float[Tensor, "*tokens pairs"],
) -> Float[Tensor, "batch heads tokens head_dim"]:
    """Each channel of the first half with its partner in the second."""
    a, b = heads.float().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(heads.dtype)


def text_phases(rows: Int64[Tensor, "clips 3 tokens"], head_dim: int, theta: float, pairs: list[int]) -> Phases:
    """By time, row and column, of which each turns as many of the pairs as `pairs` says, in this order."""
    count = head_dim // 2
    speed = theta ** -(torch.arange(count, device=rows.device) / count)
    parts = speed.split(pairs)
    angles = torch.cat([rows[:, axis, :, None] * part for axis, part in enumerate(parts)], dim=-1).unsqueeze(1)
    return Phases(cos=angles.cos(), sin=angles.sin())
