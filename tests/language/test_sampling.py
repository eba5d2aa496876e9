import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.errors import InputError, SettingError
from longtake.language.sampling import TextSampling

SCORES = torch.tensor([0.5, 2.0, -1.0, 1.5, 0.0])


def draws(sampling: TextSampling, logits: torch.Tensor, count: int, suppressed: tuple[int, ...] = ()) -> list[int]:
    generator = sampling.new_generator()
    return [sampling.choose(logits, generator, suppressed) for _ in range(count)]


def slow_nucleus(scores: list[float], temperature: float, top_k: int | None, top_p: float) -> dict[int, float]:
    """The words that may be drawn and their shares, by sorting and adding up."""
    order = sorted(range(len(scores)), key=lambda word: -scores[word])[:top_k]
    weights = {word: math.exp((scores[word] - max(scores)) / temperature) for word in order}
    whole, reached, kept = sum(weights.values()), 0.0, {}
    for word, weight in weights.items():
        if reached >= top_p and kept:
            break
        kept[word] = weight
        reached += weight / whole
    return {word: weight / sum(kept.values()) for word, weight in kept.items()}


def test_no_float64_is_asked_of_a_device_that_may_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: torch.Tensor) -> None:
        raise TypeError("as MPS says it")

    monkeypatch.setattr(torch.Tensor, "double", refuse, raising=False)
    logits = torch.zeros(2, 200_000)
    logits[0, 199_999], logits[1, 131_073] = 1.0, 2.0
    generators = [TextSampling().new_generator() for _ in range(2)]
    assert TextSampling().choose_each(logits, generators) == [199_999, 131_073]


def test_without_temperature_the_best_word_is_taken() -> None:
    sampling = TextSampling()
    assert draws(sampling, SCORES, 3) == [1, 1, 1]
    assert draws(sampling, SCORES.bfloat16(), 1) == [1]
    assert draws(sampling, SCORES, 1, suppressed=(1,)) == [3]
    assert draws(sampling, SCORES, 1, suppressed=(3, 1, 0)) == [4]


def test_scores_given_are_left_as_they_are() -> None:
    scores = SCORES.clone()
    draws(TextSampling(temperature=1.0, top_p=0.5, top_k=2, seed=0), scores, 3, suppressed=(1,))
    assert torch.equal(scores, SCORES)


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, None, 1.0), (0.5, None, 1.0), (2.0, 3, 1.0), (1.0, None, 0.8), (1.5, 4, 0.7)],
)
def test_words_are_drawn_as_often_as_their_shares_say(temperature: float, top_k: int | None, top_p: float) -> None:
    sampling = TextSampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=5)
    expected = slow_nucleus(SCORES.tolist(), temperature, top_k, top_p)
    drawn = draws(sampling, SCORES, 3000)
    assert set(drawn) == set(expected)
    for word, share in expected.items():
        assert drawn.count(word) / len(drawn) == pytest.approx(share, abs=0.04)


@given(
    scores=st.lists(st.integers(-40, 40), min_size=2, max_size=30, unique=True),
    temperature=st.floats(0.05, 5.0),
    top_k=st.none() | st.integers(1, 40),
    top_p=st.floats(0.05, 1.0),
    seed=st.integers(0, 2**63 - 1),
)
@settings(deadline=None, max_examples=100)
def test_only_words_of_the_nucleus_are_drawn(
    scores: list[int], temperature: float, top_k: int | None, top_p: float, seed: int
) -> None:
    tenths = [score / 10 for score in scores]
    sampling = TextSampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    # a share that lies on the border to the last digit may count as either
    allowed = slow_nucleus(tenths, temperature, top_k, min(top_p + 1e-4, 1.0))
    assert set(draws(sampling, torch.tensor(tenths), 3)) <= set(allowed)


def test_suppressed_words_are_never_drawn() -> None:
    assert set(draws(TextSampling(temperature=5.0, seed=1), SCORES, 300, suppressed=(1, 2))) == {0, 3, 4}


def test_same_seed_draws_the_same_and_no_seed_draws_anew() -> None:
    logits = torch.zeros(1000)
    first, second = (draws(TextSampling(temperature=1.0, seed=7), logits, 20) for _ in range(2))
    assert first == second
    assert draws(TextSampling(temperature=1.0, seed=8), logits, 20) != first
    unseeded = TextSampling(temperature=1.0)
    assert draws(unseeded, logits, 20) != draws(unseeded, logits, 20)


def test_smallest_temperature_still_takes_the_best() -> None:
    assert draws(TextSampling(temperature=1e-40, seed=0), SCORES * 1e4, 5) == [1] * 5


@pytest.mark.parametrize("sampling", [TextSampling(), TextSampling(temperature=1.0, seed=0)])
@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_broken_scores_are_refused(sampling: TextSampling, broken: float) -> None:
    logits = SCORES.clone()
    logits[2] = broken
    with pytest.raises(InputError, match=r"finite scores .* try bfloat16 or float32\.$"):
        draws(sampling, logits, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -0.1}, r"temperature of 0 or more, got -0\.1"),
        ({"temperature": math.nan}, "temperature of 0 or more, got nan"),
        ({"temperature": math.inf}, "temperature of 0 or more, got inf"),
        ({"top_p": 0.0}, r"top_p above 0 and up to 1, got 0\.0"),
        ({"top_p": 1.1}, r"top_p above 0 and up to 1, got 1\.1"),
        ({"top_k": 0}, "top_k of 1 or more, got 0"),
        ({"max_new_tokens": 0}, "max_new_tokens of 1 or more, got 0"),
        ({"seed": -1}, "seed from 0 to .* got -1"),
        ({"stop": ("a", "")}, "stop texts of at least one character"),
    ],
)
def test_options_without_meaning_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        TextSampling(**options)
