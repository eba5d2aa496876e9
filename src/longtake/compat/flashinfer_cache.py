"""The published page manager's names over longtake's pages.

Callers of that manager name a transformer block in every call: append to block 0, attend with block 0, then the same
with block 1, and so on; or all frames of one block before the next. Here all blocks share one book. Block 0 moves it;
the others follow, each at its own pace, and a block that does anything else is refused.
"""

from collections import deque

import torch
from torch import Tensor

from longtake.attention.flashinfer import FlashInferPages, why_unsuitable
from longtake.attention.paged import PagedCache, PageKernel
from longtake.errors import InputError, MissingExtraError, SettingError, TransactionError
from longtake.memory.layout import StreamLayout
from longtake.memory.pages import PagePlan, Pages, padded_page_size
from longtake.memory.policies.context import ContextRetention


class FlashInferKVCacheManager:
    """Paged keys and values of all blocks, under the names and defaults of the published class.

    It differs where that one was at fault: padding takes no attention, keys and values are stored in the dtype asked
    for (`force_fp32`: float32), the retention options of `evict_frames` are followed, `reset` clears every flag, and an
    exhausted pool is a `MemoryFullError`. Without FlashInfer, CUDA or half precision it gathers and goes on.
    """

    def __init__(
        self,
        num_blocks: int,
        max_num_frames: int,
        tokens_per_frame: int,
        num_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str,
        num_special_tokens: int = 6,
        scale_frames: int = 8,
        sliding_window: int = 64,
        max_total_frames: int = 2048,
        force_fp32: bool = False,
        fa3: bool = False,
    ) -> None:
        patches = tokens_per_frame - num_special_tokens
        if patches < 1:
            raise SettingError(
                f"Expected patches besides {num_special_tokens} special tokens, but a frame has {tokens_per_frame} "
                "tokens in all."
            )
        self.num_blocks = num_blocks
        self.max_num_frames = max_num_frames
        self.tokens_per_frame = tokens_per_frame
        self.num_special_tokens = num_special_tokens
        self.patches_per_frame = patches
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.dtype = torch.float32 if force_fp32 else dtype
        self.device = torch.device(device)
        self.scale_frames = scale_frames
        self.sliding_window = sliding_window
        self.max_total_frames = max_total_frames
        self.force_fp32 = force_fp32
        self.fa3 = fa3
        plan = PagePlan(
            patches=patches,
            specials=num_special_tokens,
            retention=ContextRetention(
                anchors=scale_frames, window=sliding_window, trail=num_special_tokens, history=None
            ),
            max_total_frames=max_total_frames,
            page_size=padded_page_size(patches) if fa3 else patches,
        )
        layout = StreamLayout(
            num_layers=num_blocks,
            num_heads=num_heads,
            head_dim=head_dim,
            tokens_per_frame=tokens_per_frame,
            dtype=self.dtype,
        )
        self.page_size = plan.slots_per_page
        self.max_patch_pages = plan.num_patch_pages
        self.max_num_pages = plan.num_pages
        self.cache = PagedCache(layout, plan, device=self.device, kernel=_kernel(layout, self.device, fa3=fa3))
        self.reset()

    @property
    def kv_caches(self) -> list[Tensor]:
        """A tensor a block: `[pages, key or value, slots of a page, heads, head_dim]`."""
        return self.cache.storage

    @property
    def num_frames(self) -> int:
        """Frames stored in block 0, evicted ones included."""
        return self._pages[0].num_frames

    @property
    def frame_count(self) -> list[int]:
        """Frames stored in each block, evicted ones included."""
        return [pages.num_frames for pages in self._pages]

    def append_frame(self, block_idx: int, k: Tensor, v: Tensor) -> None:
        """Store a frame's keys and values, `[tokens, heads, head_dim]`, special tokens first."""
        expected = (self.tokens_per_frame, self.num_heads, self.head_dim)
        if tuple(k.shape) != expected or tuple(v.shape) != expected:
            raise InputError(
                f"Expected keys and values of shape {expected}, but got {tuple(k.shape)} and {tuple(v.shape)}; a cache "
                "serves one image size."
            )
        self._move(block_idx, self._at(block_idx).append())
        self.cache.write(block_idx, self._pages[block_idx], k, v)

    def evict_frames(
        self,
        block_idx: int,
        scale_frames: int,
        sliding_window: int,
        cross_frame_special: bool = True,
        include_scale_frames: bool = True,
        camera_only: bool = False,
        num_register_tokens: int = 4,  # noqa: ARG002 (said by num_special_tokens already)
    ) -> None:
        """Let go of the patches of frames that left the window, unless eviction is deferred."""
        if self._defer_eviction:
            return
        self.execute_deferred_eviction(
            block_idx,
            scale_frames,
            sliding_window,
            cross_frame_special=cross_frame_special,
            include_scale_frames=include_scale_frames,
            camera_only=camera_only,
        )

    def execute_deferred_eviction(
        self,
        block_idx: int,
        scale_frames: int,
        sliding_window: int,
        cross_frame_special: bool = True,
        include_scale_frames: bool = True,
        camera_only: bool = False,
        num_register_tokens: int = 4,  # noqa: ARG002 (said by num_special_tokens already)
    ) -> None:
        """Evict now, deferred or not."""
        trail_tokens = 1 if camera_only else self.num_special_tokens
        retention = ContextRetention(
            anchors=scale_frames if include_scale_frames else 0,
            window=sliding_window,
            trail=trail_tokens if cross_frame_special else 0, history=None,)
        before = self._at(block_idx)
        after = before.under(retention).evict()
        if after != before:
            self._move(block_idx, after)

    def rollback_last_frame(self, block_idx: int) -> None:
        """Undo the newest append, which no eviction may have followed."""
        self._move(block_idx, self._at(block_idx).rollback())

    def compute_attention(self, block_idx: int, q: Tensor) -> Tensor:
        """Attention of queries `[tokens, heads, head_dim]` over all that is visible in a block; zeros over nothing."""
        pages = self._at(block_idx)
        if not pages.num_frames:
            return torch.zeros_like(q)
        return self.cache.attend(block_idx, pages, q.unsqueeze(0)).values.squeeze(0).to(q.dtype)

    def build_visible_page_table(self, block_idx: int) -> list[int]:
        """Pages in the order they are read: scale, window, special."""
        return list(self._at(block_idx).table)

    def compute_last_page_len(self, block_idx: int) -> int:
        """Slots in use of the last page of the table."""
        return self._at(block_idx).last_page_len

    def get_cache_stats(self, block_idx: int = 0) -> dict[str, int]:
        """How full a block is: frames ever stored, patch pages by use, special tokens."""
        pages = self._at(block_idx)
        return {
            "frame_count": pages.num_frames,
            "scale_pages": len(pages.scale),
            "live_pages": len(pages.live),
            "free_pages": pages.free_patch_pages,
            "special_tokens": pages.num_special_tokens,
        }

    def reset(self) -> None:
        """Forget everything, deferral included."""
        self._pages: list[Pages] = [self.cache.plan.empty()] * self.num_blocks
        self._ahead: list[deque[Pages]] = [deque() for _ in range(self.num_blocks)]
        # Set from outside by the published model, around a frame whose keeping is judged later.
        self._defer_eviction = False

    def _at(self, block_idx: int) -> Pages:
        if not 0 <= block_idx < self.num_blocks:
            raise InputError(f"There are {self.num_blocks} blocks, from 0; there is no block {block_idx}.")
        return self._pages[block_idx]

    def _move(self, block_idx: int, after: Pages) -> None:
        """Block 0 goes ahead; any other block makes the moves that block 0 made, in the same order."""
        if block_idx == 0:
            for ahead in self._ahead[1:]:
                ahead.append(after)
        elif not self._ahead[block_idx] or self._ahead[block_idx][0] != after:
            raise TransactionError(
                f"Block {block_idx} is out of step: it would hold {after.num_frames} frames, {len(after.resident)} of "
                f"them whole, where block 0 {self._what_block_0_did(block_idx)}; append, evict and roll back block 0 "
                "first, then every other block alike."
            )
        else:
            after = self._ahead[block_idx].popleft()
        self._pages[block_idx] = after

    def _what_block_0_did(self, block_idx: int) -> str:
        if not self._ahead[block_idx]:
            return "has not moved on"
        there = self._ahead[block_idx][0]
        return f"went on to {there.num_frames}, {len(there.resident)} of them whole"


def _kernel(layout: StreamLayout, device: torch.device, *, fa3: bool) -> PageKernel | None:
    """FlashInfer's kernel where it can be used; elsewhere the cache gathers."""
    if why_unsuitable(device, layout.dtype, layout.head_dim) is not None:
        return None
    try:
        return FlashInferPages(device, "fa3" if fa3 else "fa2")
    except MissingExtraError:
        return None
