"""Fused blocks say what blocks say, and learn the same."""

import pytest
import torch

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
from training.fused_blocks import FusedBlock, fuse_blocks

WIDTH, HEADS, TOKENS = 24, 2, 6
PLACES = torch.tensor([[row, column] for row in range(2) for column in range(3)])
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
    fuse_blocks(fused)
    assert type(fused) is FusedBlock
    return plain, fused


@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("rotate", ROTATIONS.values(), ids=ROTATIONS)
def test_values_and_gradients_are_those_of_the_block(rotate: Rotate, qk_norm: bool) -> None:
    pair = two_blocks(qk_norm=qk_norm)
    x = torch.randn(3, TOKENS, WIDTH)
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
def test_in_bfloat16_they_are_as_far_from_the_truth_as_the_block(rotate: Rotate) -> None:
    plain, fused = two_blocks(qk_norm=True)
    x = torch.randn(3, TOKENS, WIDTH)
    with torch.no_grad():
        true = plain(x, rotate, attend_within)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        errors = [float((block(x, rotate, attend_within) - true).norm() / true.norm()) for block in (plain, fused)]
    assert 0 < errors[1] < 1.2 * errors[0]


def test_all_blocks_of_a_model_are_fused_and_its_weights_keep_their_names() -> None:
    model, usual = GeometryModel(TINY), GeometryModel(TINY)
    fuse_blocks(model)
    assert not any(type(module) is Block for module in model.modules())
    assert model.state_dict().keys() == usual.state_dict().keys()
