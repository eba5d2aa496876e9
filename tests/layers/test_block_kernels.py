"""A fused block against the block that it stands for: on a GPU as it is, elsewhere by Triton's interpreter."""

from typing import Any

import pytest
import torch
from torch import nn

from longtake.layers.block import Block, attend_within
from longtake.layers.fused import FusedBlock
from longtake.layers.rotary import AdjacentRotation, HalvesRotation, Phases, leave_unrotated

ON_GPU = torch.cuda.is_available()
pytest.importorskip("triton", reason="needs Triton")
kernels: Any = pytest.importorskip("longtake.layers.block_kernels")

pytestmark = pytest.mark.extra
DEVICE = "cuda" if ON_GPU else "cpu"
HALF = torch.bfloat16 if ON_GPU else torch.float16  # the interpreter cuts bfloat16 off instead of rounding
WIDTH, HEADS, TOKENS = 192, 3, 21


def some_phases(tokens: int = TOKENS, head_dim: int = WIDTH // HEADS) -> Phases:
    angles = torch.randn(tokens, head_dim // 2, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    return Phases(angles.cos(), angles.sin())


def some_block(*, qk_norm: bool) -> Block:
    torch.manual_seed(1)
    block = Block(WIDTH, HEADS, qk_norm=qk_norm)
    for module in block.modules():
        if isinstance(module, nn.LayerNorm):
            nn.init.normal_(module.weight, 1.0, 0.2)
            nn.init.normal_(module.bias, 0.0, 0.2)
    for scale in (block.ls1, block.ls2):
        nn.init.normal_(scale.gamma)
    return block.requires_grad_(False).to(DEVICE)


ROTATIONS = {"none": None, "halves": HalvesRotation, "adjacent": AdjacentRotation}


@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("rotation", ROTATIONS)
@torch.no_grad()
def test_fused_block_is_the_block(rotation: str, qk_norm: bool) -> None:
    block, kind = some_block(qk_norm=qk_norm), ROTATIONS[rotation]
    rotate = leave_unrotated if kind is None else kind(some_phases())
    x = torch.randn(2, TOKENS, WIDTH, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    want = block(x, rotate, attend_within)
    torch.testing.assert_close(FusedBlock(block, torch.float32)(x, rotate, attend_within), want)
    with torch.autocast(DEVICE, HALF, cache_enabled=False):
        halved = block(x, rotate, attend_within)
        fused = FusedBlock(block, HALF)(x, rotate, attend_within)
    assert fused.dtype == torch.float32
    assert (fused - want).norm() < 1.2 * (halved - want).norm()


@pytest.mark.parametrize("width", [64, 1000, 1024])
def test_norms_and_residuals_are_rounded_once(width: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x, gamma = torch.randn(7, width, generator=generator).to(DEVICE), torch.randn(width, generator=generator).to(DEVICE)
    branch = torch.randn(7, width, generator=generator).to(DEVICE, HALF)
    layer = nn.LayerNorm(width, eps=1e-6).requires_grad_(False).to(DEVICE)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    total, normed = kernels.add_norm(x, branch, gamma, layer)
    torch.testing.assert_close(total, x + gamma * branch, rtol=1e-6, atol=1e-6)
    assert torch.equal(total, kernels.add(x, branch, gamma))
    torch.testing.assert_close(normed, layer(total).to(HALF), rtol=2**-7, atol=2**-9)
    assert torch.equal(normed, kernels.norm(total, layer, HALF))


def test_root_mean_square_norms_and_gates_are_those_of_torch() -> None:
    generator = torch.Generator().manual_seed(5)
    x, branch = (torch.randn(2, 7, WIDTH, generator=generator).to(DEVICE) for _ in range(2))
    weight, half = torch.randn(WIDTH, generator=generator).to(DEVICE, HALF), branch.to(HALF)
    total, normed = kernels.add_scale_norm(x, half, weight, 1e-6)
    torch.testing.assert_close(total, x + half.float(), rtol=0, atol=0)
    want = nn.functional.rms_norm(total, (WIDTH,), weight.float(), 1e-6)
    torch.testing.assert_close(normed, want.to(HALF), rtol=2**-7, atol=1e-4)
    torch.testing.assert_close(kernels.scale_norm(total, weight, 1e-6, HALF), normed, rtol=0, atol=0)
    gate = x.to(HALF)
    want = nn.functional.silu(gate.float()) * half.float()
    torch.testing.assert_close(kernels.gated(gate, half), want.to(HALF), rtol=2**-7, atol=1e-4)
