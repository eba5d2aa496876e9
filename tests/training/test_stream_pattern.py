"""Ways to watch a clip, against the rule played through token by token, and against a stream."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longtake.attention.masks import arrivals, clip_mask, clip_ordinals
from longtake.geometry.config import CAMERA, TRUNK, GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.memory.policies.lockstep import ContextRetention
from longtake.runtime.keyframes import EveryNth
from longtake.runtime.memory_plan import MemoryPlan, trunk_layout
from longtake.runtime.session import SequenceSession
from training.stream_pattern import StreamPattern, random_pattern

CPU = torch.device("cpu")
SIZE = (42, 70)


@pytest.mark.parametrize(("scale", "window", "interval"), [(2, 4, 1), (4, 1, 2), (1, 3, 3), (6, 2, 1), (12, 4, 1)])
def test_masks_are_those_of_the_rule_played_through_with_all_tokens(
    scale: int, window: int, interval: int, tiny_config: GeometryConfig
) -> None:
    pattern = StreamPattern(num_frames=12, num_scale_frames=scale, window=window, interval=interval)
    recall = pattern.recall(tiny_config, SIZE, CPU)
    sequence = arrivals(scale, [at % interval == 0 for at in range(12 - scale)])
    rule = ContextRetention(anchors=scale, window=window, history=None)
    slow = clip_mask(rule.for_stream(trunk_layout(tiny_config, SIZE)), sequence, tiny_config.tokens_per_frame(*SIZE))
    assert torch.equal(recall.masks[TRUNK], slow)
    assert torch.equal(recall.masks[CAMERA], clip_mask(rule.camera(), sequence, 1))
    assert recall.ordinals == clip_ordinals(sequence)
    assert recall.num_scale_frames == scale


@pytest.mark.parametrize(("scale", "window", "interval"), [(2, 4, 1), (4, 1, 2), (1, 3, 3), (6, 2, 1), (12, 4, 1)])
def test_frames_remembered_whole_are_those_whose_patches_are_seen(
    scale: int, window: int, interval: int, tiny_config: GeometryConfig
) -> None:
    pattern = StreamPattern(num_frames=12, num_scale_frames=scale, window=window, interval=interval)
    last_patches = pattern.recall(tiny_config, SIZE, CPU).masks[TRUNK].unflatten(1, (12, -1)).unflatten(0, (12, -1))
    for at in range(scale, 12):
        seen = last_patches[at, -1, :, -1].numpy()
        seen[at] = False
        is_kept = (at - scale) % interval == 0
        forgotten_next = 0 if is_kept or seen.sum() <= scale + window - 1 else 1
        assert set(pattern.whole(at)) <= set(np.flatnonzero(seen))
        assert len(pattern.whole(at)) == seen.sum() - forgotten_next


@pytest.mark.parametrize(("scale", "window", "interval"), [(2, 3, 1), (4, 2, 1), (2, 2, 3)])
def test_a_watched_clip_says_what_a_stream_says(
    scale: int, window: int, interval: int, golden_frames: Tensor, tiny_model: GeometryModel
) -> None:
    frames = golden_frames[0, :12]
    pattern = StreamPattern(num_frames=12, num_scale_frames=scale, window=window, interval=interval)
    recall = pattern.recall(tiny_model.config, SIZE, CPU)
    assert not recall.masks[TRUNK][-1].all()
    whole = tiny_model(frames[None], recall, tiny_model.grid(*SIZE))
    plan = MemoryPlan(
        config=tiny_model.config,
        size=SIZE,
        retention=ContextRetention(anchors=scale, window=window, history=100),
        num_scale_frames=scale,
    )
    session = SequenceSession(tiny_model, plan, keyframes=EveryNth(interval))
    parts = list(session.run(frames))
    for said, streamed in (
        (whole.pose_encoding[0], torch.cat([part.pose_encoding for part in parts])),
        (whole.depth[0], torch.cat([part.depth for part in parts])),
    ):
        torch.testing.assert_close(said, streamed, rtol=2e-5, atol=2e-5)
    num_kept = session.num_kept
    assert len(session._memory.tokens(TRUNK)) < num_kept * tiny_model.config.tokens_per_frame(*SIZE)


@settings(deadline=None, max_examples=50)
@given(num_frames=st.integers(4, 100), seed=st.integers(0, 1000))
def test_any_way_to_watch_fits_its_clip(num_frames: int, seed: int) -> None:
    pattern = random_pattern(num_frames, np.random.default_rng(seed))
    assert pattern.num_frames == num_frames
    assert 2 <= pattern.num_scale_frames <= num_frames
    assert 4 <= pattern.window <= 24
    assert pattern.interval in (1, 2, 3)


def test_all_ways_to_watch_are_drawn() -> None:
    rng = np.random.default_rng(0)
    ways = {(way.num_scale_frames, way.interval) for way in (random_pattern(48, rng) for _ in range(400))}
    assert ways == set(product((2, 4, 6, 8), (1, 2, 3)))
