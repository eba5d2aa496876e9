"""Patches of pictures as tokens, by products of matrices: convolutions with large strides took four times as long."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from longtake.geometry.tokens import PatchEmbed

_ALIGNED = 16
"""Channels of a convolution for which a GPU has its fastest kernels."""


class FusedPatchEmbed(PatchEmbed):
    """The same weights and the same function as a `PatchEmbed` with a stem."""

    def forward(self, images: Float[Tensor, "images 3 height width"]) -> Float[Tensor, "images patches channels"]:
        assert self.stem is not None
        found = functional.gelu(functional.conv2d(_halved(images), _of_halved(self.stem.weight), self.stem.bias))
        side = self.proj.kernel_size[0]
        squares = found.permute(0, 2, 3, 1).unflatten(2, (-1, side)).unflatten(1, (-1, side)).transpose(2, 3)
        return functional.linear(
            squares.flatten(3).flatten(1, 2), self.proj.weight.permute(0, 2, 3, 1).flatten(1), self.proj.bias
        )


def fuse_patches(model: nn.Module) -> None:
    """Patches of this model are made so from now on, where it has a stem."""
    for module in model.modules():
        if type(module) is PatchEmbed and module.stem is not None:
            module.__class__ = FusedPatchEmbed


def _halved(images: Float[Tensor, "images 3 height width"]) -> Float[Tensor, "images channels rows columns"]:
    """Squares of 2 x 2 pixels as one with four times the channels, channels last; pixels around are 0."""
    kind = images.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else images.dtype
    around = functional.pad(images.to(dtype), (4, 2, 4, 2))
    squares = around.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).permute(0, 2, 4, 1, 3, 5).flatten(3)
    return functional.pad(squares, (0, _ALIGNED - squares.shape[3])).permute(0, 3, 1, 2)


def _of_halved(weight: Float[Tensor, "out 3 7 7"]) -> Float[Tensor, "out channels 4 4"]:
    """The same weights for such squares, behind a row and a column that count nothing."""
    squares = functional.pad(weight, (1, 0, 1, 0)).unflatten(3, (-1, 2)).unflatten(2, (-1, 2))
    channels_last = functional.pad(squares.permute(0, 2, 4, 1, 3, 5).flatten(3), (0, _ALIGNED - 4 * weight.shape[1]))
    return channels_last.permute(0, 3, 1, 2)
