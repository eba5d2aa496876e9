"""Two optimisers side by side: products of the blocks are kept near orthogonal, all else follows its own spread."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from longtake.geometry.model import GeometryModel
from longtake.layers.block import LayerScale
from training.muon import Muon

_FIRST_GAMMA = 0.1
_FIRST_TOKEN = 0.02
_FIRST_FOV_RAD = 1.1
_STORED = torch.bfloat16
"""Moments are kept so in a checkpoint, which halves it; they are averages of noise, and training goes on unmoved."""


class Optimisers:
    """Muon for the matrices of blocks, AdamW for the rest, at one rate."""

    def __init__(self, model: nn.Module, *, weight_decay: float, pool: Any = None) -> None:
        """Steps are recorded where there is a pool for it."""
        named = dict(model.named_parameters())
        matrices = {name: weight for name, weight in named.items() if _is_in_block(name) and weight.ndim == 2}
        rest = {name: weight for name, weight in named.items() if name not in matrices}
        self._muon = Muon(list(matrices.values()), weight_decay=weight_decay, pool=pool)
        self._adam = AdamW(
            [
                {"params": [weight for weight in rest.values() if weight.ndim > 1], "weight_decay": weight_decay},
                {"params": [weight for weight in rest.values() if weight.ndim <= 1], "weight_decay": 0.0},
            ],
            betas=(0.9, 0.97),
            fused=next(model.parameters()).device.type == "cuda",
        )
        for weight in rest.values():
            self._adam.state[weight] = _nothing_yet(weight)
        self._matrices, self._rest = matrices, rest

    def step(self, rate: float) -> None:
        self._muon.step(rate)
        for group in self._adam.param_groups:
            group["lr"] = rate
        self._adam.step()

    def live(self) -> dict[str, Tensor]:
        """All that they remember, by the names of the weights."""
        momentum = zip(self._matrices, self._muon.momentum, strict=True)
        return {f"momentum/{name}": value for name, value in momentum} | {
            f"{kind}/{name}": value
            for name, weight in self._rest.items()
            for kind, value in self._adam.state[weight].items()
        }

    def stored(self) -> dict[str, Tensor]:
        """The same as a checkpoint keeps it."""
        return {name: value.to(_STORED) if value.ndim else value for name, value in self.live().items()}


def _is_in_block(name: str) -> bool:
    """Blocks of geometry models and of vision towers, layers of language models."""
    return "blocks." in name or "language_model.layers." in name


def _nothing_yet(weight: Tensor) -> dict[str, Tensor]:
    """What AdamW remembers of a weight before its first step; made now, so that a checkpoint always has it."""
    return {
        "step": torch.zeros((), device=weight.device),
        "exp_avg": torch.zeros_like(weight),
        "exp_avg_sq": torch.zeros_like(weight),
    }


@torch.no_grad()
def initialise(model: GeometryModel) -> None:
    """Begin anew: branches count little but not nothing, and every camera is the first one with a common lens."""
    for module in model.modules():
        if isinstance(module, LayerScale):
            module.gamma.fill_(_FIRST_GAMMA)
    for weight in (*model.tokens.parameters(), model.encoder.class_token, model.encoder.registers):
        weight.normal_(std=_FIRST_TOKEN)
    last = model.camera_head.correction.fc2
    last.weight.mul_(0.1)
    share = 1 / model.config.camera.iterations
    last.bias.copy_(torch.tensor([0.0] * 6 + [1.0, _FIRST_FOV_RAD, _FIRST_FOV_RAD]) * share)
