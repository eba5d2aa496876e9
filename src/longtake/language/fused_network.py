"""A Qwen2.5-VL network on a GPU: its weights, and our kernels between its products.

Shapes alone decide what is launched, and nothing waits for the host, so that whole passes can be recorded. What runs
the library's own modules, `language.network`, is the twin that says what is right; here residuals stay float32, and
phases are not rounded.
"""

from importlib import import_module
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int
from torch import Tensor
from torch.nn import functional

from longtake.language.model_config import TextConfig
from longtake.language.rope_shift import frequencies

Phases = tuple[Float32[Tensor, "*place half"], Float32[Tensor, "*place half"]]
"""Cosines and sines of angles."""
Projected = Float[Tensor, "entries tokens _"]
Rows = Float[Tensor, "entries tokens width"]
_Picture = tuple[Phases, Bool[Tensor, "patches patches"] | None]
"""How patches turn, and which see each other."""
_HEAD_DIMS = (16, 32, 64, 128)
"""Of the language model, for which there are kernels."""


@runtime_checkable
class Past(Protocol):
    """What the tokens of a clip attend to: all that came before them, in slots on the device."""

    def attend(self, layer: int, q: Projected, k: Projected, v: Projected, phases: Phases) -> Projected:
        """Turn queries and keys, write keys and values, and mix the values that each token may see."""


def why_not_fused(model: Any, dtype: torch.dtype) -> str | None:
    """Why a model cannot be computed here, or None where it can."""
    text, vision = model.config.text_config, model.config.vision_config
    if dtype not in (torch.bfloat16, torch.float16):
        return f"the kernels compute in float16 or bfloat16, not in {dtype}"
    head_dim, others = text.hidden_size // text.num_attention_heads, {text.hidden_act, vision.hidden_act} - {"silu"}
    if head_dim not in _HEAD_DIMS:
        return f"there are kernels for heads of {', '.join(map(str, _HEAD_DIMS))} channels, not of {head_dim}"
    if others:
        return f"there are kernels for silu, not for {' and '.join(sorted(others))}"
    if text.rope_parameters["rope_type"] != "default":
        return f"there are phases of positions as they are, not of {text.rope_parameters['rope_type']}"
    return None


