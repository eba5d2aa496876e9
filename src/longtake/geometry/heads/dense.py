"""Dense heads: features of four trunk layers to a value and a confidence for every pixel."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from longtake.geometry.config import DenseConfig
from longtake.geometry.heads.activations import CONFIDENCE_ACTIVATIONS, VALUE_ACTIVATIONS
from longtake.geometry.heads.dpt import DensePositions, Dpt, position_image

FRAMES_AT_ONCE = 8
"""Frames are independent; working through them in chunks bounds the memory of the full-resolution maps."""


@dataclass(frozen=True, slots=True)
class DenseMap:
    """What one head says of every pixel."""

    values: Float[Tensor, "batch frames height width channels"]
    confidence: Float[Tensor, "batch frames height width"]


class DenseHead(nn.Module):
    """One dense quantity: depth, points in the world, or points before the camera."""

    def __init__(self, config: DenseConfig, width: int, *, outputs: int, activation: str) -> None:
        super().__init__()
        self.dpt = Dpt(config, width, outputs + 1)
        self.activate = VALUE_ACTIVATIONS[activation]
        self.activate_confidence = CONFIDENCE_ACTIVATIONS[config.confidence_activation]

    def forward(
        self,
        levels: Sequence[Float[Tensor, "batch frames patches channels"]],
        positions: DensePositions,
        *,
        frames_at_once: int = FRAMES_AT_ONCE,
    ) -> DenseMap:
        batch_and_frames = levels[0].shape[:2]
        chunks = zip(*(level.flatten(0, 1).split(frames_at_once) for level in levels), strict=True)
        raw = torch.cat([self.dpt(chunk, positions) for chunk in chunks]).unflatten(0, batch_and_frames)
        return DenseMap(
            values=self.activate(raw[:, :, :-1].movedim(2, -1)),
            confidence=self.activate_confidence(raw[:, :, -1]),
        )


def dense_positions(
    config: DenseConfig, patches: tuple[int, int], pixels: tuple[int, int], like: Tensor
) -> DensePositions:
    """Position images for (rows, columns) of patches and (height, width) in pixels, on the device of `like`."""
    aspect = pixels[1] / pixels[0]
    finest, fine, middle, coarse = (
        position_image(channels, patches, aspect, device=like.device, dtype=like.dtype) for channels in config.channels
    )
    return DensePositions(
        levels=(finest, fine, middle, coarse),
        pixels=position_image(config.features // 2, pixels, aspect, device=like.device, dtype=like.dtype),
    )
