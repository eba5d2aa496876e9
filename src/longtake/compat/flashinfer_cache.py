"""The published page manager's names over longtake's memory, and its page numbers beside.

Callers of that manager name a transformer block in every call: append to block 0, attend with block 0, then the same
with block 1, and so on; or all frames of one block before the next. So each block has a memory of its own, of one
layer. A frame is written to three streams, since an evicted frame loses its patches and, by choice, special tokens too:

    camera token │ other special tokens │ patches

Page numbers say where the published manager would have put things. Block 0 moves first; the others follow, each at its
own pace, and a block that does anything else is refused.
"""

from collections import deque
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from longtake.attention.backend import merge
from longtake.compat.flashinfer_pages import PageBook, PageSizes
from longtake.compat.lingbot_options import published_backend
from longtake.errors import InputError, SettingError, TransactionError
from longtake.memory.budget import StreamPlan, require_room
from longtake.memory.memory import Memory
from longtake.memory.policies.lockstep import ContextRetention, KeepAll
from longtake.memory.policy import Keep
from longtake.memory.tokens import StreamLayout

_CAMERA, _REGISTERS, _PATCHES = "camera", "registers", "patches"


class FlashInferKVCacheManager:
    """Paged keys and values of all blocks, under the names and defaults of the published class.

    It differs where that one was at fault: padding takes no attention, keys and values are stored in the dtype asked
    for (`force_fp32`: float32), the retention options of `evict_frames` are followed, `reset` clears every flag, and an
    exhausted pool is a `MemoryFullError`. Without FlashInfer, CUDA or half precision torch's own kernels attend.
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
        if num_blocks < 1:
            raise SettingError(f"Expected at least 1 block, but got {num_blocks}.")
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
        self._sizes = PageSizes(
            patches=patches,
            specials=num_special_tokens,
            rule=ContextRetention(anchors=scale_frames, window=sliding_window, trail=num_special_tokens, history=None),
            max_total_frames=max_total_frames,
            padded=fa3,
        )
        self.page_size = self._sizes.page_size
        self.max_patch_pages = self._sizes.num_patch_pages
        self.max_num_pages = self._sizes.num_pages
        self._tokens = _tokens_of_streams(num_special_tokens, tokens_per_frame)
        self._backend = published_backend(use_sdpa=False, fa3=fa3)
        plans = self._plans()
        require_room(num_blocks * sum(plan.num_bytes for plan in plans.values()), self.device)
        self._memories = [Memory(plans, self.device) for _ in range(num_blocks)]
        self.reset()

    @property
    def kv_caches(self) -> list[Tensor]:
        """A tensor a block: `[pages, key or value, slots of a page, heads, head_dim]`, zero where nothing is visible.

        A copy, made anew each time: the memory keeps tokens in an order of its own.
        """
        return [self._laid_out(block_idx) for block_idx in range(self.num_blocks)]

    @property
    def num_frames(self) -> int:
        """Frames stored in block 0, evicted ones included."""
        return len(self._books[0].frames)

    @property
    def frame_count(self) -> list[int]:
        """Frames stored in each block, evicted ones included."""
        return [len(book.frames) for book in self._books]

    def append_frame(self, block_idx: int, k: Tensor, v: Tensor) -> None:
        """Store a frame's keys and values, `[tokens, heads, head_dim]`, special tokens first."""
        expected = (self.tokens_per_frame, self.num_heads, self.head_dim)
        if tuple(k.shape) != expected or tuple(v.shape) != expected:
            raise InputError(
                f"Expected keys and values of shape {expected}, but got {tuple(k.shape)} and {tuple(v.shape)}; a cache "
                "serves one image size."
            )
        book, memory = self._at(block_idx), self._memories[block_idx]
        with memory.begin(1, Keep.YES) as clip:
            for stream, tokens in self._tokens.items():
                clip.write(stream, 0, k[tokens], v[tokens])
            self._move(block_idx, book.append(memory.num_kept))
            clip.commit()

    def evict_frames(
        self,
        block_idx: int,
        scale_frames: int,
        sliding_window: int,
        cross_frame_special: bool = True,
        include_scale_frames: bool = True,
        camera_only: bool = False,
        num_register_tokens: int = 4,  # noqa: ARG002 (num_special_tokens counts them already)
    ) -> None:
        """Forget the patches of frames that left the window, unless eviction is deferred."""
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
        num_register_tokens: int = 4,  # noqa: ARG002 (num_special_tokens counts them already)
    ) -> None:
        """Evict now, deferred or not."""
        trail_tokens = min(1, self.num_special_tokens) if camera_only else self.num_special_tokens
        rule = ContextRetention(
            anchors=scale_frames if include_scale_frames else 0,
            window=sliding_window,
            trail=trail_tokens if cross_frame_special else 0,
            history=None,
        )
        before = self._at(block_idx)
        after = before.under(rule).evict()
        if after != before:
            self._move(block_idx, after)
            leaving = set(before.whole_frames) - set(after.whole_frames)
            self._forget(block_idx, leaving, from_token=rule.trail_tokens)

    def rollback_last_frame(self, block_idx: int) -> None:
        """Undo the newest append, which no eviction may have followed."""
        before = self._at(block_idx)
        self._move(block_idx, before.rollback())
        self._forget(block_idx, {before.frames[-1]}, from_token=0)

    def compute_attention(self, block_idx: int, q: Tensor) -> Tensor:
        """Attention of queries `[tokens, heads, head_dim]` over all that is visible in a block; zeros over nothing."""
        if not self._at(block_idx).frames:
            return torch.zeros_like(q)
        asked = q.to(self.dtype).unsqueeze(0)
        with self._memories[block_idx].begin(1, Keep.NO) as clip:
            seen = [part for stream in self._tokens for part in clip.read(stream, 0)]
            attended = merge([self._backend.attend(asked, k.unsqueeze(0), v.unsqueeze(0)) for k, v in seen])
        return attended.values.squeeze(0).to(q.dtype)

    def build_visible_page_table(self, block_idx: int) -> list[int]:
        """Pages in the order they are read: scale, window, special."""
        return list(self._at(block_idx).table)

    def compute_last_page_len(self, block_idx: int) -> int:
        """Slots in use of the last page of the table."""
        return self._at(block_idx).last_page_len

    def get_cache_stats(self, block_idx: int = 0) -> dict[str, int]:
        """How full a block is: frames ever stored, patch pages by use, special tokens."""
        book = self._at(block_idx)
        return {
            "frame_count": len(book.frames),
            "scale_pages": len(book.scale),
            "live_pages": len(book.live),
            "free_pages": len(book.free_patch),
            "special_tokens": book.num_special_tokens,
        }

    def reset(self) -> None:
        """Forget everything, deferral included."""
        for memory in self._memories:
            memory.clear()
        self._books: list[PageBook] = [self._sizes.empty()] * self.num_blocks
        self._ahead: list[deque[PageBook]] = [deque() for _ in range(self.num_blocks)]
        # Set from outside by the published model, around a frame whose keeping is judged later.
        self._defer_eviction = False

    def _plans(self) -> dict[str, StreamPlan]:
        """Room for all that the pages hold; one frame more is staged while a frame is written, or attention reads."""
        most_frames = self._sizes.num_special_slots // max(self.num_special_tokens, 1)
        plans = {}
        for stream, tokens in self._tokens.items():
            layout = StreamLayout(
                num_layers=1,
                num_heads=self.num_heads,
                head_dim=self.head_dim,
                tokens_per_frame=tokens.stop - tokens.start,
                dtype=self.dtype,
                causal=True,
            )
            num_frames = 1 + (self.max_patch_pages if stream == _PATCHES else most_frames)
            num_slots = num_frames * layout.tokens_per_frame
            plans[stream] = StreamPlan(layout=layout, policy=KeepAll(), num_slots=num_slots)
        return plans

    def _forget(self, block_idx: int, frames: set[int], *, from_token: int) -> None:
        """Forget of these frames all tokens from this one on."""
        for stream, tokens in self._tokens.items():
            if frames and tokens.start >= from_token:
                self._memories[block_idx].forget(stream, np.array(sorted(frames)))

    def _laid_out(self, block_idx: int) -> Tensor:
        """What a block remembers, in the published pages."""
        book, memory = self._books[block_idx], self._memories[block_idx]
        shape = (self.max_num_pages, 2, self.page_size, self.num_heads, self.head_dim)
        pages = torch.zeros(shape, dtype=self.dtype, device=self.device)
        with memory.begin(1, Keep.NO) as clip:
            for stream, tokens in self._tokens.items():
                remembered = memory.tokens(stream)
                if stream == _PATCHES:
                    page, slot = book.patch_places(remembered.frame, remembered.index)
                else:
                    page, slot = book.special_places(remembered.frame, tokens.start + remembered.index)
                for k, v in clip.read(stream, 0):
                    pages[page, 0, slot], pages[page, 1, slot] = k, v
        return pages

    def _at(self, block_idx: int) -> PageBook:
        if not 0 <= block_idx < self.num_blocks:
            raise InputError(f"There are {self.num_blocks} blocks, from 0; there is no block {block_idx}.")
        return self._books[block_idx]

    def _move(self, block_idx: int, after: PageBook) -> None:
        """Block 0 goes ahead; any other block makes the moves that block 0 made, in the same order."""
        if block_idx == 0:
            for ahead in self._ahead[1:]:
                ahead.append(after)
        elif not self._ahead[block_idx] or self._ahead[block_idx][0] != after:
            raise TransactionError(
                f"Block {block_idx} is out of step: it would hold {len(after.frames)} frames, {len(after.resident)} of "
                f"them whole, where block 0 {self._what_block_0_did(block_idx)}; append, evict and roll back block 0 "
                "first, then every other block alike."
            )
        else:
            after = self._ahead[block_idx].popleft()
        self._books[block_idx] = after

    def _what_block_0_did(self, block_idx: int) -> str:
        if not self._ahead[block_idx]:
            return "has not moved on"
        there = self._ahead[block_idx][0]
        return f"went on to {len(there.frames)}, {len(there.resident)} of them whole"


def _tokens_of_streams(num_special_tokens: int, tokens_per_frame: int) -> Mapping[str, slice]:
    """Which tokens of a frame each stream holds; a stream without any is left out."""
    first_register = min(1, num_special_tokens)
    streams = {
        _CAMERA: slice(0, first_register),
        _REGISTERS: slice(first_register, num_special_tokens),
        _PATCHES: slice(num_special_tokens, tokens_per_frame),
    }
    return {stream: tokens for stream, tokens in streams.items() if tokens.start < tokens.stop}
