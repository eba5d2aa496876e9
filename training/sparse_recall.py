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

_BLOCK = 64
"""Tokens: about a frame's. Of blocks twice as long fewer are passed over, and fewer are seen whole."""
_TILE = {"BLOCK_M": _BLOCK, "BLOCK_N": _BLOCK}


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
        attended = _attention(q.device.type)(*ordered, block_mask=self.blocks, kernel_options=_TILE)
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
    """From which kinds of tokens, the special ones of each frame and its patches as one, see which.

    A token is seen by the frames from one to another, without a gap: two numbers, which are compared faster than an
    entry of a table is looked up.
    """
    special = len(kinds) // num_frames - 1
    kind = _kinds_special_first(num_frames, special, tokens_per_frame, kinds.device)
    frame, (first, last) = kind // (special + 1), (ends[kind] for ends in _seen_by(kinds, special + 1))
    blocks = create_block_mask(
        lambda _batch, _head, query, key: (frame[query] >= first[key]) & (frame[query] <= last[key]),
        None,
        None,
        len(kind),
        len(kind),
        device=kinds.device,
        BLOCK_SIZE=_BLOCK,
    )
    return SparseClipRecall(others, blocks, num_frames, special)


def _seen_by(kinds: Bool[Tensor, "kinds kinds"], per_frame: int) -> tuple[Int[Tensor, " kinds"], Int[Tensor, " kinds"]]:
    """Of each kind the first and the last frame that sees it."""
    by_frame = kinds[::per_frame]
    assert torch.equal(by_frame.repeat_interleave(per_frame, dim=0), kinds), "all of a frame see the same"
    first = by_frame.int().argmax(dim=0)
    last = first + by_frame.sum(dim=0) - 1
    frame = torch.arange(len(by_frame), device=kinds.device)[:, None]
    assert torch.equal((frame >= first) & (frame <= last), by_frame), "what is forgotten is not seen again"
    return first, last


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
