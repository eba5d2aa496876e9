"""Decisions of all layers at once, as tensors, against those layer by layer on the host; and their parts."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from longtake.memory.books import decide_on, stacked
from longtake.memory.policies import allocation
from longtake.memory.policies import stacked as on_tensors
from longtake.memory.policies.budgeted import Managed
from longtake.memory.policies.layerwise import Layerwise
from longtake.memory.policies.ratio import Ratio
from longtake.memory.policy import Clip, StackedPolicy
from longtake.memory.tokens import StreamLayout

CPU = torch.device("cpu")
LAYOUT = StreamLayout(num_layers=3, num_heads=2, head_dim=4, tokens_per_frame=8, special_tokens=2)
MANAGED = Managed(num_frames=4, special_frames=3).for_stream(LAYOUT)
POLICIES: dict[str, StackedPolicy] = {
    "managed": MANAGED,
    "fading": replace(MANAGED, decay=0.7, recent=2),
    "sharp": replace(MANAGED, temperature=0.01, smoothing=0.0),
    "just what is protected": replace(MANAGED, num_tokens=MANAGED.least_tokens(LAYOUT)),
    "one more": replace(MANAGED, num_tokens=MANAGED.least_tokens(LAYOUT) + 1),
    "plenty": replace(MANAGED, num_tokens=10**6),
    "ratio": Ratio(special_frames=3).for_stream(LAYOUT),
    "ratio of anchors": Ratio(special_frames=3, anchors=99).for_stream(LAYOUT),
    "layerwise": Layerwise(num_frames=12, budget_ratio=0.3, strict=False).for_stream(LAYOUT),
    "strict": Layerwise(num_frames=12, budget_ratio=0.2).for_stream(LAYOUT),
    "short": Layerwise(num_frames=5, budget_ratio=0.3).for_stream(LAYOUT),
}
EVERY_POLICY = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


def assert_decides_alike(game: Any, mass: list[np.ndarray], num_frames: int) -> None:
    """Of what is played, on paper and as tensors."""
    tokens, memos = list(game.tokens), list(game.memos)
    clip = Clip(num_kept=game.num_kept, num_frames=num_frames, tokens_per_frame=8, num_heads=2)
    tensors = [torch.from_numpy(of_layer.astype(np.float32)) for of_layer in mass]
    got = decide_on(CPU, game.policy, tokens, tensors, memos, clip)
    for layer, (one, other) in enumerate(zip(got, game.judge(mass, num_frames), strict=True)):
        assert np.array_equal(one.stays, other.stays), layer
        assert np.array_equal(one.token_stats, other.token_stats)
        assert one.layer_stats == pytest.approx(other.layer_stats, rel=1e-12)


@EVERY_POLICY
@settings(max_examples=20, deadline=None)
@given(clips=st.lists(st.integers(1, 3), min_size=1, max_size=9), seed=st.integers(0, 10**6))
def test_layers_together_decide_as_one_by_one(play: Any, policy: StackedPolicy, clips: list[int], seed: int) -> None:
    game = play(policy, 3, 8)
    for number, num_frames in enumerate(clips):
        game.look(num_frames)
        assert_decides_alike(game, [game._draw(seed + number, layer) for layer in range(3)], num_frames)


@EVERY_POLICY
@settings(max_examples=20, deadline=None)
@given(num_clips=st.integers(1, 9), seed=st.integers(0, 10**6))
@example(num_clips=3, seed=640)  # two layers have a claim to half a token each, but for the last bit of a logarithm
def test_of_equals_the_same_leave(play: Any, policy: StackedPolicy, num_clips: int, seed: int) -> None:
    game, generator = play(policy, 3, 8), np.random.default_rng(seed)
    for _ in range(num_clips):
        game.look()
        assert_decides_alike(game, [generator.integers(0, 3, len(tokens)) for tokens in game.tokens], 1)


@EVERY_POLICY
def test_padding_changes_no_bit(play: Any, policy: StackedPolicy) -> None:
    game = play(policy, 3, 8)
    for seed in range(6):
        game.look()
        mass = [torch.from_numpy(game._draw(seed, layer).astype(np.float32)) for layer in range(3)]
        clip = Clip(num_kept=game.num_kept, num_frames=1, tokens_per_frame=8, num_heads=2)
        narrow = stacked(CPU, game.tokens, mass, game.memos, clip)
        width = narrow.frame.shape[1]

        def padded(tensor: torch.Tensor, value: float) -> torch.Tensor:
            return torch.nn.functional.pad(tensor, (0, 77), value=value)

        wide = replace(
            narrow,
            frame=padded(narrow.frame, 5),
            index=padded(narrow.index, 1),
            token_stats=padded(narrow.token_stats, 7.0),
            attention_mass=padded(narrow.attention_mass, torch.nan),
        )
        one, other = policy.decide_stacked(narrow), policy.decide_stacked(wide)
        here = narrow.is_token
        assert torch.equal(one.stays[here], other.stays[:, :width][here])
        assert torch.equal(one.token_stats[:, here], other.token_stats[:, :, :width][:, here])
        assert torch.equal(one.layer_stats, other.layer_stats)
        game.judge([of_layer.numpy() for of_layer in mass])


VESSELS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 20), st.sampled_from([0.0, 1e-310, 1e-9, 0.1, 0.25, 0.5, 1.0, 3.0])),
    min_size=1,
    max_size=9,
)


@settings(max_examples=300, deadline=None)
@given(vessels=VESSELS, total=st.integers(0, 200))
def test_vessels_are_filled_alike(vessels: list[tuple[int, int, float]], total: int) -> None:
    floors, rooms, shares = zip(*vessels, strict=True)
    total = max(total, sum(floors))
    sizes = [floor + room for floor, room in zip(floors, rooms, strict=True)]
    want = allocation.fill(total, np.array(shares), floors=floors, sizes=sizes)
    got = on_tensors.fill(
        total,
        torch.tensor(shares, dtype=torch.float64),
        floors=torch.tensor(floors),
        sizes=torch.tensor(sizes),
    )
    assert tuple(got.tolist()) == want.keep


def test_sum_is_that_of_its_halves_whatever_zeros_follow() -> None:
    numbers = torch.rand(3, 37, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    want = on_tensors.sum_of(numbers)
    assert torch.allclose(want, numbers.sum(1))
    for count in (1, 27, 500):
        assert torch.equal(on_tensors.sum_of(torch.nn.functional.pad(numbers, (0, count))), want)
