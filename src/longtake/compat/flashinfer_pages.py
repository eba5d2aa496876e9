"""The published manager's page numbers: which page holds which token, without any tensor.

A frame's patches take a page of their own, free again when the frame is evicted; special tokens of all stored frames
lie packed in one row, where they outlive their frame. The page freed last is taken first:

    pages  0 … patch pages − 1                    patch pages …
           │ free │ … │ frame 1 │ frame 0 │       │ free │ … │ specials of 3 4 5 … │ specials of 0 1 2 3 … │
           padded where a page is larger           one after another, across page borders
           than a frame's patches

A book is a value: every operation returns the next one, and the book before it stays as it was.
"""

from dataclasses import dataclass, replace

import numpy as np

from longtake.errors import MemoryFullError, SettingError, TransactionError
from longtake.memory.policies.lockstep import ContextRetention
from longtake.memory.tokens import Integers

_SPARE = 16
"""Patch pages, and special pages, beyond what the rule needs: for frames not evicted yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSizes:
    """All that decides the pages of a cache before its first frame."""

    patches: int
    specials: int
    rule: ContextRetention
    max_total_frames: int
    """How many frames may ever be stored: special pages are never given back."""
    padded: bool = False
    """Whether the slots of a page are a power of two, instead of exactly as many as a frame has patches."""

    def __post_init__(self) -> None:
        if self.patches < 1 or self.specials < 0 or self.max_total_frames < 1:
            raise SettingError(
                "Expected at least 1 patch and 1 frame, and no negative number of special tokens, but got "
                f"{self.patches}, {self.max_total_frames} and {self.specials}."
            )

    @property
    def page_size(self) -> int:
        return 1 << (self.patches - 1).bit_length() if self.padded else self.patches

    @property
    def num_patch_pages(self) -> int:
        return self.rule.anchors + self.rule.window + _SPARE

    @property
    def num_special_pages(self) -> int:
        return self.special_pages_of(self.max_total_frames) + _SPARE

    @property
    def num_pages(self) -> int:
        return self.num_patch_pages + self.num_special_pages

    @property
    def num_special_slots(self) -> int:
        return self.num_special_pages * self.page_size

    def special_pages_of(self, num_frames: int) -> int:
        """How many pages the special tokens of so many frames fill."""
        return -(-num_frames * self.specials // self.page_size)

    def empty(self) -> "PageBook":
        """The book before the first frame."""
        patch, every = range(self.num_patch_pages), range(self.num_pages)
        return PageBook(self, self.rule, free_patch=tuple(patch), free_special=tuple(every[len(patch) :]))


@dataclass(frozen=True, slots=True)
class PageBook:
    """The pages of one block after some operations."""

    sizes: PageSizes
    rule: ContextRetention
    free_patch: tuple[int, ...]
    """A stack, as is the next: the last page is taken first."""
    free_special: tuple[int, ...]
    resident: tuple[int, ...] = ()
    """The patch page of each frame that is there whole: anchors, then the live window, oldest first."""
    special: tuple[int, ...] = ()
    frames: tuple[int, ...] = ()
    """The number under which the memory knows each stored frame, evicted ones included, in ascending order."""
    num_retained: int = 0
    """Frames that were there at the last eviction, which a rollback cannot reach."""

    @property
    def scale(self) -> tuple[int, ...]:
        """Patch pages of the anchors."""
        return self.resident[: self.rule.anchors]

    @property
    def live(self) -> tuple[int, ...]:
        """Patch pages of the window."""
        return self.resident[self.rule.anchors :]

    @property
    def whole_frames(self) -> tuple[int, ...]:
        """The frame of each resident page."""
        return self.frames[: len(self.scale)] + self.frames[len(self.frames) - len(self.live) :]

    @property
    def num_special_tokens(self) -> int:
        return len(self.frames) * self.sizes.specials

    @property
    def table(self) -> tuple[int, ...]:
        """All pages in use, in the order they are read: scale, live, special."""
        return self.resident + self.special

    @property
    def last_page_len(self) -> int:
        """Slots in use of the last page of the table."""
        in_last_row = self.num_special_tokens if self.special else self.sizes.patches
        return (in_last_row - 1) % self.sizes.page_size + 1

    def append(self, frame: int) -> "PageBook":
        """With one more frame, which nothing is evicted for."""
        sizes, num_frames = self.sizes, len(self.frames)
        needed = sizes.special_pages_of(num_frames + 1) - len(self.special)
        if not self.free_patch:
            raise MemoryFullError(
                f"All {sizes.num_patch_pages} patch pages are taken ({len(self.scale)} scale and {len(self.live)} live "
                "frames); evict or roll back before the next frame, or raise the window or the scale frames."
            )
        if len(self.free_special) < needed:
            raise MemoryFullError(
                f"All {sizes.num_special_pages} special pages are taken by {num_frames} frames; raise "
                f"max_total_frames, now {sizes.max_total_frames}."
            )
        still_free = len(self.free_special) - needed
        return replace(
            self,
            free_patch=self.free_patch[:-1],
            free_special=self.free_special[:still_free],
            resident=(*self.resident, self.free_patch[-1]),
            special=self.special + self.free_special[still_free:][::-1],
            frames=(*self.frames, frame),
        )

    def evict(self) -> "PageBook":
        """Without the patches of frames that left the window."""
        num_leaving = len(self.live) - self.rule.window
        if num_leaving <= 0:
            return self
        return replace(
            self,
            free_patch=self.free_patch + self.live[:num_leaving],
            resident=self.scale + self.live[num_leaving:],
            num_retained=len(self.frames),
        )

    def rollback(self) -> "PageBook":
        """Without the newest frame, as if it had never been stored."""
        if not self.frames:
            raise TransactionError("There is no frame to roll back; nothing is stored.")
        if len(self.frames) == self.num_retained:
            raise TransactionError("The newest frame was followed by an eviction; roll a frame back before evicting.")
        still_special = self.sizes.special_pages_of(len(self.frames) - 1)
        return replace(
            self,
            free_patch=(*self.free_patch, self.resident[-1]),
            free_special=self.free_special + self.special[still_special:][::-1],
            resident=self.resident[:-1],
            special=self.special[:still_special],
            frames=self.frames[:-1],
        )

    def under(self, rule: ContextRetention) -> "PageBook":
        """The same frames under another rule, which has to come before the first eviction."""
        if rule == self.rule:
            return self
        if len(self.resident) < len(self.frames):
            raise SettingError(
                f"Frames were evicted under {self.rule}; go on with it, or reset before evicting under {rule}."
            )
        return replace(self, rule=rule)

    def special_places(self, frame: Integers, index: Integers) -> tuple[Integers, Integers]:
        """Page and slot in it of special tokens, `index` counted from the first of their frame."""
        position = np.searchsorted(self.frames, frame) * self.sizes.specials + index
        page, slot = np.divmod(position, self.sizes.page_size)
        return np.array(self.special, dtype=np.int64)[page], slot

    def patch_places(self, frame: Integers, index: Integers) -> tuple[Integers, Integers]:
        """Page and slot in it of patches, `index` counted from the first of their frame."""
        return np.array(self.resident, dtype=np.int64)[np.searchsorted(self.whole_frames, frame)], index
