"""Muon over many matrices at once, against torch's, which takes them one by one."""

import pytest
import torch
from torch import Tensor

from training.muon import Muon, orthogonal

SHAPES = [(16, 48), (48, 16), (24, 24), (16, 48), (1, 9), (9, 1)]


def some(shapes: list[tuple[int, int]], seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_steps_are_those_of_torch_bit_for_bit(weight_decay: float) -> None:
    ours, theirs = some(SHAPES, 0), [weight.requires_grad_() for weight in some(SHAPES, 0)]
    muon = Muon(ours, weight_decay=weight_decay)
    other = torch.optim.Muon(theirs, lr=1.0, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
    for step, rate in enumerate((1e-3, 2e-2, 5e-3, 1e-3)):
        for here, there, gradient in zip(ours, theirs, some(SHAPES, 10 + step), strict=True):
            here.grad, there.grad = gradient.clone(), gradient.clone()
        muon.step(rate)
        other.param_groups[0]["lr"] = rate
        other.step()
        for here, there, momentum in zip(ours, theirs, muon.momentum, strict=True):
            assert torch.equal(here, there)
            assert torch.equal(momentum, other.state[there]["momentum_buffer"])


def test_gradients_are_left_as_they_are() -> None:
    weights, gradients = some(SHAPES, 0), some(SHAPES, 1)
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.grad = gradient.clone()
    Muon(weights, weight_decay=0.1).step(1e-2)
    assert all(torch.equal(weight.grad, gradient) for weight, gradient in zip(weights, gradients, strict=True))


@pytest.mark.parametrize("shape", [(16, 64), (64, 16), (8, 100)])
def test_singular_values_come_near_one_and_directions_stay(shape: tuple[int, int]) -> None:
    matrices = torch.stack(some([shape] * 3, 3)) * torch.tensor([1e-3, 1.0, 1e3])[:, None, None]
    made = orthogonal(matrices).float()
    for before, after in zip(matrices, made, strict=True):
        values = torch.linalg.svdvals(after)
        assert 0.6 < float(values.min()) <= float(values.max()) < 1.3
        left, _, right = torch.linalg.svd(before, full_matrices=False)
        turned = left.T @ after @ right.T
        assert float((turned - turned.diagonal().diag()).abs().max()) < 0.05


def test_nothing_to_learn_changes_nothing() -> None:
    assert torch.equal(orthogonal(torch.zeros(2, 3, 4)), torch.zeros(2, 3, 4, dtype=torch.bfloat16))
