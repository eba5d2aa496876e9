"""Slow, obvious recalls to hold the model against."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from longtake.attention.recall import HostOrdinals


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    logits = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    if mask is not None:
        logits = logits.masked_fill(~mask, -torch.inf)
    return torch.einsum("bhqk,bkhd->bqhd", logits.softmax(dim=-1), v)


@dataclass
class WholeClip(HostOrdinals):
    """Every frame sees every frame, but for streams with a mask of one token per frame."""

    ordinals: tuple[int, ...]
    num_scale_frames: int
    masks: Mapping[str, Tensor] = field(default_factory=dict)

    def attend(self, stream: str, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q, k, v, self.masks.get(stream))


@dataclass
class Everything(HostOrdinals):
    """A stream that forgets nothing: keys and values of kept clips are concatenated, layer by layer."""

    num_scale_frames: int
    ordinals: tuple[int, ...] = ()
    keep: bool = True
    history: dict[tuple[str, int], tuple[Tensor, Tensor]] = field(default_factory=dict)

    def attend(self, stream: str, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if (stream, layer) in self.history:
            before_k, before_v = self.history[stream, layer]
            k, v = torch.cat([before_k, k], dim=1), torch.cat([before_v, v], dim=1)
        if self.keep:
            self.history[stream, layer] = (k, v)
        return attend(q, k, v)


@pytest.fixture
def whole_clip() -> type[WholeClip]:
    return WholeClip


@pytest.fixture
def everything() -> type[Everything]:
    return Everything
