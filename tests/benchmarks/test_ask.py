"""What a question costs, on a tiny network."""

import pytest
import torch

from benchmarks.ask import TINY, measure_ask, random_language
from longtake.bench.answers_offline import plain_twin
from longtake.errors import SettingError


def test_both_ways_begin_with_the_same_token() -> None:
    figures = measure_ask(TINY, 16, repeats=3)
    assert figures.agrees
    assert figures.num_tokens == 16 * 6 + 15
    assert figures.cache_bytes == figures.num_tokens * 2 * 2 * 2 * 16 * 4
    assert min(figures.fork_s, figures.session_s, figures.plain_s) > 0
    assert figures.ratio == figures.plain_s / figures.session_s
    assert 0 < figures.prepare_s < figures.plain_s
    assert min(figures.watch_bytes, figures.session_bytes, figures.plain_bytes) >= 0


def test_random_network_is_the_same_each_time_and_its_twin_shares_its_weights() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again = random_language(TINY).model, random_language(TINY).model
    twin = plain_twin(first)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one, other) for one, other in zip(first.parameters(), again.parameters(), strict=True))
    pairs = list(zip(first.parameters(), twin.parameters(), strict=True))
    assert pairs
    assert all(one.data_ptr() == other.data_ptr() for one, other in pairs)


def test_nothing_to_watch_is_refused() -> None:
    with pytest.raises(SettingError, match="one chunk and one question"):
        measure_ask(TINY, 0, repeats=1)
