"""Keys and values in pages, and a model's recall over them.

A layer's storage is one tensor, `[pages, key or value, slots of a page, heads, head_dim]`. Seen as a list of rows, a
slot's key and value lie one page apart:

    page 0 keys │ page 0 values │ page 1 keys │ page 1 values │ …

so the same row numbers read keys from the list and values from the list without its first page. A kernel is given whole
pages where those hold nothing but visible tokens, and single rows elsewhere; both are read in place. Without a kernel
the visible rows are gathered and attended to like any block.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from types import TracebackType
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from longtake.attention.backend import Attended, Backend, Keys, Queries, merge
from longtake.attention.recall import StreamRecall
from longtake.attention.sdpa import SdpaBackend
from longtake.errors import SettingError, TransactionError
from longtake.memory.budget import require_room
from longtake.memory.layout import StreamLayout
from longtake.memory.pages import PagePlan, Pages
from longtake.memory.policy import Keep
from longtake.memory.tokens import Integers

Rows = Float[Tensor, "tokens heads head_dim"]
PagesOfLayer = Float[Tensor, "pages page_size heads head_dim"]


@dataclass(frozen=True, slots=True)
class PageReading:
    """Pages in the order they are read; all are full but the last."""

    pages: Integers
    page_size: int
    last_page_len: int


@runtime_checkable
class PageKernel(Protocol):
    """Attends to pages in place: planned once a step, run once a layer. It holds its plan, so it serves one cache."""

    def why_unsuitable(self, layout: StreamLayout, device: torch.device) -> str | None:
        """Why this kernel cannot serve such a stream, or None where it can."""

    def plan(self, reading: PageReading, layout: StreamLayout, num_queries: int) -> None: ...

    def run(self, q: Queries, keys: PagesOfLayer, values: PagesOfLayer) -> Attended: ...


class PagedCache:
    """The pages of one stream: one book for all layers, and a tensor a layer, in the layout's dtype."""

    def __init__(
        self,
        layout: StreamLayout,
        plan: PagePlan,
        *,
        device: torch.device | str = "cpu",
        backend: Backend | None = None,
        kernel: PageKernel | None = None,
    ) -> None:
        if layout.tokens_per_frame != plan.tokens_per_frame:
            raise SettingError(
                f"The layout has {layout.tokens_per_frame} tokens in a frame, but the plan has {plan.specials} special "
                f"tokens and {plan.patches} patches; make them agree."
            )
        device = torch.device(device)
        require_room(plan.num_slots * layout.bytes_per_slot, device)
        shape = (plan.num_pages, 2, plan.slots_per_page, layout.num_heads, layout.head_dim)
        self.layout = layout
        self.plan = plan
        self.device = device
        self.backend = backend or SdpaBackend()
        self.storage = [torch.zeros(shape, dtype=layout.dtype, device=device) for _ in range(layout.num_layers)]
        self.gathers_because = "no kernel was chosen" if kernel is None else kernel.why_unsuitable(layout, device)
        """Why attention copies what it reads, or None where a kernel reads pages in place."""
        self._kernel = kernel if self.gathers_because is None else None
        self._planned: tuple[Pages, int] | None = None
        self._visible_rows = lru_cache(maxsize=2)(partial(_visible_rows, device))
        self._newest_rows = lru_cache(maxsize=32)(partial(_newest_rows, device))
        self._pages = plan.empty()
        self._open: PagedStep | None = None

    @property
    def pages(self) -> Pages:
        """The book as the last commit left it."""
        return self._pages

    @property
    def num_bytes(self) -> int:
        """Bytes of all keys and values: allocated once, never more."""
        return sum(tensor.nbytes for tensor in self.storage)

    def begin(self, num_frames: int, keep: Keep) -> "PagedStep":
        """Stage a clip of so many frames; leaving it without a commit leaves no trace."""
        if self._open is not None:
            raise TransactionError("These pages have a clip staged already; commit or leave it before the next begins.")
        self._open = PagedStep(self, num_frames, keep, end=self._end)
        return self._open

    def reset(self) -> None:
        """Forget everything, a staged clip included, and start a new sequence."""
        if self._open is not None:
            self._open.abandon()
        self._pages = self.plan.empty()

    def write(self, layer: int, pages: Pages, k: Rows, v: Rows) -> None:
        """Store keys and values of the newest frame of this book."""
        rows = self._newest_rows(pages)
        keys, values = self._lists(layer)
        keys.index_copy_(0, rows, k.to(self.device, self.layout.dtype))
        values.index_copy_(0, rows, v.to(self.device, self.layout.dtype))

    def attend(self, layer: int, pages: Pages, q: Queries) -> Attended:
        """Attend to all that is visible in this book."""
        q = q.to(self.layout.dtype)
        if self._kernel is not None:
            return self._attend_in_place(self._kernel, layer, pages, q)
        rows = self._visible_rows(pages)
        k, v = (part.index_select(0, rows).unsqueeze(0) for part in self._lists(layer))
        return self.backend.attend(q, k, v)

    def _attend_in_place(self, kernel: PageKernel, layer: int, pages: Pages, q: Queries) -> Attended:
        if self._planned != (pages, q.shape[1]):
            self._planned = None
            kernel.plan(reading_of(pages), self.layout, q.shape[1])
            self._planned = (pages, q.shape[1])
        if pages.is_packed:
            return kernel.run(q, *self.storage[layer].unbind(1))
        return kernel.run(q, *(part.unsqueeze(1) for part in self._lists(layer)))

    def _lists(self, layer: int) -> tuple[Rows, Rows]:
        """The layer's storage as two lists in which a slot's key and its value have the same number."""
        rows = self.storage[layer].flatten(0, 2)
        return rows[: -self.plan.slots_per_page], rows[self.plan.slots_per_page :]

    def _end(self, after: Pages) -> None:
        self._open = None
        self._pages = after


