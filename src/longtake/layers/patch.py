"""Images cut into patches, and learned patch positions for any grid."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


class PatchEmbed(nn.Module):
    """One linear map per patch, tokens row by row."""

    def __init__(self, patch: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, width, kernel_size=patch, stride=patch)

    def forward(self, images: Float[Tensor, "images 3 height width"]) -> Float[Tensor, "images patches channels"]:
        patches: Tensor = self.proj(images)
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
