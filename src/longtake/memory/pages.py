"""The books of a paged cache: which page holds which tokens, without any tensor.

A frame's tokens are its special tokens, then its patches. Patches take pages of their own, free again when the frame is
evicted; special tokens of all stored frames lie packed in one row, where they outlive their frame:

    pages  0 … patch pages − 1                    patch pages …
           │ frame 5 │ frame 0 │ free │ …         │ specials of 0 1 2 3 … │ 3 4 5 … │ free │
           padded where pages are not as           one after another, across page borders
           large as a frame has patches

A book is a value: every operation returns the next one, and a clip that is not kept is the book from before it. One
book serves all layers, so they cannot fall out of step.
"""

from dataclasses import dataclass, replace

import numpy as np

from longtake.errors import MemoryFullError, SettingError, TransactionError
from longtake.memory.policies.context import ContextRetention
from longtake.memory.tokens import Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePlan:
    """All that decides the pages of a cache before its first frame."""

    patches: int
    specials: int
    retention: ContextRetention
    max_total_frames: int
    """How many frames may ever be stored: special pages are never given back."""
    page_size: int | None = None
    """Slots of a page; None makes a page exactly as large as a frame has patches."""
    spare: int = 16
    """Frames of patch pages, and special pages, beyond what the policy needs: frames not evicted yet."""

    def __post_init__(self) -> None:
        sizes = (self.patches, self.max_total_frames, self.slots_per_page, self.spare)
        if min(sizes) < 1 or self.specials < 0:
            raise SettingError(
                "Expected at least 1 patch, frame, slot of a page and spare, and no negative number of special tokens, "
                f"but got {self.patches}, {self.max_total_frames}, {self.slots_per_page}, {self.spare} and "
                f"{self.specials}."
            )
        require_pageable(self.retention, self.specials)

    @property
    def tokens_per_frame(self) -> int:
        return self.specials + self.patches

    @property
    def slots_per_page(self) -> int:
        return self.patches if self.page_size is None else self.page_size

    @property
    def pages_per_frame(self) -> int:
        """Patch pages of one frame."""
        return -(-self.patches // self.slots_per_page)

    @property
    def num_patch_pages(self) -> int:
        return (self.retention.anchors + self.retention.window + self.spare) * self.pages_per_frame

    @property
    def num_special_pages(self) -> int:
        return -(-self.max_total_frames * self.specials // self.slots_per_page) + self.spare

    @property
    def num_pages(self) -> int:
        return self.num_patch_pages + self.num_special_pages

    @property
    def num_slots(self) -> int:
        """Slots of all pages, padding included."""
        return self.num_pages * self.slots_per_page

    def empty(self) -> "Pages":
        """The book before the first frame."""
        return Pages(self, self.retention)


@dataclass(frozen=True, slots=True)
class Pages:
    """What is stored where. A slot is a page's number times the slots of a page, plus the place in it."""

    plan: PagePlan
    retention: ContextRetention
    resident: tuple[tuple[int, ...], ...] = ()
    """Patch pages of each frame that is there whole: anchors, then the live window, oldest first."""
    special: tuple[int, ...] = ()
    num_frames: int = 0
    """Frames stored so far, evicted ones included."""
    num_retained: int = 0
    """Frames that were there at the last eviction, which a rollback cannot reach."""

    @property
    def scale(self) -> tuple[tuple[int, ...], ...]:
        """Patch pages of the anchors."""
        return self.resident[: self.retention.anchors]

    @property
    def live(self) -> tuple[tuple[int, ...], ...]:
        """Patch pages of the window."""
        return self.resident[self.retention.anchors :]

    @property
    def num_special_tokens(self) -> int:
        return self.num_frames * self.plan.specials

    @property
    def free_patch_pages(self) -> int:
        return self.plan.num_patch_pages - len(self.resident) * self.plan.pages_per_frame

    @property
    def free_special_pages(self) -> int:
        return self.plan.num_special_pages - len(self.special)

    def append(self) -> "Pages":
        """With room for one more frame, which nothing is evicted for."""
        plan = self.plan
        needed = -(-(self.num_special_tokens + plan.specials) // plan.slots_per_page) - len(self.special)
        if self.free_patch_pages < plan.pages_per_frame:
            raise MemoryFullError(
                f"All {plan.num_patch_pages} patch pages are taken ({len(self.scale)} scale and {len(self.live)} live "
                "frames); evict or roll back before the next frame, or raise the window, the scale frames or the spare."
            )
        if self.free_special_pages < needed:
            raise MemoryFullError(
                f"All {plan.num_special_pages} special pages are taken by {self.num_frames} frames; raise "
                f"max_total_frames, now {plan.max_total_frames}."
            )
        patch = _lowest_free(0, plan.num_patch_pages, [page for pages in self.resident for page in pages])
        special = _lowest_free(plan.num_patch_pages, plan.num_special_pages, self.special)
        return replace(
            self,
            resident=(*self.resident, patch[: plan.pages_per_frame]),
            special=self.special + special[:needed],
            num_frames=self.num_frames + 1,
        )

    def evict(self, coming: int = 0) -> "Pages":
        """Without the whole frames that leave the window, as if `coming` more frames had been stored."""
        num_staying = max(0, self.retention.window - coming)
        num_leaving = len(self.live) - num_staying
        if num_leaving <= 0:
            return self
        return replace(self, resident=self.scale + self.live[num_leaving:], num_retained=self.num_frames)

    def rollback(self) -> "Pages":
        """Without the newest frame, as if it had never been stored."""
        if not self.num_frames:
            raise TransactionError("There is no frame to roll back; nothing is stored.")
        if self.num_frames == self.num_retained:
            raise TransactionError("The newest frame was followed by an eviction; roll a frame back before evicting.")
        num_tokens = self.num_special_tokens - self.plan.specials
        return replace(
            self,
            resident=self.resident[:-1],
            special=self.special[: -(-num_tokens // self.plan.slots_per_page)],
            num_frames=self.num_frames - 1,
        )

    def under(self, retention: ContextRetention) -> "Pages":
        """The same frames under another rule, which has to come before the first eviction."""
        if retention == self.retention:
            return self
        require_pageable(retention, self.plan.specials)
        if len(self.resident) < self.num_frames:
            raise SettingError(
                f"Frames were evicted under {self.retention}; go on with it, or reset before evicting under "
                f"{retention}."
            )
        return replace(self, retention=retention)

    @property
    def table(self) -> tuple[int, ...]:
        """All pages in use, in the order they are read: scale, live, special."""
        return (*(page for pages in self.resident for page in pages), *self.special)

    @property
    def last_page_len(self) -> int:
        """Slots in use of the last page of the table."""
        size = self.plan.slots_per_page
        in_last_row = self.num_special_tokens if self.special else self.plan.patches
        return (in_last_row - 1) % size + 1

    @property
    def is_packed(self) -> bool:
        """Whether the table and its last page's length say it all: no padding, and nothing hidden in between."""
        nothing_hidden = self.retention.trail_tokens == self.plan.specials or len(self.resident) == self.num_frames
        return self.plan.patches % self.plan.slots_per_page == 0 and nothing_hidden

    @property
    def shows_anything(self) -> bool:
        """Whether any token is visible; a rule without anchors and trail may hide all that was stored."""
        return bool(self.resident) or (self.num_frames > 0 and self.retention.trail_tokens > 0)

    def visible(self) -> Integers:
        """Slots of all that attention may read, in the table's order; padding is not among them."""
        num_specials = np.full(self.num_frames, self.retention.trail_tokens)
        num_specials[: len(self.scale)] = self.plan.specials
        num_specials[self.num_frames - len(self.live) :] = self.plan.specials
        seen = np.arange(self.plan.specials) < num_specials[:, None]
        return np.concatenate((self._patch_slots(self.resident), self._special_slots(np.flatnonzero(seen))))

    def newest(self) -> Integers:
        """Slots of the newest frame, in the order of its tokens: special tokens, then patches."""
        specials = np.arange(self.num_special_tokens - self.plan.specials, self.num_special_tokens)
        return np.concatenate((self._special_slots(specials), self._patch_slots(self.resident[-1:])))

    def _patch_slots(self, frames: tuple[tuple[int, ...], ...]) -> Integers:
        page, place = np.divmod(np.arange(self.plan.patches), self.plan.slots_per_page)
        pages = np.array(frames, dtype=np.int64).reshape(len(frames), self.plan.pages_per_frame)
        return (pages[:, page] * self.plan.slots_per_page + place).reshape(-1)

    def _special_slots(self, position: Integers) -> Integers:
        page, place = np.divmod(position, self.plan.slots_per_page)
        return np.array(self.special, dtype=np.int64)[page] * self.plan.slots_per_page + place


def require_pageable(retention: ContextRetention, specials: int) -> None:
    """Refuse a rule that pages cannot follow."""
    if retention.trail_tokens > specials:
        raise SettingError(
            f"A frame that left the window keeps special tokens alone, of which there are {specials}, but the policy "
            f"asks for {retention.trail_tokens}."
        )
    if retention.history is not None:
        raise SettingError(
            "Special pages are never given back, so a bounded history would save nothing; leave history out and bound "
            "the sequence by max_total_frames."
        )


def padded_page_size(patches: int) -> int:
    """The smallest power of two that holds a frame's patches."""
    return 1 << (patches - 1).bit_length()


def _lowest_free(first: int, count: int, taken: "list[int] | tuple[int, ...]") -> tuple[int, ...]:
    """Free pages of a pool; which ones depends on what is taken alone, not on the past."""
    is_free = np.ones(count, dtype=np.bool_)
    is_free[np.array(taken, dtype=np.int64) - first] = False
    return tuple((np.flatnonzero(is_free) + first).tolist())
