"""Blocks in one function each, against the forward passes of the library's own modules."""

from typing import Any

import pytest
import torch

from longtake.layers.rotary import grid_phases
from training.blocks import read, see, text_phases
from training.fusing import fused
from training.vqa_model import TINY_VQA, VqaConfig, build_vqa

SHARED = VqaConfig(width=128, depth=2, key_value_heads=2, mlp=96, vision_width=64, vision_depth=2, vision_mlp=96)
"""Four heads of queries for two of keys, so that it matters which of them share."""


def random_model(config: VqaConfig) -> Any:
    """Biases and norms too, which a new network leaves at zero and one."""
    torch.manual_seed(0)
    model = build_vqa(config)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=weight.shape[-1] ** -0.5)
    return model


@torch.no_grad()
def test_a_block_of_the_vision_tower_sees_what_the_librarys_sees() -> None:
    grids, patches, block = 3, 24, random_model(SHARED).model.visual.blocks[1]
    hidden = torch.randn(grids, patches, SHARED.vision_width)
    places = torch.cartesian_prod(torch.arange(4), torch.arange(6))
    turned = grid_phases(places, block.attn.head_dim, theta=10_000.0)
    both_halves = (torch.cat([part, part], dim=-1).repeat(grids, 1) for part in (turned.cos, turned.sin))
    ends = torch.arange(0, (grids + 1) * patches, patches, dtype=torch.int32)
    wanted = block(hidden.flatten(0, 1), cu_seqlens=ends, position_embeddings=tuple(both_halves))
    found = see(block, hidden, turned.cos, turned.sin)
    torch.testing.assert_close(found.flatten(0, 1), wanted, rtol=0, atol=1e-5)
    assert (found - hidden).std() > 0.1


@torch.no_grad()
@pytest.mark.parametrize("config", [TINY_VQA, SHARED], ids=["all heads share keys", "pairs share keys"])
def test_a_layer_of_the_language_model_reads_what_the_librarys_reads(config: VqaConfig) -> None:
    model, clips, tokens = random_model(config).model.language_model, 2, 20
    layer, rope = model.layers[1], model.config.rope_parameters
    hidden, rows = torch.randn(clips, tokens, config.width), torch.randint(40, (clips, 3, tokens))
    mask = (torch.rand(clips, 1, tokens, tokens) < 0.5) | torch.eye(tokens, dtype=torch.bool)
    wanted = layer(
        hidden,
        attention_mask=torch.zeros(mask.shape).masked_fill(~mask, -torch.inf),
        position_embeddings=model.rotary_emb(hidden, rows.transpose(0, 1)),
    )
    turned = text_phases(rows, layer.self_attn.head_dim, rope["rope_theta"], rope["mrope_section"])
    found, q, k = read(layer, hidden, turned.cos, turned.sin, mask)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    assert (found - hidden).std() > 0.1
    assert q.shape == k.shape == (clips, config.width // 32, tokens, 32)


@torch.no_grad()
def test_queries_and_keys_of_a_layer_give_its_attention() -> None:
    model, tokens = random_model(SHARED).model.language_model, 12
    layer, rope = model.layers[0], model.config.rope_parameters
    hidden, rows = torch.randn(1, tokens, SHARED.width), torch.randint(40, (1, 3, tokens))
    mask = torch.ones(1, 1, tokens, tokens, dtype=torch.bool).tril()
    turned = text_phases(rows, layer.self_attn.head_dim, rope["rope_theta"], rope["mrope_section"])
    _, q, k = read(layer, hidden, turned.cos, turned.sin, mask)
    _, wanted = layer.self_attn(
        layer.input_layernorm(hidden),
        attention_mask=torch.zeros(mask.shape).masked_fill(~mask, -torch.inf),
        position_embeddings=model.rotary_emb(hidden, rows.transpose(0, 1)),
    )
    weights = (q @ k.mT * 32**-0.5).masked_fill(~mask, -torch.inf).softmax(dim=-1)
    torch.testing.assert_close(weights, wanted, rtol=0, atol=1e-5)


def test_nothing_is_compiled_for_a_cpu() -> None:
    assert fused(see, torch.device("cpu")) is see
