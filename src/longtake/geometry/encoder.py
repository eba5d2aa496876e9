"""Patch encoder: a vision transformer with class token and registers, of which the patches are kept."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from longtake.geometry.config import GeometryConfig
from longtake.layers.attention import attend_within
from longtake.layers.block import Block
from longtake.layers.patch import PatchEmbed, resize_positions
from longtake.layers.rotary import leave_unrotated


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
