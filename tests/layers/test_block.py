import pytest
import torch

from longtake.layers.block import Block, attend_within
from longtake.layers.rotary import leave_unrotated


@pytest.mark.parametrize("qk_norm", [True, False])
def test_attention_sees_what_attend_shows(qk_norm):
    block = Block(32, 2, qk_norm=qk_norm)
    x = torch.randn(3, 5, 32)
    seen = []

    def attend(q, k, v):
        seen.append((q, k, v))
        return attend_within(q, k, v)

    assert torch.equal(block(x, leave_unrotated, attend), block(x, leave_unrotated, attend_within))
    assert [part.shape for part in seen[0]] == [(3, 5, 2, 16)] * 3


def test_queries_and_keys_are_turned_and_values_are_not():
    block = Block(32, 2)
    x = torch.randn(1, 4, 32)
    parts = {}

    def attend(q, k, v):
        parts["q"], parts["k"], parts["v"] = q, k, v
        return v

    block(x, leave_unrotated, attend)
    straight = dict(parts)
    block(x, torch.neg, attend)
    assert torch.equal(parts["q"], -straight["q"])
    assert torch.equal(parts["k"], -straight["k"])
    assert torch.equal(parts["v"], straight["v"])


def test_block_equals_its_formula():
    block = Block(16, 1, eps=1e-6)
    x = torch.randn(2, 3, 16)
    normed = torch.nn.functional.layer_norm(x, (16,), block.norm1.weight, block.norm1.bias, 1e-6)
    q, k, v = block.attn.qkv(normed).chunk(3, dim=-1)
    mixed = block.attn.proj((q @ k.transpose(1, 2) / 4).softmax(dim=-1) @ v)
    middle = x + block.ls1.gamma * mixed
    normed = torch.nn.functional.layer_norm(middle, (16,), block.norm2.weight, block.norm2.bias, 1e-6)
    want = middle + block.ls2.gamma * block.mlp.fc2(torch.nn.functional.gelu(block.mlp.fc1(normed)))
    torch.testing.assert_close(block(x, leave_unrotated, attend_within), want)


def test_without_qk_norm_there_are_no_such_weights():
    assert not any("norm" in name for name in Block(16, 1).attn.state_dict())
    assert {"q_norm.weight", "k_norm.bias"} < set(Block(16, 1, qk_norm=True).attn.state_dict())
