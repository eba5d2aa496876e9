"""Trunk: pairs of blocks, the first within each frame, the second over all that the clip may recall."""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from longtake.attention.recall import Recall
from longtake.geometry.config import TRUNK, GeometryConfig
from longtake.layers.attention import attend_within
from longtake.layers.block import Block
from longtake.layers.rotary import Rotate


class Trunk(nn.Module):
    """Tokens of a clip to the outputs of the selected pairs."""

    def __init__(self, config: GeometryConfig) -> None:
        super().__init__()
        trunk = config.trunk
        self.selected = trunk.selected
        self.frame_blocks = nn.ModuleList(Block(config.width, trunk.heads, qk_norm=True) for _ in range(trunk.depth))
        self.global_blocks = nn.ModuleList(Block(config.width, trunk.heads, qk_norm=True) for _ in range(trunk.depth))

    def forward(
        self,
        x: Float[Tensor, "batch frames tokens channels"],
        recall: Recall,
        rotate_frame: Rotate,
        rotate_clip: Rotate,
    ) -> list[Float[Tensor, "batch frames tokens both"]]:
        """Frame-block and global-block output side by side, not normalised, for each selected pair."""
        batch, frames, tokens, _ = x.shape
        features = []
        for pair, (frame_block, global_block) in enumerate(zip(self.frame_blocks, self.global_blocks, strict=True)):
            within = frame_block(x.flatten(0, 1), rotate_frame, attend_within).unflatten(0, (batch, frames))
            across = global_block(within.flatten(1, 2), rotate_clip, partial(recall.attend, TRUNK, pair))
            x = across.unflatten(1, (frames, tokens))
            if pair in self.selected:
                features.append(torch.cat([within, x], dim=-1))
        return features
