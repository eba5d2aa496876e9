"""Pages on paper: recorded traces of the published manager, its sizes, and any order of operations."""

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

from longtake.errors import MemoryFullError, RecallError, SettingError, TransactionError
from longtake.memory.layout import StreamLayout
from longtake.memory.pages import PagePlan, Pages, padded_page_size
from longtake.memory.policies.context import ContextRetention

TRACES = json.loads(gzip.decompress((Path(__file__).parent.parent / "golden/gct/traces.json.gz").read_bytes()))
RULE = ContextRetention(anchors=2, window=3, trail=6, history=None)


def make_plan(**changes: Any) -> PagePlan:
    return PagePlan(**{"patches": 15, "specials": 6, "retention": RULE, "max_total_frames": 64, **changes})


def plan_of(trace: dict[str, Any]) -> PagePlan:
    params = trace["params"]
    patches, specials = params["patches_per_frame"], params["num_special"]
    return make_plan(
        patches=patches,
        specials=specials,
        retention=ContextRetention(
            anchors=params["scale_frames"], window=params["sliding_window"], trail=specials, history=None
        ),
        max_total_frames=params["max_total_frames"],
        page_size=padded_page_size(patches) if params["fa3"] else None,
    )


class Scribe:
    """Plays operations on a book and notes which frame was written to which slot."""

    def __init__(self, plan: PagePlan) -> None:
        self.pages = plan.empty()
        self.deferring = False
        self.num_appends = 0
        self.written: dict[int, tuple[int, int]] = {}

    def play(self, operation: str) -> None:
        match operation:
            case "append":
                self.pages = self.pages.append()
                for token, slot in enumerate(self.pages.newest().tolist()):
                    self.written[slot] = (self.num_appends, token)
                self.num_appends += 1
            case "evict":
                self.pages = self.pages if self.deferring else self.pages.evict()
            case "run_deferred":
                self.pages = self.pages.evict()
            case "rollback":
                self.pages = self.pages.rollback()
            case "defer_on" | "defer_off":
                self.deferring = operation == "defer_on"
            case "reset":
                self.pages, self.deferring = self.pages.plan.empty(), False

    def visible(self) -> list[tuple[int, int]]:
        """Frame and token of everything attention may read, in reading order."""
        return [self.written[slot] for slot in self.pages.visible().tolist()]


@pytest.mark.parametrize("trace", TRACES["paged_manager"], ids=lambda trace: trace["name"])
def test_every_operation_leaves_the_state_the_trace_recorded(trace: dict[str, Any]) -> None:
    plan = plan_of(trace)
    assert (plan.slots_per_page, plan.num_patch_pages, plan.num_pages) == (
        trace["page_size"],
        trace["patch_pool"],
        trace["total_pages"],
    )
    scribe = Scribe(plan)
    for step in trace["steps"]:
        if "error" in step:
            before = scribe.pages
            with pytest.raises(RecallError):
                scribe.play(step["op"])
            assert scribe.pages == before
            continue
        scribe.play(step["op"])
        pages = scribe.pages
        assert pages.num_frames == step["frame_count"]
        assert (len(pages.scale), len(pages.live)) == (len(step["scale_pages"]), len(step["live_pages"]))
        assert len(pages.special) == len(step["special_pages"])
        assert pages.num_special_tokens == step["special_tokens"]
        assert (pages.free_patch_pages, pages.free_special_pages) == (step["free_patch"], step["free_special"])
        if pages.num_frames:
            assert pages.last_page_len == step["last_page_len"]
            assert scribe.visible() == [
                *(
                    (frame, token)
                    for frame in step["visible_patch_frames"]
                    for token in range(6, plan.tokens_per_frame)
                ),
                *((frame, token) for frame in step["special_frames"] for token in range(6)),
            ]


@pytest.mark.parametrize("size", TRACES["production_pool_sizes"], ids=lambda size: str(size["patches"]))
def test_pools_have_the_published_sizes(size: dict[str, Any]) -> None:
    rule = ContextRetention(anchors=8, window=64, trail=6, history=None)
    plan = make_plan(patches=size["patches"], retention=rule, max_total_frames=1124)
    assert (plan.num_patch_pages, plan.num_special_pages) == (size["patch_pages"], size["special_pages"])
    layout = StreamLayout(
        num_layers=24,
        num_heads=16,
        head_dim=64,
        tokens_per_frame=size["tokens_per_frame"],
        dtype=torch.bfloat16,
    )
    assert plan.num_slots * layout.bytes_per_slot == size["bytes_total_24_blocks_bf16"]


def test_a_hundred_frames_fill_the_published_pages() -> None:
    rule = ContextRetention(anchors=8, window=64, trail=6, history=None)
    pages = make_plan(patches=256, retention=rule, max_total_frames=200).empty()
    for _ in range(100):
        pages = pages.append().evict()
    assert (len(pages.scale), len(pages.live), len(pages.special)) == (8, 64, 3)
    assert (pages.num_special_tokens, pages.last_page_len) == (600, 88)
    assert len(pages.table) == 75
    assert len(pages.visible()) == 72 * 256 + 600


def test_full_patch_pool_says_so_and_what_to_raise() -> None:
    pages = make_plan(spare=1).empty()
    for _ in range(6):
        pages = pages.append()
    with pytest.raises(MemoryFullError, match=r"All 6 patch pages .* raise the window, the scale frames"):
        pages.append()
    assert pages.evict().append().num_frames == 7


