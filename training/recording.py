"""One step of learning, forward and backward: plainly, or recorded once as a CUDA graph and replayed.

A step of a small network is thousands of short kernels, and launching them takes the host longer than running them
takes the GPU. A recording launches them all at once.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

Compute = Callable[..., tuple[Float[Tensor, ""], Float[Tensor, " figures"]]]
"""From some tensors to a loss and figures to look at."""


def prepare_gradients(weights: Sequence[Tensor]) -> None:
    """Gradients have one place throughout, which recordings know."""
    for weight in weights:
        weight.grad = torch.zeros_like(weight)


def learn(compute: Compute, inputs: Sequence[Tensor], weights: Sequence[Tensor]) -> Float[Tensor, " figures"]:
    """Leave the gradients of the loss in the weights; returns the figures."""
    loss, figures = compute(*inputs)
    found = torch.autograd.grad(loss, list(weights), materialize_grads=True)
    torch._foreach_copy_([weight.grad for weight in weights if weight.grad is not None], found)
    return figures.detach()


class Recording:
    """The same as `learn` for inputs of one shape."""

    def __init__(self, compute: Compute, inputs: Sequence[Tensor], weights: Sequence[Tensor], pool: Any) -> None:
        self._inputs = [tensor.clone() for tensor in inputs]
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            learn(compute, self._inputs, weights)  # what is compiled or allocated once cannot be recorded
        torch.cuda.current_stream().wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool):
            self._figures = learn(compute, self._inputs, weights)

    def replay(self, inputs: Sequence[Tensor]) -> Float[Tensor, " figures"]:
        torch._foreach_copy_(self._inputs, list(inputs))
        self._graph.replay()
        return self._figures.clone()  # other recordings of the pool may work where they lie


class RecordedWork:
    """Work on tensors that stay where they are, again and again: at first plainly, then recorded where there is a pool
    for it."""

    def __init__(self, work: Callable[[], None], pool: Any) -> None:
        self._work, self._pool = work, pool
        self._is_warm = False
        self._graph: torch.cuda.CUDAGraph | None = None

    def do(self) -> None:
        if self._pool is None or not self._is_warm:
            self._work()
            self._is_warm = True
            return
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, pool=self._pool):
                self._work()
        self._graph.replay()


class TrainStep:
    """The same step again and again: recorded the first time where there is a pool for it, else done plainly."""

    def __init__(self, compute: Compute) -> None:
        self._compute = compute
        self._recording: Recording | None = None

    def learn(self, inputs: Sequence[Tensor], weights: Sequence[Tensor], pool: Any) -> Float[Tensor, " figures"]:
        if pool is None:
            return learn(self._compute, inputs, weights)
        if self._recording is None:
            self._recording = Recording(self._compute, inputs, weights, pool)
        return self._recording.replay(inputs)
