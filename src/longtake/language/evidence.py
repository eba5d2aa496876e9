"""Which moments an answer attended to: attention summed by grid, the strongest given as spans of time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int

from longtake.memory.policy import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A span of the video, and its share of the attention that went to all spans given."""

    start_s: float
    end_s: float
    weight: float


def evidence(
    segments: Sequence[Segment],
    token: Int[np.ndarray, " tokens"],
    attention_mass: Float64[np.ndarray, " tokens"],
    *,
    until_s: float | None,
    most: int = 3,
) -> tuple[Evidence, ...]:
    """The grids that received most for each of their tokens, strongest first; neighbours among them become one span.

    `attention_mass` is by token, and `token` holds which one of the conversation each entry belongs to; `until_s` is
    when the last frame was seen, None where there was none.
    """
    if until_s is None:
        return ()
    order = np.argsort(token)
    ordered = token[order]
    weights = [_mean(segment, ordered, attention_mass[order]) for segment in segments]
    strongest = sorted(np.argsort(np.negative(weights), kind="stable")[:most].tolist())
    if not strongest or not sum(weights[place] for place in strongest):
        return ()
    ends = [*(segment.time_s for segment in segments[1:]), until_s]
    spans: list[Evidence] = []
    for place in strongest:
        span = Evidence(start_s=segments[place].time_s, end_s=ends[place], weight=weights[place])
        if spans and spans[-1].end_s == span.start_s:
            span = Evidence(start_s=spans[-1].start_s, end_s=span.end_s, weight=spans.pop().weight + span.weight)
        spans.append(span)
    total = sum(span.weight for span in spans)
    shares = [Evidence(start_s=span.start_s, end_s=span.end_s, weight=span.weight / total) for span in spans]
    return tuple(sorted(shares, key=lambda span: -span.weight))


def _mean(segment: Segment, token: Int[np.ndarray, " tokens"], attention_mass: Float64[np.ndarray, " tokens"]) -> float:
    start, stop = np.searchsorted(token, (segment.first, segment.first + segment.num_tokens))
    return float(attention_mass[start:stop].sum()) / segment.num_tokens
