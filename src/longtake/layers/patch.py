"""Images cut into patches, and learned patch positions for any grid."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


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
