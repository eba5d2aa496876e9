"""Images as tokens: an encoder, a vision transformer, makes one of each patch, and special tokens come before them.

0        1             1 + registers   special tokens
│ camera │ registers … │ scale         │ patches, row by row …
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from longtake.geometry.config import GeometryConfig
from longtake.layers.block import Block, attend_within
from longtake.layers.rotary import leave_unrotated

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)


def normalize(images: Float[Tensor, "*batch 3 height width"]) -> Float[Tensor, "*batch 3 height width"]:
    """RGB in 0..1 to the encoder's mean and deviation, constants that no cast of the weights can round."""
    channels = zip(images.unbind(dim=-3), MEAN, DEVIATION, strict=True)
    return torch.stack([(channel - mean) / deviation for channel, mean, deviation in channels], dim=-3)


class PatchEmbed(nn.Module):
    """One linear map per patch, tokens row by row; with a stem, of edges and corners found before."""

    def __init__(self, patch: int, width: int, *, stem: int = 0) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, stem, kernel_size=7, stride=2, padding=3) if stem else None
        channels, side = (stem, patch // 2) if stem else (3, patch)
        self.proj = nn.Conv2d(channels, width, kernel_size=side, stride=side)

    def forward(self, images: Float[Tensor, "images 3 height width"]) -> Float[Tensor, "images patches channels"]:
        found = images if self.stem is None else functional.gelu(self.stem(images))
        patches: Tensor = self.proj(found)
        return patches.flatten(2).transpose(1, 2)


def resize_positions(
    table: Float[Tensor, "{side}*{side} channels"], side: int, rows: int, columns: int
) -> Float[Tensor, "{rows}*{columns} channels"]:
    """A square table of learned positions resampled to another grid: bicubic, antialiased, half-pixel centres."""
    if rows == columns == side:
        return table
    image = table.to(torch.promote_types(table.dtype, torch.float32)).unflatten(0, (side, side)).permute(2, 0, 1)[None]
    resized = functional.interpolate(image, size=(rows, columns), mode="bicubic", antialias=True, align_corners=False)
    return resized[0].flatten(1).transpose(0, 1).to(table.dtype)


class Encoder(nn.Module):
    """Normalised images to one token per patch."""

    def __init__(self, config: GeometryConfig) -> None:
        super().__init__()
        encoder, width = config.encoder, config.width
        self.side = encoder.side
        self.class_token = nn.Parameter(1e-6 * torch.randn(1, 1, width))
        self.registers = nn.Parameter(1e-6 * torch.randn(1, encoder.registers, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, 1 + encoder.side**2, width))
        self.patches = PatchEmbed(config.patch, width, stem=encoder.stem)
        self.blocks = nn.ModuleList(Block(width, encoder.heads, eps=encoder.eps) for _ in range(encoder.depth))
        self.norm = nn.LayerNorm(width, eps=encoder.eps)

    def positions_on(self, rows: int, columns: int) -> Float[Tensor, "1 positions channels"]:
        """Learned positions of the class token and of a grid of patches."""
        of_class, of_patches = self.positions[:, :1], self.positions[0, 1:]
        return torch.cat([of_class, resize_positions(of_patches, self.side, rows, columns)[None]], dim=1)

    def forward(
        self,
        images: Float[Tensor, "images 3 height width"],
        positions: Float[Tensor, "1 positions channels"],
    ) -> Float[Tensor, "images patches channels"]:
        x = self.embed(images, positions)
        for block in self.blocks:
            x = block(x, leave_unrotated, attend_within)
        first_patch = 1 + self.registers.shape[1]
        patches: Tensor = self.norm(x[:, first_patch:])
        return patches

    def embed(
        self,
        images: Float[Tensor, "images 3 height width"],
        positions: Float[Tensor, "1 positions channels"],
    ) -> Float[Tensor, "images tokens channels"]:
        """Class token, registers, patches; registers have no position."""
        patches = self.patches(images) + positions[:, 1:]
        class_token = (self.class_token + positions[:, :1]).expand(len(images), -1, -1)
        return torch.cat([class_token, self.registers.expand(len(images), -1, -1), patches], dim=1)


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