class PagedStep:
    """The life of one clip in the pages. Leaving the `with` block without `commit` leaves no trace.

    A single frame is stored first and attends to pages alone. Frames that came together attend to one another and to
    the pages apart, and are then stored one by one.
    """

    def __init__(
        self,
        cache: PagedCache,
        num_frames: int,
        keep: Keep,
        *,
        end: Callable[[Pages], None],
    ) -> None:
        before = cache.pages
        self.first_ordinal = before.num_frames
        self.num_frames = num_frames
        self._cache = cache
        self._keep = keep
        self._before = before
        self._end = end
        self._open = True
        self._written: set[int] = set()
        if num_frames == 1:
            appended = before.append()
            self._stored: tuple[Pages, ...] = (appended,)
            self._after = appended.evict()
            self._seen = self._after if keep is Keep.YES else appended
        else:
            self._stored, self._after = _store(before, num_frames) if keep is not Keep.NO else ((), before)
            self._seen = before.evict(coming=num_frames) if keep is Keep.YES else before

    def __enter__(self) -> "PagedStep":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abandon()

    def attend(self, layer: int, q: Queries, k: Keys, v: Keys) -> Queries:
        """Store this layer's keys and values, and attend to all that the clip may see."""
        self._require_open()
        expected = self.num_frames * self._cache.plan.tokens_per_frame
        if k.shape[1] != expected:
            raise TransactionError(
                f"The pages have {expected} tokens staged for this clip, but {k.shape[1]} came; begin the step with "
                "the number of frames the model is given."
            )
        if self.num_frames == 1:
            self._write(layer, k, v)
            parts = [self._cache.attend(layer, self._seen, q)]
        else:
            parts = self._attend_apart(layer, q, k, v)
            self._write(layer, k, v)
        self._written.add(layer)
        return merge(parts).values.to(q.dtype)

    def commit(self) -> None:
        """Keep the clip, and let go of the frames that left the window."""
        self.require_complete()
        self._open = False
        self._end(self._after)

    def abandon(self) -> None:
        """Drop the clip, unless it was committed."""
        if self._open:
            self._open = False
            self._end(self._before)

    def require_complete(self) -> None:
        """Refuse a commit that would remember half a clip."""
        self._require_open()
        if self._keep is Keep.NO:
            raise TransactionError(
                "This clip was declared as not kept; begin it as kept or judged afterwards to commit it."
            )
        missing = set(range(self._cache.layout.num_layers)) - self._written
        if missing:
            raise TransactionError(
                f"The model did not write layer {min(missing)} ({len(missing)} missing in all); nothing is kept."
            )

    def _attend_apart(self, layer: int, q: Queries, k: Keys, v: Keys) -> list[Attended]:
        stored_as = self._cache.layout.dtype
        own = self._cache.backend.attend(*(tensor.to(stored_as) for tensor in (q, k, v)))
        return [own, self._cache.attend(layer, self._seen, q)] if self._seen.shows_anything else [own]

    def _write(self, layer: int, k: Keys, v: Keys) -> None:
        tokens = self._cache.plan.tokens_per_frame
        for frame, pages in enumerate(self._stored):
            own = slice(frame * tokens, (frame + 1) * tokens)
            self._cache.write(layer, pages, k[0, own], v[0, own])

    def _require_open(self) -> None:
        if not self._open:
            raise TransactionError("This step has ended; begin a new one.")


