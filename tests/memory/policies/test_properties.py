"""What holds for every policy, whatever the video: protection, bounds, determinism, no regard for order."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.memory.policies.budgeted import Budgeted, KeyDiversity, Managed
from longtake.memory.policies.farthest_frames import FarthestFrames
from longtake.memory.policies.layerwise import Layerwise
from longtake.memory.policies.ratio import Ratio
from longtake.memory.policy import PerLayerPolicy
from longtake.memory.tokens import StreamLayout

TOKENS = 7
LAYERS = 3
LAYOUT = StreamLayout(num_layers=LAYERS, num_heads=2, head_dim=4, tokens_per_frame=TOKENS)


@st.composite
def budgeted(draw: st.DrawFn) -> Budgeted:
    common = {
        "num_tokens": 1,
        "special_tokens": draw(st.integers(0, 3)),
        "anchors": draw(st.integers(0, 2)),
        "recent": draw(st.integers(1, 2)),
        "special_frames": draw(st.integers(0, 5)),
    }
    least = Managed(**common).least_tokens(LAYOUT)
    common["num_tokens"] = least + draw(st.integers(0, 60))
    if draw(st.booleans()):
        return KeyDiversity(**common)
    return Managed(
        **common,
        decay=draw(st.sampled_from([1.0, 0.9, 0.5])),
        smoothing=draw(st.sampled_from([0.0, 0.9])),
        temperature=draw(st.sampled_from([0.01, 1.0])),
    )


ratios = st.builds(
    Ratio,
    drop=st.sampled_from([0.05, 0.3, 0.9]),
    special_tokens=st.integers(0, 3),
    anchors=st.integers(0, 2),
    special_frames=st.integers(0, 5),
)
farthest = st.builds(FarthestFrames, num_frames=st.integers(4, 6), anchors=st.integers(0, 2), recent=st.integers(1, 2))
clips = st.lists(st.integers(1, 3), min_size=5, max_size=25)
seeds = st.integers(0, 2**16)


@settings(max_examples=40, deadline=None)
@given(policy=budgeted() | ratios, sizes=clips, seed=seeds)
def test_protected_tokens_stay_and_the_bound_holds(
    play: Any, policy: Budgeted | Ratio, sizes: list[int], seed: int
) -> None:
    game = play(policy, LAYERS, TOKENS)
    most = policy.most_tokens(LAYOUT, clip_frames=max(sizes))
    for step, num_frames in enumerate(sizes):
        game.step(seed + step, num_frames)
        assert game.total <= most
        newest = game.num_kept
        recent = policy.recent if isinstance(policy, Budgeted) else 0
        whole = [*range(min(policy.anchors, newest)), *range(max(0, newest - recent), newest)]
        with_special = range(max(0, newest - policy.special_frames), newest)
        must = {frame * TOKENS + index for frame in whole for index in range(TOKENS)}
        must |= {frame * TOKENS + index for frame in with_special for index in range(policy.special_tokens)}
        assert all(must <= set(ids) for ids in game.ids)


@settings(max_examples=20, deadline=None)
@given(policy=farthest, sizes=clips, seed=seeds)
def test_whole_frames_stay_anchors_and_newest_among_them(
    play: Any, policy: FarthestFrames, sizes: list[int], seed: int
) -> None:
    game = play(policy, LAYERS, TOKENS)
    for step, num_frames in enumerate(sizes):
        game.step(seed + step, num_frames)
        assert game.total <= policy.most_tokens(LAYOUT)
        for tokens in game.tokens:
            frames, counts = np.unique(tokens.frame, return_counts=True)
            assert set(counts.tolist()) == {TOKENS}
            assert len(frames) == min(game.num_kept, policy.num_frames)
            assert set(range(min(policy.anchors, game.num_kept))) <= set(frames.tolist())
            assert set(range(max(0, game.num_kept - policy.recent), game.num_kept)) <= set(frames.tolist())


@settings(max_examples=15, deadline=None)
@given(policy=budgeted(), seed=seeds)
def test_a_budget_is_spent_to_the_last_token_once_it_is_short(play: Any, policy: Budgeted, seed: int) -> None:
    game = play(policy, LAYERS, TOKENS)
    for step in range(30):
        game.step(seed + step)
        assert game.total == min(policy.num_tokens, LAYERS * TOKENS * (step + 1))


@pytest.mark.parametrize(
    "policy",
    [
        Managed(num_tokens=10**9, special_tokens=2),
        KeyDiversity(num_tokens=10**9, special_tokens=2),
        FarthestFrames(num_frames=10**6),
        Layerwise(budget_ratio=1e6, temperature=0.5, num_frames=100, special_tokens=2, strict=False),
    ],
    ids=lambda policy: type(policy).__name__,
)
def test_unlimited_budget_keeps_all(play: Any, policy: PerLayerPolicy) -> None:
    game = play(policy, LAYERS, TOKENS)
    for step in range(20):
        decisions = game.step(step)
        assert all(decision.stays.all() for decision in decisions)


any_policy = (
    budgeted()
    | ratios
    | farthest
    | st.just(Layerwise(budget_ratio=0.4, temperature=0.5, num_frames=30, special_tokens=1, strict=True))
)


@settings(max_examples=30, deadline=None)
@given(policy=any_policy, sizes=clips, seed=seeds)
def test_who_stays_repeats_and_does_not_depend_on_the_order_of_tokens(
    play: Any, policy: PerLayerPolicy, sizes: list[int], seed: int
) -> None:
    games = [play(policy, LAYERS, TOKENS), play(policy, LAYERS, TOKENS)]
    games.append(play(policy, LAYERS, TOKENS, shuffle=np.random.default_rng(seed)))
    for step, num_frames in enumerate(sizes):
        for game in games:
            game.step(seed + step, num_frames)
        assert games[0].ids == games[1].ids
        assert games[0].memos == games[1].memos
        assert [sorted(ids) for ids in games[0].ids] == [sorted(ids) for ids in games[2].ids]


@pytest.mark.parametrize("policy_type", [Managed, KeyDiversity])
def test_tokens_of_a_policy_without_attention_need_no_notes(policy_type: type[PerLayerPolicy]) -> None:
    policy = policy_type(num_tokens=100, special_tokens=1)
    assert policy.wants_attention_mass == (policy.num_token_stats > 0) == (policy_type is Managed)
    assert policy.wants_keys == (policy_type is KeyDiversity)
