"""Steps of learning against an obvious loop, plain and recorded."""

import pytest
import torch
from torch import Tensor, nn

from training.recording import Compute, Recording, learn, prepare_gradients


def network(device: str) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 3)).to(device)


def batch(seed: int, device: str) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(4, size, generator=generator).to(device) for size in (5, 3)]


def by_hand(layers: nn.Sequential, inputs: list[Tensor]) -> tuple[list[Tensor], Tensor]:
    """Gradients and figures."""
    away = layers(inputs[0]) - inputs[1]
    gradients = torch.autograd.grad(away.square().mean(), list(layers.parameters()))
    return list(gradients), torch.stack([away.square().mean(), away.abs().mean()]).detach()


def compute_with(layers: nn.Sequential) -> Compute:
    def compute(given: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        away = layers(given) - wanted
        loss = away.square().mean()
        return loss, torch.stack([loss, away.abs().mean()])

    return compute


def test_a_plain_step_leaves_the_gradients_of_its_loss_and_no_others() -> None:
    layers, unused = network("cpu"), torch.ones(3, requires_grad=True)
    weights = [*layers.parameters(), unused]
    prepare_gradients(weights)
    places = [weight.grad.data_ptr() for weight in weights]
    for seed in range(3):
        inputs = batch(seed, "cpu")
        figures = learn(compute_with(layers), inputs, weights)
        gradients, expected = by_hand(layers, inputs)
        assert not figures.requires_grad
        assert torch.equal(figures, expected)
        for weight, gradient in zip(layers.parameters(), gradients, strict=True):
            assert torch.equal(weight.grad, gradient)
        assert float(unused.grad.abs().sum()) == 0
    assert [weight.grad.data_ptr() for weight in weights] == places


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_recorded_step_is_the_plain_one() -> None:
    layers = network("cuda")
    weights = list(layers.parameters())
    prepare_gradients(weights)
    recordings = [
        Recording(compute_with(layers), batch(0, "cuda"), weights, pool)
        for pool in [torch.cuda.graph_pool_handle()]
        for _ in range(2)
    ]
    for seed in range(4):
        inputs = batch(seed, "cuda")
        figures = recordings[seed % 2].replay(inputs)
        recorded = [weight.grad.clone() for weight in weights]
        recordings[(seed + 1) % 2].replay(batch(9, "cuda"))
        torch.testing.assert_close(learn(compute_with(layers), inputs, weights), figures)
        torch.testing.assert_close([weight.grad for weight in weights], recorded)
        with torch.no_grad():
            for weight, gradient in zip(weights, recorded, strict=True):
                weight -= 0.1 * gradient
