"""Fused blocks say what blocks say, and learn the same: on a GPU as they are, elsewhere by Triton's interpreter."""

from typing import Any

import pytest
import torch
from torch import Tensor

from longtake.geometry.model import GeometryModel
from longtake.layers.block import Block, attend_within
from longtake.layers.rotary import (
    AdjacentRotation,
    HalvesRotation,
    Rotate,
    axis_phases,
    grid_phases,
    leave_unrotated,
)
from longtake.weights.presets import TINY

ON_GPU = torch.cuda.is_available()
pytest.importorskip("triton", reason="needs Triton")
fused_blocks: Any = pytest.importorskip("training.fused_blocks")

pytestmark = pytest.mark.extra
DEVICE = "cuda" if ON_GPU else "cpu"
HALF = torch.bfloat16 if ON_GPU else torch.float16  # the interpreter cuts bfloat16 off instead of rounding
WIDTH, HEADS, TOKENS = 24, 2, 6
PLACES = torch.tensor([[row, column] for row in range(2) for column in range(3)]).to(DEVICE)
ROTATIONS = {
    "none": leave_unrotated,
    "halves": HalvesRotation(grid_phases(PLACES, WIDTH // HEADS, theta=100.0)),
    "neighbours": AdjacentRotation(axis_phases(PLACES[:, 1], WIDTH // HEADS, theta=100.0)),
}


def two_blocks(*, qk_norm: bool) -> tuple[Block, Block]:
    torch.manual_seed(0)
    plain = Block(WIDTH, HEADS, qk_norm=qk_norm)
    with torch.no_grad():
        for weight in plain.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    fused = Block(WIDTH, HEADS, qk_norm=qk_norm)
    fused.load_state_dict(plain.state_dict())
    fused_blocks.fuse_blocks(fused)
    assert type(fused) is fused_blocks.FusedBlock
    return plain.to(DEVICE), fused.to(DEVICE)


@pytest.mark.parametrize("batch", [3, 50])
@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("rotate", ROTATIONS.values(), ids=ROTATIONS)
def test_values_and_gradients_are_those_of_the_block(rotate: Rotate, qk_norm: bool, batch: int) -> None:
    pair = two_blocks(qk_norm=qk_norm)
    x = torch.randn(batch, TOKENS, WIDTH, device=DEVICE)
    said, learned = [], []
    for block in pair:
        given = x.clone().requires_grad_()
        out = block(given, rotate, attend_within)
        out.square().sum().backward()
        said.append(out)
        learned.append([given.grad, *(weight.grad for weight in block.parameters())])
    torch.testing.assert_close(said[1], said[0], atol=1e-5, rtol=1e-5)
    for fused, plain in zip(learned[1], learned[0], strict=True):
        torch.testing.assert_close(fused, plain, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("rotate", ROTATIONS.values(), ids=ROTATIONS)
def test_in_half_precision_they_are_as_far_from_the_truth_as_the_block(rotate: Rotate) -> None:
    plain, fused = two_blocks(qk_norm=True)
    x = torch.randn(3, TOKENS, WIDTH, device=DEVICE)

    def said_and_learned(block: Block, *, half: bool) -> list[Tensor]:
        block.zero_grad()
        with torch.autocast(DEVICE, HALF, enabled=half, cache_enabled=False):
            out = block(x, rotate, attend_within)
        (0.01 * out.square()).sum().backward()
        learned = [weight.grad.flatten() for weight in block.parameters() if weight.grad is not None]
        return [out.detach(), torch.cat(learned)]

    true = said_and_learned(plain, half=False)
    errors = [
        [float((found - truth).norm() / truth.norm()) for found, truth in zip(halved, true, strict=True)]
        for halved in (said_and_learned(plain, half=True), said_and_learned(fused, half=True))
    ]
    assert all(0 < of_fused < 1.2 * of_plain for of_plain, of_fused in zip(*errors, strict=True))


def test_all_blocks_of_a_model_are_fused_and_its_weights_keep_their_names() -> None:
    model, usual = GeometryModel(TINY), GeometryModel(TINY)
    fused_blocks.fuse_blocks(model)
    assert not any(type(module) is Block for module in model.modules())
    assert model.state_dict().keys() == usual.state_dict().keys()
