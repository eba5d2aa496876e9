"""Muon: the momentum of each matrix, made nearly orthogonal before it is added, so that no direction is forgotten.

Matrices of one shape are worked on together: of many small ones, one after the other, the launches would cost the most.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from training.recording import RecordedWork

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the odd polynomial that brings all singular values near 1 within five rounds."""
_ROUNDS = 5
_SHARE_OF_ROOT = 0.2
"""Makes a step as large as AdamW's would be at the same rate."""


class Muon:
    """One rate for all matrices; `momentum` is what it remembers, in the order of the weights."""

    def __init__(
        self, weights: Sequence[Tensor], *, weight_decay: float, momentum: float = 0.95, pool: Any = None
    ) -> None:
        """Where there is a pool for it, all but the last addition is recorded."""
        self.weights = list(weights)
        self.momentum = [torch.zeros_like(weight) for weight in self.weights]
        self._weight_decay, self._keep = weight_decay, momentum
        self._groups = defaultdict[tuple[int, ...], list[int]](list)
        for at, weight in enumerate(self.weights):
            self._groups[tuple(weight.shape)].append(at)
        self._updates: dict[tuple[int, ...], Float[Tensor, "matrices rows columns"]] = {}
        self._finding = RecordedWork(self._find_updates, pool)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        self._finding.do()
        for shape, members in self._groups.items():
            weights = [self.weights[at] for at in members]
            size = rate * _SHARE_OF_ROOT * max(shape) ** 0.5
            torch._foreach_mul_(weights, 1 - rate * self._weight_decay)
            torch._foreach_add_(weights, list(self._updates[shape]), alpha=-size)

    def _find_updates(self) -> None:
        """Nesterov's way: the gradient is mixed with the momentum it has just changed."""
        for shape, members in self._groups.items():
            gradient = torch.stack([_gradient(self.weights[at]) for at in members])
            momentum = torch.stack([self.momentum[at] for at in members]).lerp(gradient, 1 - self._keep)
            torch._foreach_copy_([self.momentum[at] for at in members], list(momentum))
            self._updates[shape] = orthogonal(gradient.lerp(momentum, self._keep)).to(gradient.dtype)


def orthogonal(matrices: Float[Tensor, "matrices rows columns"]) -> Float[Tensor, "matrices rows columns"]:
    """Each with the same directions but singular values near 1, by Newton and Schulz, in bfloat16."""
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.bfloat16()
    x = x.mT if is_tall else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp_min(1e-7)
    linear, cubic, quintic = _COEFFICIENTS
    for _ in range(_ROUNDS):
        square = x @ x.mT
        mixed = torch.baddbmm(square, square, square, beta=cubic, alpha=quintic)
        x = torch.baddbmm(x, mixed, x, beta=linear)
    return x.mT if is_tall else x


def _gradient(weight: Tensor) -> Tensor:
    assert weight.grad is not None
    return weight.grad
