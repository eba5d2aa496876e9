"""Recall of a whole clip that computes what may be seen and little else: most of a long clip has been forgotten.

A frame sees patches of few frames and special tokens of many. Where special tokens stand first, whole blocks of patches
that nobody sees are passed over:

in a clip   │ special │ patches of frame 0 │ special │ patches of frame 1 │ …
as here     │ special tokens of all frames │ patches of frame 0 │ patches of frame 1 │ …
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from longtake.attention.backend import Keys, Queries
from longtake.attention.recall import ClipRecall, HostOrdinals
from longtake.geometry.config import TRUNK


@dataclass(frozen=True, slots=True)
class SparseClipRecall(HostOrdinals):
    """The same as a `ClipRecall`, whose trunk is computed block by block."""

    others: ClipRecall
    """For all streams but the trunk."""
    blocks: BlockMask
    num_frames: int
    special: int

    @property
    def ordinals(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.others.ordinals

    @property
    def num_scale_frames(self) -> int:
        return self.others.num_scale_frames

    def attend(self, stream: str, layer: int, q: Queries, k: Keys, v: Keys) -> Queries:
        if stream != TRUNK:
            return self.others.attend(stream, layer, q, k, v)
        ordered = (self._special_first(tensor).transpose(1, 2) for tensor in (q, k, v))
        attended = _attention(q.device.type)(*ordered, block_mask=self.blocks)
        return self._in_clip(attended.transpose(1, 2))

    def _special_first(self, tokens: Keys) -> Keys:
        by_frame = tokens.unflatten(1, (self.num_frames, -1))
        parts = by_frame.tensor_split([self.special], dim=2)
        return torch.cat([part.flatten(1, 2) for part in parts], dim=1)

    def _in_clip(self, tokens: Keys) -> Keys:
        special, patches = tokens.tensor_split([self.num_frames * self.special], dim=1)
        by_frame = [part.unflatten(1, (self.num_frames, -1)) for part in (special, patches)]
        return torch.cat(by_frame, dim=2).flatten(1, 2)


def sparse_recall(
    others: ClipRecall, kinds: Bool[Tensor, "kinds kinds"], num_frames: int, tokens_per_frame: int
) -> SparseClipRecall:
    """From which kinds of tokens, the special ones of each frame and its patches as one, see which."""
    special = len(kinds) // num_frames - 1
    kind = _kinds_special_first(num_frames, special, tokens_per_frame, kinds.device)
    length = len(kind)
    blocks = create_block_mask(
        lambda _batch, _head, query, key: kinds[kind[query], kind[key]], None, None, length, length, device=kinds.device
    )
    return SparseClipRecall(others, blocks, num_frames, special)


def _kinds_special_first(
    num_frames: int, special: int, tokens_per_frame: int, device: torch.device
) -> Int[Tensor, " tokens"]:
    first = torch.arange(num_frames, device=device)[:, None] * (special + 1)
    of_special = first + torch.arange(special, device=device)
    of_patches = (first + special).expand(-1, tokens_per_frame - special)
    return torch.cat([of_special.flatten(), of_patches.flatten()])


@cache
def _attention(device_type: str) -> Any:
    return torch.compile(flex_attention, dynamic=True) if device_type == "cuda" else flex_attention
