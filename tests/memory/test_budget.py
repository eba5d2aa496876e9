"""The closed formula for slots against the fullest moment of a memory that is really played through."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.errors import BudgetError, MemoryFullError, SettingError
from longtake.memory.budget import Budget, MemoryRequirements, StreamPlan, format_bytes
from longtake.memory.memory import Memory
from longtake.memory.policies.lockstep import ContextRetention, KeepAll, Window
from longtake.memory.policy import Keep, LockstepPolicy
from longtake.memory.tokens import StreamLayout

WIDE = StreamLayout(num_layers=1, num_heads=1, head_dim=2, tokens_per_frame=3)
NARROW = StreamLayout(num_layers=2, num_heads=1, head_dim=4, tokens_per_frame=1, dtype=torch.bfloat16)
BOUNDED = ContextRetention(anchors=1, window=2, trail=1, history=6)
GROWING = ContextRetention(anchors=1, window=2, trail=1, history=None)


def requirements(
    wide: LockstepPolicy, narrow: LockstepPolicy, *, first_clip: int = 1, reserve: int = 0
) -> MemoryRequirements:
    return MemoryRequirements(
        streams={"wide": (WIDE, wide), "narrow": (NARROW, narrow)}, first_clip=first_clip, reserve=reserve
    )


def keep_clip(memory: Memory, num_frames: int) -> dict[str, int]:
    """Keep one clip; how many slots of each stream were in use while it was staged."""
    with memory.begin(num_frames, Keep.YES) as transaction:
        used = {name: use.num_slots - use.free for name, use in memory.use().items()}
        for name, plan in memory.plans.items():
            layout = plan.layout
            rows = torch.zeros(num_frames * layout.tokens_per_frame, layout.num_heads, layout.head_dim, device="meta")
            for layer in range(layout.num_layers):
                transaction.write(name, layer, rows, rows)
        transaction.commit()
    return used


def fullest_moment(memory: Memory, first_clip: int, num_kept: int) -> dict[str, int]:
    """Keep frames up to `num_kept`, stage one more, and say how many slots were ever in use at once."""
    moments = [keep_clip(memory, first_clip)]
    moments += [keep_clip(memory, 1) for _ in range(num_kept - first_clip)]
    with memory.begin(1, Keep.DEFERRED):
        moments.append({name: use.num_slots - use.free for name, use in memory.use().items()})
    return {name: max(moment[name] for moment in moments) for name in memory.plans}


@st.composite
def rules(draw: st.DrawFn, *, bounded: bool) -> ContextRetention:
    anchors, window = draw(st.integers(0, 3)), draw(st.integers(1, 3))
    history = draw(st.integers(anchors + window, anchors + window + 4)) if bounded else None
    trail = draw(st.integers(0 if bounded else 1, 4))
    return ContextRetention(anchors=anchors, window=window, trail=trail, history=history)


@settings(max_examples=40, deadline=None)
@given(rules(bounded=True), rules(bounded=True), st.integers(1, 9))
def test_slots_of_a_bounded_memory_are_its_fullest_moment_to_the_slot(
    wide: LockstepPolicy, narrow: LockstepPolicy, first_clip: int
) -> None:
    wanted = requirements(wide, narrow, first_clip=first_clip)
    plan = wanted.plan()
    assert wanted.full_after is not None
    fullest = fullest_moment(Memory(plan, "meta"), first_clip, max(first_clip, wanted.full_after) + 4)
    assert fullest == {name: stream.num_slots for name, stream in plan.items()}


@settings(max_examples=20, deadline=None)
@given(rules(bounded=False), st.integers(1, 9), st.integers(0, 9))
def test_slots_of_a_growing_memory_are_its_fullest_moment_to_the_slot(
    wide: LockstepPolicy, first_clip: int, more: int
) -> None:
    wanted = requirements(wide, KeepAll(), first_clip=first_clip)
    num_kept = first_clip + more
    slots = {name: wanted.num_slots(name, num_kept) for name in wanted.streams}
    plans = {
        name: StreamPlan(layout=layout, policy=retention, num_slots=slots[name])
        for name, (layout, retention) in wanted.streams.items()
    }
    assert fullest_moment(Memory(plans, "meta"), first_clip, num_kept) == slots


def test_one_slot_fewer_is_one_too_few() -> None:
    plans = requirements(BOUNDED, BOUNDED).plan()
    tight = {
        name: StreamPlan(layout=plan.layout, policy=plan.policy, num_slots=plan.num_slots - (name == "narrow"))
        for name, plan in plans.items()
    }
    with pytest.raises(MemoryFullError, match="narrow"):
        fullest_moment(Memory(tight, "meta"), 1, 9)


def test_reserve_is_counted_in_frames_on_top() -> None:
    plain, reserved = requirements(BOUNDED, BOUNDED).plan(), requirements(BOUNDED, BOUNDED, reserve=4).plan()
    assert reserved["wide"].num_slots - plain["wide"].num_slots == 4 * 3
    assert reserved["narrow"].num_slots - plain["narrow"].num_slots == 4


def test_published_numbers_by_hand() -> None:
    wanted = requirements(BOUNDED, KeepAll(), first_clip=2, reserve=1)
    assert wanted.num_slots("wide", 100) == (1 + 2) * 3 + (6 - 3) * 1 + 3 + 3
    assert wanted.num_slots("wide", 4) == 3 * 3 + 1 * 1 + 3 + 3
    assert wanted.num_slots("narrow", 4) == 4 + 1 + 1
    assert wanted.num_bytes(4) == 16 * (2 * 2 * 4) + 6 * (2 * 2 * 4 * 2)


def test_memory_stops_growing_when_its_slowest_stream_does() -> None:
    assert requirements(BOUNDED, Window(anchors=1, window=8)).full_after == 9
    assert requirements(BOUNDED, KeepAll()).full_after is None
    assert requirements(GROWING, BOUNDED).full_after is None


def test_bounded_memory_takes_what_it_needs_whatever_the_budget() -> None:
    wanted = requirements(BOUNDED, BOUNDED)
    least = wanted.num_bytes(6)
    for budget in (None, least, 100 * least):
        plan = wanted.plan(budget)
        assert sum(stream.num_bytes for stream in plan.values()) == least


def test_policy_that_never_forgets_needs_a_budget() -> None:
    with pytest.raises(SettingError, match="give one, such as 4GB"):
        requirements(GROWING, BOUNDED).plan()


@given(st.integers(0, 20_000), st.sampled_from([GROWING, KeepAll()]), st.integers(1, 4), st.integers(0, 2))
def test_growing_memory_is_as_long_as_the_budget_allows(
    extra: int, wide: LockstepPolicy, first_clip: int, reserve: int
) -> None:
    wanted = requirements(wide, KeepAll(), first_clip=first_clip, reserve=reserve)
    budget = wanted.num_bytes(first_clip) + extra
    plan = wanted.plan(budget)
    num_kept = plan["narrow"].num_slots - 1 - reserve
    assert plan["wide"].num_slots == wanted.num_slots("wide", num_kept)
    assert sum(stream.num_bytes for stream in plan.values()) == wanted.num_bytes(num_kept)
    assert wanted.num_bytes(num_kept) <= budget < wanted.num_bytes(num_kept + 1)


@pytest.mark.parametrize("narrow", [KeepAll(), BOUNDED], ids=["growing", "bounded"])
def test_budget_too_small_names_the_smallest_that_works(narrow: LockstepPolicy) -> None:
    wanted = requirements(BOUNDED, narrow, first_clip=3)
    with pytest.raises(
        BudgetError, match=r"A budget of 10 bytes cannot hold .* smallest that works is (\d+)"
    ) as refused:
        wanted.plan(10)
    smallest = int(str(refused.value).rsplit("(" if "(" in str(refused.value) else "is ", 1)[1].split(" ")[0])
    assert smallest == wanted.num_bytes(3 if isinstance(narrow, KeepAll) else 6)
    assert sum(stream.num_bytes for stream in wanted.plan(smallest).values()) == smallest
    with pytest.raises(BudgetError):
        wanted.plan(smallest - 1)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1000000", 1_000_000),
        ("2GB", 2_000_000_000),
        ("512MiB", 536_870_912),
        ("1.5 kB", 1500),
        (" 3 gib ", 3 * 2**30),
        ("7B", 7),
        ("64KiB", 65_536),
        ("0.5mb", 500_000),
        ("0", 0),
    ],
)
def test_sizes_are_read_with_any_unit(text: str, count: int) -> None:
    assert Budget.parse(text) == Budget(num_bytes=count)


@pytest.mark.parametrize(("text", "count"), [("8 frames", 8), ("1 frame", 1), ("12FRAMES", 12)])
def test_memory_can_be_counted_in_frames(text: str, count: int) -> None:
    assert Budget.parse(text) == Budget(num_frames=count)


@pytest.mark.parametrize(
    "text",
    [
        "0 frames",
        "1.5 frames",
        "-8 frames",
        "lots",
        "-1",
        "",
        "GB",
        "4 parsecs",
        "1e9",
        "4GB8",
        "1.GB",
        "0x10",
        "9" * 400,
    ],
)
def test_size_without_a_meaning_is_refused(text: str) -> None:
    with pytest.raises(
        SettingError, match=f"Expected a memory such as 4GB, 512MiB, 1000000 or 8 frames, but got '{text}'"
    ):
        Budget.parse(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.00 kB (1000 bytes)"),
        (1_234_567, "1.23 MB (1234567 bytes)"),
        (4 * 10**9, "4.00 GB (4000000000 bytes)"),
    ],
)
def test_sizes_are_written_for_people_and_to_the_byte(count: int, text: str) -> None:
    assert format_bytes(count) == text
