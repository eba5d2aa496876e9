"""Page numbers on paper: recorded traces of the published manager, its sizes, and any order of operations."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.compat.flashinfer_pages import PageBook, PageSizes
from longtake.errors import MemoryFullError, RecallError, SettingError, TransactionError
from longtake.memory.policies.lockstep import ContextRetention
from longtake.memory.tokens import StreamLayout

TRACES = json.loads(gzip.decompress((Path(__file__).parent.parent / "golden/gct/traces.json.gz").read_bytes()))
RULE = ContextRetention(anchors=2, window=3, trail=6, history=None)


def make_sizes(**changes: Any) -> PageSizes:
    return PageSizes(**{"patches": 15, "specials": 6, "rule": RULE, "max_total_frames": 64, **changes})


def sizes_of(trace: dict[str, Any]) -> PageSizes:
    params = trace["params"]
    rule = ContextRetention(
        anchors=params["scale_frames"], window=params["sliding_window"], trail=params["num_special"], history=None
    )
    return make_sizes(
        patches=params["patches_per_frame"],
        specials=params["num_special"],
        rule=rule,
        max_total_frames=params["max_total_frames"],
        padded=params["fa3"],
    )


class Scribe:
    """Plays operations on a book, frames numbered by how many were appended before."""

    def __init__(self, sizes: PageSizes) -> None:
        self.book = sizes.empty()
        self.deferring = False
        self.num_appends = 0

    def play(self, operation: str) -> None:
        match operation:
            case "append":
                self.book = self.book.append(self.num_appends)
                self.num_appends += 1
            case "evict":
                self.book = self.book if self.deferring else self.book.evict()
            case "run_deferred":
                self.book = self.book.evict()
            case "rollback":
                self.book = self.book.rollback()
            case "defer_on" | "defer_off":
                self.deferring = operation == "defer_on"
            case "reset":
                self.book, self.deferring = self.book.sizes.empty(), False


@pytest.mark.parametrize("trace", TRACES["paged_manager"], ids=lambda trace: trace["name"])
def test_every_operation_leaves_the_page_numbers_the_trace_recorded(trace: dict[str, Any]) -> None:
    sizes = sizes_of(trace)
    assert (sizes.page_size, sizes.num_patch_pages, sizes.num_pages) == (
        trace["page_size"],
        trace["patch_pool"],
        trace["total_pages"],
    )
    scribe = Scribe(sizes)
    for step in trace["steps"]:
        if "error" in step:
            before = scribe.book
            with pytest.raises(RecallError):
                scribe.play(step["op"])
            assert scribe.book == before
            continue
        scribe.play(step["op"])
        book = scribe.book
        assert len(book.frames) == step["frame_count"]
        assert list(book.scale) == step["scale_pages"]
        assert list(book.live) == step["live_pages"]
        assert list(book.special) == step["special_pages"]
        assert book.num_special_tokens == step["special_tokens"]
        assert (len(book.free_patch), len(book.free_special)) == (step["free_patch"], step["free_special"])
        if book.frames:
            assert book.last_page_len == step["last_page_len"]
            assert list(book.whole_frames) == step["visible_patch_frames"]
            assert list(book.frames) == step["special_frames"]


@pytest.mark.parametrize("size", TRACES["production_pool_sizes"], ids=lambda size: str(size["patches"]))
def test_pools_have_the_published_sizes(size: dict[str, Any]) -> None:
    rule = ContextRetention(anchors=8, window=64, trail=6, history=None)
    sizes = make_sizes(patches=size["patches"], rule=rule, max_total_frames=1124)
    assert (sizes.num_patch_pages, sizes.num_special_pages) == (size["patch_pages"], size["special_pages"])
    layout = StreamLayout(
        num_layers=24,
        num_heads=16,
        head_dim=64,
        tokens_per_frame=size["tokens_per_frame"],
        dtype=torch.bfloat16,
    )
    assert sizes.num_pages * sizes.page_size * layout.bytes_per_slot == size["bytes_total_24_blocks_bf16"]


def test_a_hundred_frames_fill_the_published_pages() -> None:
    rule = ContextRetention(anchors=8, window=64, trail=6, history=None)
    book = make_sizes(patches=256, rule=rule, max_total_frames=200).empty()
    for frame in range(100):
        book = book.append(frame).evict()
    assert (len(book.scale), len(book.live), len(book.special)) == (8, 64, 3)
    assert (book.num_special_tokens, book.last_page_len) == (600, 88)
    assert len(book.table) == 75


def test_full_patch_pool_says_so_and_what_to_raise() -> None:
    book = make_sizes().empty()
    for frame in range(21):
        book = book.append(frame)
    with pytest.raises(MemoryFullError, match=r"All 21 patch pages .* raise the window or the scale frames"):
        book.append(21)
    assert len(book.evict().append(21).frames) == 22


def test_full_special_pool_says_so_and_what_to_raise() -> None:
    book = make_sizes(max_total_frames=5).empty()
    for frame in range(45):
        book = book.append(frame).evict()
    with pytest.raises(MemoryFullError, match=r"All 18 special pages .* raise max_total_frames, now 5"):
        book.append(45)


def test_frame_cannot_be_rolled_back_once_another_left_for_it() -> None:
    book = make_sizes().empty()
    for frame in range(6):
        book = book.append(frame)
    assert len(book.rollback().frames) == 5
    with pytest.raises(TransactionError, match="followed by an eviction"):
        book.evict().rollback()
    assert book.evict().append(6).rollback() == book.evict()


def test_eviction_that_removes_nothing_leaves_rollback_open() -> None:
    book = make_sizes().empty().append(0).evict()
    assert book.rollback() == make_sizes().empty()
    with pytest.raises(TransactionError, match="no frame"):
        book.rollback().rollback()


@pytest.mark.parametrize("changes", [{"patches": 0}, {"specials": -1}, {"max_total_frames": 0}], ids=str)
def test_sizes_that_make_no_pages_are_refused(changes: dict[str, int]) -> None:
    with pytest.raises(SettingError, match="at least 1 patch"):
        make_sizes(**changes)


def test_rule_changes_only_before_the_first_eviction() -> None:
    book = make_sizes().empty().append(0)
    oldest_first = replace(RULE, anchors=0)
    assert book.under(oldest_first).scale == ()
    for frame in range(1, 6):
        book = book.append(frame).evict()
    assert book.under(RULE) is book
    with pytest.raises(SettingError, match="go on with it, or reset"):
        book.under(oldest_first)


operations = st.lists(
    st.sampled_from(
        ["append", "append", "append", "evict", "run_deferred", "rollback", "defer_on", "defer_off", "reset"]
    ),
    max_size=60,
)
sizes = st.builds(
    lambda patches, specials, anchors, window, padded, max_total_frames: PageSizes(
        patches=patches,
        specials=specials,
        rule=ContextRetention(anchors=anchors, window=window, trail=specials, history=None),
        max_total_frames=max_total_frames,
        padded=padded,
    ),
    st.integers(1, 9),
    st.integers(0, 4),
    st.integers(0, 3),
    st.integers(1, 3),
    st.booleans(),
    st.integers(1, 30),
)


@settings(max_examples=150, deadline=None)
@given(sizes, operations)
def test_any_order_of_operations_keeps_every_page_owned_once(sizes: PageSizes, played: list[str]) -> None:
    scribe = Scribe(sizes)
    stored: list[int] = []
    for operation in played:
        before = scribe.book
        try:
            scribe.play(operation)
        except RecallError:
            assert scribe.book == before
            continue
        if operation == "append":
            stored.append(scribe.num_appends - 1)
        elif operation == "rollback":
            stored.pop()
        elif operation == "reset":
            stored.clear()
        book = scribe.book
        owned = book.table + book.free_patch + book.free_special
        assert sorted(owned) == list(range(sizes.num_pages))
        assert all(page < sizes.num_patch_pages for page in book.resident + book.free_patch)
        assert list(book.frames) == stored
        num_anchors = min(sizes.rule.anchors, len(stored))
        num_live = len(book.resident) - num_anchors
        assert list(book.whole_frames) == stored[:num_anchors] + stored[len(stored) - num_live :]


@settings(max_examples=100, deadline=None)
@given(sizes, st.integers(1, 12))
def test_places_of_all_tokens_are_the_table_read_from_start_to_end(sizes: PageSizes, num_frames: int) -> None:
    book = sizes.empty()
    try:
        for frame in range(num_frames):
            book = book.append(frame).evict()
    except MemoryFullError:
        return
    whole, stored = np.array(book.whole_frames), np.array(book.frames)
    patches = book.patch_places(np.repeat(whole, sizes.patches), np.tile(np.arange(sizes.patches), len(whole)))
    specials = book.special_places(np.repeat(stored, sizes.specials), np.tile(np.arange(sizes.specials), len(stored)))
    places = [page * sizes.page_size + slot for page, slot in (patches, specials)]
    in_table = np.concatenate([np.arange(sizes.page_size) + page * sizes.page_size for page in book.table])
    in_table = in_table[: len(in_table) - sizes.page_size + book.last_page_len]
    assert set(np.concatenate(places)) <= set(in_table)
    if sizes.page_size == sizes.patches:
        assert in_table.tolist() == np.concatenate(places).tolist()


@pytest.mark.parametrize("operate", [lambda book: book.append(7), PageBook.evict, PageBook.rollback])
def test_operations_leave_the_book_they_start_from_as_it_was(operate: Callable[[PageBook], PageBook]) -> None:
    book = make_sizes().empty()
    for frame in range(7):
        book = book.append(frame)
    copy = replace(book)
    operate(book)
    assert book == copy
