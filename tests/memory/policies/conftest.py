"""A memory on paper that plays clips through a policy, and golden numbers of evictions."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from longtake.memory.policy import Clip, EvictionDecision, LayerState, PerLayerPolicy
from longtake.memory.tokens import Tokens

GOLDEN = Path(__file__).parents[2] / "golden" / "stream3r"


@dataclass
class Play:
    """Tokens, notes and memos of each layer, as a memory would keep them; `shuffle` mixes them before each clip."""

    policy: PerLayerPolicy
    num_layers: int
    tokens_per_frame: int
    num_heads: int = 2
    shuffle: np.random.Generator | None = None
    num_kept: int = 0
    tokens: list[Tokens] = field(default_factory=list)
    keys: list[Tensor] = field(default_factory=list)
    memos: list[tuple[float, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tokens = [Tokens.empty(self.policy.num_token_stats)] * self.num_layers
        self.keys = [torch.zeros(0, self.num_heads, 4)] * self.num_layers
        self.memos = [(0.0,) * self.policy.num_layer_stats] * self.num_layers

    @property
    def ids(self) -> list[list[int]]:
        """Frame · tokens per frame + index of what each layer remembers."""
        return [(tokens.frame * self.tokens_per_frame + tokens.index).tolist() for tokens in self.tokens]

    @property
    def total(self) -> int:
        return sum(map(len, self.tokens))

    def look(self, num_frames: int = 1, new_keys: Sequence[Tensor] | None = None) -> None:
        """Take a clip in; it is judged next."""
        frames = range(self.num_kept, self.num_kept + num_frames)
        slot = np.arange(self.num_kept, self.num_kept + num_frames).repeat(self.tokens_per_frame)
        own = Tokens.of_frames(list(frames), self.tokens_per_frame, slot, self.policy.num_token_stats)
        self.num_kept += num_frames
        for layer in range(self.num_layers):
            order = self._order(len(self.tokens[layer]))
            self.tokens[layer] = Tokens.join([self.tokens[layer].take(order), own])
            fresh = torch.zeros(len(own), self.num_heads, 4) if new_keys is None else new_keys[layer]
            self.keys[layer] = torch.cat([self.keys[layer][torch.from_numpy(order)], fresh])

    def judge(self, attention_mass: Sequence[np.ndarray] | None = None, num_frames: int = 1) -> list[EvictionDecision]:
        """Let the policy decide, and forget as it says."""
        layers = [
            LayerState(
                tokens=self.tokens[layer],
                attention_mass=attention_mass[layer].astype(np.float32) if attention_mass is not None else None,
                keys=self.keys[layer] if self.policy.wants_keys else None,
                layer_stats=self.memos[layer],
            )
            for layer in range(self.num_layers)
        ]
        clip = Clip(
            num_kept=self.num_kept,
            num_frames=num_frames,
            tokens_per_frame=self.tokens_per_frame,
            num_heads=self.num_heads,
        )
        decisions = self.policy.decide(layers, clip)
        for layer, decision in enumerate(decisions):
            assert decision.token_stats.shape == (len(self.tokens[layer]), self.policy.num_token_stats)
            assert len(decision.layer_stats) == self.policy.num_layer_stats
            self.tokens[layer] = self.tokens[layer].with_stats(decision.token_stats).take(decision.stays)
            self.keys[layer] = self.keys[layer][torch.from_numpy(decision.stays)]
            self.memos[layer] = decision.layer_stats
        return decisions

    def step(self, seed: int, num_frames: int = 1) -> list[EvictionDecision]:
        """A clip whose attention and keys depend on the seed and on each token's identity, never on the order."""
        shape = (num_frames * self.tokens_per_frame, self.num_heads, 4)
        generator = torch.Generator().manual_seed(seed)
        self.look(num_frames, [torch.randn(shape, generator=generator) for _ in range(self.num_layers)])
        attention_mass = (
            [self._draw(seed, layer) for layer in range(self.num_layers)] if self.policy.wants_attention_mass else None
        )
        return self.judge(attention_mass, num_frames)

    def _draw(self, seed: int, layer: int) -> np.ndarray:
        ids = np.asarray(self.ids[layer])
        weights = np.random.default_rng((seed, layer)).exponential(size=ids.max() + 1)[ids] ** (layer + 1)
        queries = self.tokens_per_frame * self.num_heads
        return weights / weights.sum() * queries

    def _order(self, count: int) -> np.ndarray:
        return np.arange(count) if self.shuffle is None else self.shuffle.permutation(count)


@pytest.fixture(scope="session")
def play() -> type[Play]:
    return Play


@pytest.fixture(scope="session")
def eviction_golden() -> Callable[[str], tuple[dict[str, np.ndarray], dict[str, Any]]]:
    """Arrays and settings of one file of tests/golden/stream3r by name."""

    def read(name: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        with np.load(GOLDEN / f"{name}.npz") as file:
            arrays = dict(file)
        return arrays, json.loads(str(arrays.pop("settings")))

    return read