class FusedNetwork:
    """The passes of a dialogue over weights that it shares with the model it stands for."""

    def __init__(self, model: Any, text: TextConfig) -> None:
        self._text_model, self._vision = model.model.language_model, model.model.visual
        self._dtype: torch.dtype = model.dtype
        self._device: torch.device = model.device
        self._kernels: Any = import_module("longtake.layers.block_kernels")
        self._frequencies = frequencies(text, text.head_dim // 2).float().to(self._device)
        axes = np.repeat(np.arange(3), text.mrope_section)
        self._axes = torch.from_numpy(axes).to(self._device)
        self._pictures: dict[tuple[int, int], _Picture] = {}

    @torch.no_grad()
    def phases(self, positions: Int[Tensor, "3 entries tokens"]) -> Phases:
        """Cosines and sines of how far each pair of channels turns: with time, row or column."""
        angle = positions.float()[self._axes].movedim(0, -1) * self._frequencies
        return angle.cos().contiguous(), angle.sin().contiguous()

    @torch.no_grad()
    def read(self, embedded: Rows, positions: Int[Tensor, "3 entries tokens"], past: Past) -> Rows:
        """Take in tokens at these positions; what is said of each is the hidden state that logits are made of."""
        kernels, model = self._kernels, self._text_model
        phases = self.phases(positions)
        x = embedded.float().contiguous()
        norms = [*(layer.input_layernorm for layer in model.layers[1:]), model.norm]
        first = model.layers[0].input_layernorm
        normed = kernels.scale_norm(x, first.weight, first.variance_epsilon, self._dtype)
        for number, (layer, following) in enumerate(zip(model.layers, norms, strict=True)):
            attention, norm, mlp = layer.self_attn, layer.post_attention_layernorm, layer.mlp
            q, k, v = attention.q_proj(normed), attention.k_proj(normed), attention.v_proj(normed)
            mixed = attention.o_proj(past.attend(number, q, k, v, phases))
            x, normed = kernels.add_scale_norm(x, mixed, norm.weight, norm.variance_epsilon)
            branch = mlp.down_proj(kernels.gated(mlp.gate_proj(normed), mlp.up_proj(normed)))
            x, normed = kernels.add_scale_norm(x, branch, following.weight, following.variance_epsilon)
        hidden: Tensor = normed
        return hidden

    @torch.no_grad()
    def see(
        self, pixels: Float[Tensor, "patches values"], grid: tuple[int, int, int]
    ) -> Float[Tensor, "1 tokens width"]:
        """Tokens of whole temporal grids from the vision tower; none attends to another."""
        kernels, vision = self._kernels, self._vision
        if grid[1:] not in self._pictures:
            self._pictures[grid[1:]] = self._picture(*grid[1:])
        phases, windows = self._pictures[grid[1:]]
        weight = vision.patch_embed.proj.weight
        patches = functional.linear(pixels.to(self._dtype), weight.flatten(1))
        x = patches.unflatten(0, (grid[0], -1)).float().contiguous()
        for number, block in enumerate(vision.blocks):
            normed = kernels.scale_norm(x, block.norm1.weight, block.norm1.variance_epsilon, self._dtype)
            mask = None if number in vision.fullatt_block_indexes else windows
            mixed = block.attn.proj(_attended(block.attn.qkv(normed), block.attn.num_heads, phases, mask))
            x, normed = kernels.add_scale_norm(x, mixed, block.norm2.weight, block.norm2.variance_epsilon)
            x = x + block.mlp.down_proj(kernels.gated(block.mlp.gate_proj(normed), block.mlp.up_proj(normed)))
        merger = vision.merger
        normed = kernels.scale_norm(x, merger.ln_q.weight, merger.ln_q.variance_epsilon, self._dtype)
        merged: Tensor = merger.mlp(normed.reshape(-1, merger.hidden_size))
        return merged.unsqueeze(0)

    def _picture(self, rows: int, columns: int) -> _Picture:
        """Of a grid of so many patches: how each turns, and which see each other; None where one window holds all.

        Patches come in the order in which they are merged, squares of them one after another.
        """
        vision = self._vision
        merge = vision.spatial_merge_size
        squares = np.arange(rows * columns).reshape(rows // merge, merge, columns // merge, merge)
        row, column = np.divmod(squares.transpose(0, 2, 1, 3).reshape(-1), columns)
        turns = vision.rotary_pos_emb.inv_freq.double().cpu().numpy()
        angle = np.concatenate([np.outer(row, turns), np.outer(column, turns)], axis=1)
        phases = tuple(torch.from_numpy(part).float().to(self._device) for part in (np.cos(angle), np.sin(angle)))
        side = vision.window_size // vision.patch_size // merge * merge
        window = row // side * (columns // side + 1) + column // side
        same = window[:, None] == window[None, :]
        return (phases[0], phases[1]), None if same.all() else torch.from_numpy(same).to(self._device)


def _attended(
    mixed: Float[Tensor, "grids patches wide"],
    num_heads: int,
    phases: Phases,
    mask: Bool[Tensor, "patches patches"] | None,
) -> Float[Tensor, "grids patches width"]:
    """Patches of one grid to each other; channel i turns with the one half a head away."""
    q, k, v = mixed.unflatten(-1, (3, num_heads, -1)).permute(2, 0, 3, 1, 4)
    cos, sin = phases

    def turned(x: Float[Tensor, "grids heads patches head_dim"]) -> Float[Tensor, "grids heads patches head_dim"]:
        a, b = x.float().chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)

    out = functional.scaled_dot_product_attention(turned(q), turned(k), v, attn_mask=mask)
    return out.transpose(1, 2).flatten(2)
