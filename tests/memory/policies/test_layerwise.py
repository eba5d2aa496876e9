"""The published eviction, index for index: golden runs alone and inside models, and a transcription."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.errors import SettingError
from longtake.memory.policies.allocation import softmax_shares
from longtake.memory.policies.layerwise import Layerwise, dropped_by_now, spread, stays_of_layer
from longtake.memory.tokens import StreamLayout

ALGORITHM_RUNS = ["p50_t0.5", "p45_t1.5", "p70_t0.25", "strict_p20_t0.5", "short_total6_p50_t1"]
MODEL_RUNS = [
    "stream3r_p50_t0.5",
    "stream3r_p70_t0.2",
    "stream3r_p60_t2",
    "stream3r_strict_p20_t0.5",
    "stream3r_strict_p40_t0.05",
    "streamvggt_p50_t0.5",
    "streamvggt_strict_p30_t0.5",
]
LARGEST = 3.4028235e38


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def assert_remembers(game: Any, golden: dict[str, np.ndarray], prefix: str, frame: int) -> None:
    """Who is left, what they accumulated and how long they were exposed."""
    for layer, ids in enumerate(game.ids):
        kept = golden[f"{prefix}kept_ids"][frame, layer]
        assert ids == kept[kept >= 0].tolist()
        if f"{prefix}cam_after" in golden:
            cam, exposure = (
                golden[f"{prefix}{name}"][frame, layer, : len(ids)] for name in ("cam_after", "exposure_after")
            )
            token_stats = game.tokens[layer].token_stats
            np.testing.assert_allclose(np.nan_to_num(token_stats[:, 0], posinf=LARGEST), cam, rtol=2e-5)
            assert token_stats[:, 1].tolist() == exposure.tolist()


@pytest.mark.parametrize("run", ALGORITHM_RUNS)
def test_algorithm_alone_keeps_what_the_golden_run_keeps(
    run: str, play: Any, eviction_golden: Callable[[str], Any]
) -> None:
    golden, runs = eviction_golden("eviction_algorithm_A")
    options = runs[run]
    policy = Layerwise(
        budget_ratio=options["P"],
        temperature=options["temp"],
        num_frames=options["total_frames"],
        special_tokens=options["patch_start_idx"],
        strict=options.get("strict", False),
    )
    game = play(policy, options["layers"], options["tokens_per_frame"], options["heads"])
    for frame in range(options["frames"]):
        game.look()
        maps = [softmax(golden["logits"][0, layer, frame][..., ids]) for layer, ids in enumerate(game.ids)]
        before = game.total
        decisions = game.judge([attention.sum((0, 1)) for attention in maps])
        assert_remembers(game, golden, f"{run}/", frame)
        removed = [int((~decision.stays).sum()) for decision in decisions]
        assert removed == golden[f"{run}/removed"][frame].tolist()
        assert before - game.total == sum(removed)


@pytest.mark.parametrize("run", MODEL_RUNS)
def test_policy_keeps_what_the_golden_models_keep(run: str, play: Any, eviction_golden: Callable[[str], Any]) -> None:
    golden, options = eviction_golden(f"eviction_{run}")
    policy = Layerwise(
        budget_ratio=options["budget_ratio"],
        temperature=options["temp"],
        num_frames=8,
        special_tokens=5,
        strict=options["strict"],
    )
    game = play(policy, 4, 25, num_heads=2)
    for frame in range(8):
        game.look()
        sums = [golden["colsum"][frame, layer, : len(tokens)] for layer, tokens in enumerate(game.tokens)]
        if 0 < frame < 7:
            variances = [spread(of_layer) for of_layer in sums]
            np.testing.assert_allclose(variances, golden["variances"][frame], rtol=1e-4)
        decisions = game.judge([2 * of_layer for of_layer in sums])
        assert_remembers(game, golden, "", frame)
        assert [int((~decision.stays).sum()) for decision in decisions] == golden["removed"][frame].tolist()
    assert game.total <= policy.most_tokens(StreamLayout(num_layers=4, num_heads=2, head_dim=16, tokens_per_frame=25))


@pytest.mark.parametrize("run", [*MODEL_RUNS, "stream3r_violate_p20_t0.5", "stream3r_violate_p40_t0.05"])
def test_shares_and_targets_follow_from_the_golden_variances(run: str, eviction_golden: Callable[[str], Any]) -> None:
    golden, options = eviction_golden(f"eviction_{run}")
    for frame in range(1, 7):
        shares = softmax_shares(golden["variances"][frame].tolist(), options["temp"])
        np.testing.assert_allclose(shares, golden["alphas"][frame], rtol=1e-4)
        if "targets" in golden:
            targets = dropped_by_now(shares, 25 * (frame + 1), options["budget_ratio"] * 8 * 25)
            assert targets == golden["targets"][frame].tolist()


def test_batch_of_two_has_the_golden_shares_and_one_set_of_tokens(eviction_golden: Callable[[str], Any]) -> None:
    golden, runs = eviction_golden("eviction_algorithm_B")
    run = runs["b2_p50_t0.5"]
    golden |= {name.removeprefix("b2_p50_t0.5/"): values for name, values in golden.items()}
    ids = [np.arange(0)] * 2
    attention, exposure = [np.zeros(0, dtype=np.float32)] * 2, [np.zeros(0, dtype=np.float32)] * 2
    for frame in range(6):
        ids = [np.concatenate((of_layer, np.arange(8 * frame, 8 * frame + 8))) for of_layer in ids]
        sums = [softmax(golden["logits"][:, layer, frame, 0][..., ids[layer]]).sum(1) for layer in range(2)]
        for layer in range(2):
            fresh = np.zeros(8, dtype=np.float32)
            attention[layer] = np.concatenate((attention[layer], fresh)) + np.float32(
                len(ids[layer]) * sums[layer].mean(0)
            )
            attention[layer][-8 : (None if frame == 0 else -5)] = np.inf
            exposure[layer] = np.concatenate((exposure[layer], fresh)) + np.float32(1)
        if 0 < frame < 5:
            shares = softmax_shares([spread(of_layer) for of_layer in sums], run["temp"])
            np.testing.assert_allclose(shares, golden["alphas"][frame], rtol=1e-5)
            targets = dropped_by_now(shares, 8 * (frame + 1), run["P"] * 6 * 8)
            assert targets == golden["targets"][frame].tolist()
            for layer in range(2):
                leaving = targets[layer] - (8 * (frame + 1) - len(ids[layer]))
                stays = stays_of_layer(attention[layer], exposure[layer], leaving, strict=False)
                ids[layer] = ids[layer][stays]
                attention[layer], exposure[layer] = attention[layer][stays], exposure[layer][stays]
        for layer in range(2):
            kept = golden["kept_ids"][frame, layer]
            assert ids[layer].tolist() == kept[kept >= 0].tolist()


def transcribed(
    policy: Layerwise, sums: list[dict[int, float]], state: list[dict[int, list[float]]], frame: int
) -> None:
    """One frame of the published algorithm, token by token; `state` maps ids to attention and exposure."""
    tokens, layers = 6, len(state)
    for layer in range(layers):
        for token in sums[layer]:
            entry = state[layer].setdefault(token, [0.0, 0])
            entry[0] += len(sums[layer]) * sums[layer][token]
            entry[1] += 1
            if frame == 0 or (token // tokens == frame and token % tokens < policy.special_tokens):
                entry[0] = float("inf")
    if frame == 0 or frame >= policy.num_frames - 1:
        return
    variances = [np.var(list(of_layer.values())) for of_layer in sums]
    weights = [np.exp(-(value - min(variances)) / policy.temperature) for value in variances]
    for layer in range(layers):
        share = weights[layer] / sum(weights)
        seen = tokens * (frame + 1)
        target = int(max(0, seen - policy.budget_ratio * policy.num_frames * layers * tokens * share))
        leaving = target - (seen - len(state[layer])) if target else 0
        by_score = sorted(state[layer], key=lambda token: state[layer][token][0] / (state[layer][token][1] + 1e-6))
        if policy.strict:
            by_score = [token for token in by_score if state[layer][token][0] < float("inf")]
        for token in by_score[: max(0, leaving)]:
            del state[layer][token]


@settings(max_examples=25, deadline=None)
@given(
    st.floats(0.2, 1.2),
    st.floats(0.05, 3.0),
    st.integers(1, 14),
    st.integers(0, 3),
    st.booleans(),
    st.integers(0, 2**20),
)
def test_policy_equals_the_algorithm_token_by_token(
    play: Any, ratio: float, temperature: float, num_frames: int, special: int, strict: bool, seed: int
) -> None:
    policy = Layerwise(
        budget_ratio=ratio, temperature=temperature, num_frames=num_frames, special_tokens=special, strict=strict
    )
    game, state = play(policy, 3, 6), [{}, {}, {}]
    layout = StreamLayout(num_layers=3, num_heads=2, head_dim=4, tokens_per_frame=6)
    for frame in range(12):
        game.look()
        attention_mass = [game._draw(seed + frame, layer).astype(np.float32) for layer in range(3)]
        sums = [dict(zip(ids, got / 2, strict=True)) for ids, got in zip(game.ids, attention_mass, strict=True)]
        game.judge(attention_mass)
        transcribed(policy, sums, state, frame)
        assert [set(ids) for ids in game.ids] == [set(layer) for layer in state]
        if frame < num_frames:
            assert game.total <= policy.most_tokens(layout)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 3), max_size=12), st.floats(0.1, 1.0), st.booleans(), st.integers(0, 2**16))
def test_bound_holds_for_clips_of_several_frames(
    play: Any, sizes: list[int], ratio: float, strict: bool, seed: int
) -> None:
    policy = Layerwise(
        budget_ratio=ratio, temperature=0.3, num_frames=max(1, sum(sizes)), special_tokens=2, strict=strict
    )
    game = play(policy, 3, 6)
    layout = StreamLayout(num_layers=3, num_heads=2, head_dim=4, tokens_per_frame=6)
    for step, num_frames in enumerate(sizes):
        game.step(seed + step, num_frames)
        assert game.total <= policy.most_tokens(layout, clip_frames=max(sizes))
        if strict:
            assert all(set(range(6)) <= set(ids) for ids in game.ids)


def test_published_rule_evicts_what_it_says_it_protects_and_strict_does_not(play: Any) -> None:
    for strict in (False, True):
        policy = Layerwise(budget_ratio=0.1, temperature=0.5, num_frames=20, special_tokens=2, strict=strict)
        game = play(policy, 2, 6)
        for frame in range(15):
            game.step(frame)
        first_frame = [sum(token < 6 for token in ids) for ids in game.ids]
        assert (min(first_frame) == 6) == strict


def test_half_a_budget_over_ten_frames_keeps_half(play: Any) -> None:
    policy = Layerwise(budget_ratio=0.5, temperature=0.5, num_frames=10, special_tokens=5, strict=False)
    game = play(policy, 4, 40)
    for frame in range(10):
        game.step(frame)
    assert 0.5 <= game.total / (4 * 40 * 10) <= 0.7


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"budget_ratio": 0.0}, "above 0, but got 0.0 and 0.5"),
        ({"temperature": float("inf")}, "above 0, but got 0.5 and inf"),
        ({"num_frames": 0}, "1 to 1000000000"),
        ({"special_tokens": -1}, "special tokens >= 0"),
    ],
)
def test_settings_without_meaning_are_refused(options: dict[str, Any], sentence: str) -> None:
    usual = {"budget_ratio": 0.5, "temperature": 0.5, "num_frames": 10, "special_tokens": 5}
    with pytest.raises(SettingError, match=sentence):
        Layerwise(**usual | options)
