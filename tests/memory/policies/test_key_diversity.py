"""Keys unlike the others stay."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cosine_similarity

from longtake.errors import BudgetError, SettingError
from longtake.memory.policies.budgeted import KeyDiversity, similarity
from longtake.memory.tokens import StreamLayout


def test_similarity_is_the_mean_cosine_to_the_mean_direction() -> None:
    keys = torch.randn(9, 3, 4, generator=torch.Generator().manual_seed(0))
    among = np.arange(9) > 2
    means = (keys[3:] / keys[3:].norm(dim=-1, keepdim=True)).mean(0)
    want = cosine_similarity(keys, means[None], dim=-1).mean(1)
    np.testing.assert_allclose(similarity(keys, among), want.numpy(), atol=1e-6)
    np.testing.assert_allclose(similarity(7 * keys, among), want.numpy(), atol=1e-6)


def test_the_odd_one_out_stays(play: Any) -> None:
    game = play(KeyDiversity(num_tokens=9, special_tokens=0, special_frames=0), 1, 4)
    usual, odd = torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor([0.0, 0.0, 1.0, 0.0])
    for frame in range(3):
        keys = usual.repeat(4, 2, 1) + 0.01 * torch.arange(4).reshape(4, 1, 1)
        if frame == 1:
            keys[2] = odd
        game.look(1, [keys])
        game.judge()
    assert game.ids == [[0, 1, 2, 3, 6, 8, 9, 10, 11]]


def test_layer_of_diverse_keys_keeps_more(play: Any) -> None:
    game = play(KeyDiversity(num_tokens=100, special_tokens=0), 2, 8)
    generator = torch.Generator().manual_seed(0)
    for _ in range(12):
        diverse = torch.randn(8, 2, 4, generator=generator)
        alike = 0.1 * torch.randn(8, 2, 4, generator=generator) + 1
        game.look(1, [alike, diverse])
        game.judge()
    alike_kept, diverse_kept = map(len, game.tokens)
    assert alike_kept + diverse_kept == 100
    assert diverse_kept > alike_kept + 20


def test_budget_too_small_is_refused() -> None:
    layout = StreamLayout(num_layers=2, num_heads=1, head_dim=4, tokens_per_frame=10)
    with pytest.raises(BudgetError, match="the smallest that works is 40"):
        KeyDiversity(num_tokens=39, special_tokens=5, special_frames=1).most_tokens(layout)
    with pytest.raises(SettingError, match="1 token"):
        KeyDiversity(num_tokens=0, special_tokens=5)
