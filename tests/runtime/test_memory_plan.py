"""From a rule in frames to policies, to bytes, to what fits a budget."""

from dataclasses import replace
from itertools import chain

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.errors import BudgetError, InputError, SettingError
from longtake.geometry.config import CAMERA, TRUNK, GeometryConfig
from longtake.memory.budget import MemoryRequirements
from longtake.memory.policies.lockstep import ContextRetention, KeepAll, Trail, Window
from longtake.runtime.memory_plan import MemoryPlan, trunk_layout
from longtake.weights.presets import LINGBOT_MAP

PUBLISHED = MemoryPlan(
    config=LINGBOT_MAP, size=(378, 518), retention=ContextRetention(), num_scale_frames=8, trunk_dtype=torch.bfloat16
)
RESIDENT_FRAME = 98_795_520
TRAIL_FRAME = 589_824
CAMERA_FRAME = 262_144


def test_published_rule_is_the_default() -> None:
    assert ContextRetention() == ContextRetention(anchors=8, window=64, trail=Trail.SPECIAL, history=4096)


@pytest.mark.parametrize(("trail", "tokens"), [(Trail.SPECIAL, 6), (Trail.CAMERA, 1), (Trail.NONE, 0)])
def test_trail_is_the_special_tokens_or_the_camera_token_or_nothing(trail: Trail, tokens: int) -> None:
    retention = ContextRetention(anchors=2, window=3, trail=trail, history=9)
    assert retention.for_stream(trunk_layout(LINGBOT_MAP, (378, 518))) == ContextRetention(
        anchors=2, window=3, trail=tokens, history=9
    )