def test_full_special_pool_says_so_and_what_to_raise() -> None:
    pages = make_plan(spare=1, max_total_frames=5).empty()
    for _ in range(7):
        pages = pages.append().evict()
    with pytest.raises(MemoryFullError, match=r"All 3 special pages .* raise max_total_frames, now 5"):
        pages.append()


def test_frame_cannot_be_rolled_back_once_another_left_for_it() -> None:
    pages = make_plan().empty()
    for _ in range(6):
        pages = pages.append()
    assert pages.rollback().num_frames == 5
    with pytest.raises(TransactionError, match="followed by an eviction"):
        pages.evict().rollback()
    assert pages.evict().append().rollback() == pages.evict()


def test_eviction_that_removes_nothing_leaves_rollback_open() -> None:
    pages = make_plan().empty().append().evict()
    assert pages.rollback() == make_plan().empty()
    with pytest.raises(TransactionError, match="no frame"):
        pages.rollback().rollback()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"retention": replace(RULE, trail=7)}, "special tokens alone, of which there are 6"),
        ({"retention": replace(RULE, history=9)}, "bound the sequence by max_total_frames"),
        ({"patches": 0}, "at least 1 patch"),
        ({"page_size": 0}, "at least 1 patch"),
        ({"spare": 0}, "at least 1 patch"),
    ],
)
def test_plan_that_pages_cannot_follow_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        make_plan(**changes)


def test_rule_changes_only_before_the_first_eviction() -> None:
    pages = make_plan().empty().append()
    oldest_first = replace(RULE, anchors=0)
    assert pages.under(oldest_first).scale == ()
    for _ in range(5):
        pages = pages.append().evict()
    assert pages.under(RULE) is pages
    with pytest.raises(SettingError, match="go on with it, or reset"):
        pages.under(oldest_first)


operations = st.lists(
    st.sampled_from(
        ["append", "append", "append", "evict", "run_deferred", "rollback", "defer_on", "defer_off", "reset"]
    ),
    max_size=60,
)
plans = st.builds(
    lambda patches, specials, anchors, window, trail, page_size, max_total_frames, spare: PagePlan(
        patches=patches,
        specials=specials,
        retention=ContextRetention(anchors=anchors, window=window, trail=min(trail, specials), history=None),
        max_total_frames=max_total_frames,
        page_size=page_size,
        spare=spare,
    ),
    st.integers(1, 9),
    st.integers(0, 4),
    st.integers(0, 3),
    st.integers(1, 3),
    st.integers(0, 4),
    st.one_of(st.none(), st.integers(1, 12)),
    st.integers(1, 30),
    st.integers(1, 3),
)


def what_the_rule_shows(plan: PagePlan, stored: list[int], resident: int) -> list[tuple[int, int]]:
    """Frame and token that are visible, from the frames stored and how many of them are there whole."""
    num_anchors = min(plan.retention.anchors, len(stored))
    first_live = len(stored) - (resident - num_anchors)
    whole = stored[:num_anchors] + stored[first_live:]
    specials = [
        (frame, token)
        for at, frame in enumerate(stored)
        for token in range(plan.specials if at < num_anchors or at >= first_live else plan.retention.trail_tokens)
    ]
    return [(frame, token) for frame in whole for token in range(plan.specials, plan.tokens_per_frame)] + specials


@settings(max_examples=150, deadline=None)
@given(plans, operations)
def test_any_order_of_operations_keeps_every_page_owned_once(plan: PagePlan, played: list[str]) -> None:
    scribe = Scribe(plan)
    stored: list[int] = []
    for operation in played:
        before = scribe.pages
        try:
            scribe.play(operation)
        except RecallError:
            assert scribe.pages == before
            continue
        if operation == "append":
            stored.append(scribe.num_appends - 1)
        elif operation == "rollback":
            stored.pop()
        elif operation == "reset":
            stored.clear()
        pages = scribe.pages
        owned = pages.table
        assert len(set(owned)) == len(owned)
        assert all(page < plan.num_patch_pages for frame in pages.resident for page in frame)
        assert all(plan.num_patch_pages <= page < plan.num_pages for page in pages.special)
        assert len(owned) + pages.free_patch_pages + pages.free_special_pages == plan.num_pages
        assert pages.num_frames == len(stored)
        assert scribe.visible() == what_the_rule_shows(plan, stored, len(pages.resident))
        assert pages.shows_anything == bool(scribe.visible())


@settings(max_examples=100, deadline=None)
@given(plans, st.integers(1, 12))
def test_table_and_last_length_say_it_all_exactly_where_pages_are_packed(plan: PagePlan, num_frames: int) -> None:
    pages = plan.empty()
    try:
        for _ in range(num_frames):
            pages = pages.append().evict()
    except MemoryFullError:
        return
    size = plan.slots_per_page
    in_table = np.concatenate([np.arange(page * size, (page + 1) * size) for page in pages.table])
    in_table = in_table[: len(in_table) - size + pages.last_page_len]
    says_it_all = in_table.tolist() == pages.visible().tolist()
    assert says_it_all or not pages.is_packed
    if plan.specials:
        assert pages.is_packed == says_it_all


@pytest.mark.parametrize("operate", [Pages.append, Pages.evict, Pages.rollback])
def test_operations_leave_the_book_they_start_from_as_it_was(operate: Callable[[Pages], Pages]) -> None:
    pages = make_plan().empty()
    for _ in range(7):
        pages = pages.append()
    copy = replace(pages)
    operate(pages)
    assert pages == copy
