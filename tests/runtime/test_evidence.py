"""Attention by token to spans of time."""

import numpy as np
import pytest

from longtake.memory.policy import Segment
from longtake.runtime.answers import evidence


def segments(count: int) -> list[Segment]:
    return [Segment(first=5 + 3 * place, num_tokens=3, time_s=2.0 * place, novelty=1.0) for place in range(count)]


def attention_mass(count: int, **planted: float) -> tuple[np.ndarray, np.ndarray]:
    token = np.arange(5 + 3 * count)
    values = np.full(len(token), 0.01)
    values[:5] = 50.0  # words receive most, and are no evidence
    for place, value in planted.items():
        start = 5 + 3 * int(place[1:])
        values[start : start + 3] = value
    shuffled = np.random.default_rng(0).permutation(len(token))
    return token[shuffled], values[shuffled]


def test_strongest_spans_come_first_and_sum_to_one() -> None:
    spans = evidence(segments(6), *attention_mass(6, g1=2.0, g4=6.0), until_s=11.5, most=2)
    assert [(span.start_s, span.end_s) for span in spans] == [(8.0, 10.0), (2.0, 4.0)]
    assert [span.weight for span in spans] == pytest.approx([0.75, 0.25])


def test_neighbours_become_one_span_that_ends_with_the_video() -> None:
    (span,) = evidence(segments(6), *attention_mass(6, g4=2.0, g5=2.0), until_s=11.5, most=2)
    assert (span.start_s, span.end_s, span.weight) == (8.0, 11.5, 1.0)


def test_nothing_seen_is_no_evidence() -> None:
    assert evidence([], *attention_mass(0), until_s=1.0) == ()