def test_camera_stream_keeps_every_frame_of_the_history() -> None:
    bounded = ContextRetention(anchors=2, window=3, history=9)
    assert bounded.camera() == Window(anchors=2, window=7)
    assert bounded.camera().most_tokens(1, num_kept=100) == 9
    assert replace(bounded, history=None).camera() == KeepAll()
    assert replace(bounded, history=None).for_stream(trunk_layout(LINGBOT_MAP, (378, 518))).full_after is None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [({"anchors": -1}, "anchors >= 0"), ({"window": 0}, "window >= 1"), ({"history": 4}, "cannot hold 2 anchors")],
)
def test_rule_that_cannot_be_is_refused_where_it_is_written(change: dict[str, int], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        ContextRetention(**{"anchors": 2, "window": 3, **change})


@pytest.mark.parametrize("change", [{"num_scale_frames": 0}, {"reserve_frames": -1}])
def test_plan_that_cannot_be_is_refused_with_a_sentence(change: dict[str, int]) -> None:
    with pytest.raises(SettingError, match="at least 1 scale frame and no negative reserve"):
        replace(PUBLISHED, **change)


def test_image_that_does_not_divide_into_patches_is_refused() -> None:
    with pytest.raises(InputError, match="multiples of 14 pixels"):
        assert replace(PUBLISHED, size=(378, 520)).requirements


def test_bytes_of_one_frame_at_the_published_size() -> None:
    trunk, _ = PUBLISHED.requirements.streams[TRUNK]
    camera, _ = PUBLISHED.requirements.streams[CAMERA]
    assert trunk.bytes_per_frame == RESIDENT_FRAME
    assert LINGBOT_MAP.special_tokens * trunk.bytes_per_slot == TRAIL_FRAME
    assert camera.bytes_per_frame == CAMERA_FRAME
    assert (trunk.dtype, camera.dtype) == (torch.bfloat16, torch.float32)


def full_bytes(plan: MemoryPlan) -> int:
    requirements = plan.requirements
    assert requirements.full_after is not None
    return requirements.num_bytes(requirements.full_after)


def test_bytes_of_the_published_memory_add_up() -> None:
    anchors_window_and_one_staged = (8 + 64 + 1) * RESIDENT_FRAME
    trail = (4096 - 72) * TRAIL_FRAME
    cameras = (4096 + 1) * CAMERA_FRAME
    assert PUBLISHED.requirements.full_after == 4096
    assert full_bytes(PUBLISHED) == anchors_window_and_one_staged + trail + cameras
    assert sum(plan.num_bytes for plan in PUBLISHED.requirements.plan().values()) == full_bytes(PUBLISHED)


@pytest.mark.parametrize(
    ("change", "bytes_more"),
    [
        ({"retention": ContextRetention(history=4097)}, TRAIL_FRAME + CAMERA_FRAME),
        ({"retention": ContextRetention(window=65)}, RESIDENT_FRAME - TRAIL_FRAME),
        ({"retention": ContextRetention(anchors=9)}, RESIDENT_FRAME - TRAIL_FRAME),
        ({"retention": ContextRetention(trail=Trail.NONE)}, -(4096 - 72) * TRAIL_FRAME),
        ({"retention": ContextRetention(trail=Trail.CAMERA)}, -(4096 - 72) * TRAIL_FRAME * 5 // 6),
        ({"reserve_frames": 2}, 2 * (RESIDENT_FRAME + CAMERA_FRAME)),
        ({"num_scale_frames": 1}, 0),
    ],
)
def test_each_frame_more_costs_what_it_says(change: dict[str, object], bytes_more: int) -> None:
    assert full_bytes(replace(PUBLISHED, **change)) - full_bytes(PUBLISHED) == bytes_more  # type: ignore[arg-type]


def test_scale_block_larger_than_the_memory_is_paid_for(tiny_config: GeometryConfig) -> None:
    plan = small_plan(tiny_config, ContextRetention(anchors=0, window=1, history=1), num_scale_frames=5)
    trunk, _ = plan.requirements.streams[TRUNK]
    assert plan.requirements.num_slots(TRUNK, 1) == 5 * trunk.tokens_per_frame
    assert plan.requirements.num_slots(CAMERA, 1) == 5


def small_plan(config: GeometryConfig, retention: ContextRetention, **changes: int) -> MemoryPlan:
    return MemoryPlan(config=config, size=(42, 70), retention=retention, **{"num_scale_frames": 2, **changes})


def best_by_trying(plan: MemoryPlan, budget: int) -> ContextRetention | None:
    """Every history from the longest down, then every window: the first that fits."""
    wanted = plan.retention
    assert wanted.history is not None
    histories = range(wanted.history, wanted.anchors + wanted.window - 1, -1)
    windows = range(wanted.window, 0, -1)
    for retention in chain(
        (replace(wanted, history=history) for history in histories),
        (replace(wanted, window=window, history=wanted.anchors + window) for window in windows),
    ):
        if full_bytes(replace(plan, retention=retention)) <= budget:
            return retention
    return None


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 3),
    st.integers(1, 4),
    st.integers(0, 6),
    st.sampled_from(Trail),
    st.integers(1, 6),
    st.integers(0, 2),
    st.floats(0, 1.1),
)
def test_fit_is_the_longest_history_then_the_widest_window_that_fits(
    tiny_config: GeometryConfig,
    anchors: int,
    window: int,
    extra: int,
    trail: Trail,
    scale: int,
    reserve: int,
    share: float,
) -> None:
    retention = ContextRetention(anchors=anchors, window=window, trail=trail, history=anchors + window + extra)
    plan = small_plan(tiny_config, retention, num_scale_frames=scale, reserve_frames=reserve)
    budget = int(share * full_bytes(plan))
    best = best_by_trying(plan, budget)
    if best is None:
        with pytest.raises(BudgetError, match=f"{anchors} anchors, the first clip and a window of one"):
            plan.fit(budget)
    else:
        assert plan.fit(budget) == replace(plan, retention=best)
        assert full_bytes(plan.fit(budget)) <= budget


def test_fit_to_the_byte(tiny_config: GeometryConfig) -> None:
    plan = small_plan(tiny_config, ContextRetention(anchors=1, window=2, history=6))
    steps = [ContextRetention(anchors=1, window=2, history=history) for history in (6, 5, 4, 3)]
    steps.append(ContextRetention(anchors=1, window=1, history=2))
    for retention, next_smaller in zip(steps, [*steps[1:], None], strict=True):
        enough = full_bytes(replace(plan, retention=retention))
        assert plan.fit(enough).retention == retention
        if next_smaller is not None:
            assert plan.fit(enough - 1).retention == next_smaller
    with pytest.raises(BudgetError, match=rf"smallest that works is .*\b{enough} bytes"):
        plan.fit(enough - 1)


def test_unbounded_history_is_left_to_the_budget(tiny_config: GeometryConfig) -> None:
    plan = small_plan(tiny_config, ContextRetention(anchors=1, window=2, history=None))
    assert plan.fit(1) == plan
    assert isinstance(plan.requirements, MemoryRequirements)
    assert plan.requirements.full_after is None