class PagedRecall:
    """Recall with one stream in pages and the others in a memory; kept in both, or in neither."""

    def __init__(self, stream: str, step: PagedStep, others: StreamRecall) -> None:
        expected = tuple(range(step.first_ordinal, step.first_ordinal + step.num_frames))
        if others.ordinals != expected:
            raise TransactionError(
                f"The pages are at frames {expected} and the other streams at {others.ordinals}; begin both with the "
                "same number of frames, and keep or leave a clip in both."
            )
        self.stream = stream
        self.step = step
        self.others = others

    @property
    def ordinals(self) -> tuple[int, ...]:
        return self.others.ordinals

    @property
    def num_scale_frames(self) -> int:
        return self.others.num_scale_frames

    def attend(self, stream: str, layer: int, q: Queries, k: Keys, v: Keys) -> Queries:
        if stream == self.stream:
            return self.step.attend(layer, q, k, v)
        return self.others.attend(stream, layer, q, k, v)

    def commit(self) -> None:
        """Keep the clip in all streams."""
        self.step.require_complete()
        self.others.transaction.commit()
        self.step.commit()


def reading_of(pages: Pages) -> PageReading:
    """What a kernel is told to read: whole pages, or rows one by one where pages hold more than is visible."""
    if pages.is_packed:
        return PageReading(np.array(pages.table), pages.plan.slots_per_page, pages.last_page_len)
    return PageReading(_rows(pages, pages.visible()), page_size=1, last_page_len=1)


def _store(before: Pages, num_frames: int) -> tuple[tuple[Pages, ...], Pages]:
    """The books in which each frame is the newest, and the book after all of them.

    What was there before is evicted last: until the commit it must be able to come back.
    """
    stored, pages = [], before
    for _ in range(num_frames):
        pages = pages.append()
        stored.append(pages)
        if not before.num_frames:
            pages = pages.evict()
    return tuple(stored), pages.evict()


def _visible_rows(device: torch.device, pages: Pages) -> Tensor:
    return torch.from_numpy(_rows(pages, pages.visible())).to(device)


def _newest_rows(device: torch.device, pages: Pages) -> Tensor:
    return torch.from_numpy(_rows(pages, pages.newest())).to(device)


def _rows(pages: Pages, slot: Integers) -> Integers:
    """Where the keys of these slots lie among a layer's rows."""
    page, place = np.divmod(slot, pages.plan.slots_per_page)
    return 2 * pages.plan.slots_per_page * page + place
