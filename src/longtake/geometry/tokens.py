"""Images and special tokens as the trunk takes them.

0        1             1 + registers   special tokens
│ camera │ registers … │ scale         │ patches, row by row …
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from longtake.geometry.config import GeometryConfig

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)


def normalize(images: Float[Tensor, "*batch 3 height width"]) -> Float[Tensor, "*batch 3 height width"]:
    """RGB in 0..1 to the encoder's mean and deviation, constants that no cast of the weights can round."""
    channels = zip(images.unbind(dim=-3), MEAN, DEVIATION, strict=True)
    return torch.stack([(channel - mean) / deviation for channel, mean, deviation in channels], dim=-3)


class SpecialTokens(nn.Module):
    """Learned tokens in front of a frame's patches, each in two variants: for the first frames and for all others."""

    def __init__(self, config: GeometryConfig) -> None:
        super().__init__()
        self.camera = _variants(1, config.width)
        self.registers = _variants(config.trunk.registers, config.width)
        self.scale = _variants(1, config.width) if config.trunk.scale_token else None

    def forward(self, ordinals: Sequence[int], num_scale_frames: int) -> Float[Tensor, "frames special channels"]:
        """Camera and registers single out the first frame of a sequence, the scale token its scale block."""
        kinds = [(int(o > 0), int(o >= num_scale_frames)) for o in ordinals]
        tokens = {kind: self._of_frame(*kind) for kind in set(kinds)}
        return torch.stack([tokens[kind] for kind in kinds])

    def _of_frame(self, later: int, after_scale: int) -> Float[Tensor, "special channels"]:
        tokens = [self.camera[0, later], self.registers[0, later]]
        if self.scale is not None:
            tokens.append(self.scale[0, after_scale])
        return torch.cat(tokens)


def _variants(count: int, width: int) -> nn.Parameter:
    return nn.Parameter(1e-6 * torch.randn(1, 2, count, width))


def grid_positions(special: int, rows: int, columns: int) -> Int[Tensor, "tokens 2"]:
    """(row, column) of a frame's tokens where special tokens share the origin and patches start at (1, 1)."""
    return torch.cat([torch.zeros(special, 2, dtype=torch.long), 1 + _cells(rows, columns)])


def diagonal_positions(special: int, rows: int, columns: int) -> Int[Tensor, "tokens 2"]:
    """(row, column) of a frame's tokens where special tokens run down the diagonal and patches follow."""
    return torch.cat([torch.arange(special)[:, None].expand(-1, 2), special + _cells(rows, columns)])


def _cells(rows: int, columns: int) -> Int[Tensor, "cells 2"]:
    return torch.cartesian_prod(torch.arange(rows), torch.arange(columns))
