"""Results of a dialogue: answers and which moments they attended to, scored choices, and how much a session holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from jaxtyping import Float64, Int

from longtake.errors import UnknownWordsError
from longtake.memory.policy import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A span of the video, and its share of the attention that went to all spans given."""

    start_s: float
    end_s: float
    weight: float


class Ending(StrEnum):
    """Why an answer ends."""

    STOP = "stop"
    """The network, or a stop text, ended it."""
    LENGTH = "length"
    """It became as long as was allowed."""
    REFUSED = "refused"
    """The question is outside of what the model knows, and was not put to it; the text says what to ask instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds from the question to its answer."""

    fork_s: float
    prefill_s: float
    """From the fork to the first token."""
    first_token_s: float
    """From the question to the first token."""
    total_s: float
    tokens_per_s: float | None
    """After the first; None where there was no more than one."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The two parts of a refusal, so that of several questions what the model knows is said once."""

    why: str
    known: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a question about a video; as a string, its text."""

    text: str
    ids: tuple[int, ...]
    """Tokens of the text, with the one that ended it where one did."""
    ending: Ending
    seen_until_s: float | None
    """Time of the last frame that the answer takes into account; None where no frame was seen."""
    evidence: tuple[Evidence, ...]
    """Spans of the video that its tokens attended to most, strongest first; weights sum to 1."""
    timing: Timing
    refusal: Refusal | None = None
    """The text in its parts, where the question was refused."""
    num_prompt_tokens: int = 0
    """That it was made from: what is remembered of the video, and the question."""

    @classmethod
    def refused(cls, error: UnknownWordsError, seen_until_s: float | None, seconds: float) -> "Answer":
        """To a question that was not put to the network, after so many seconds."""
        return cls(
            text=error.brief,
            ids=(),
            ending=Ending.REFUSED,
            seen_until_s=seen_until_s,
            evidence=(),
            timing=Timing(fork_s=0.0, prefill_s=0.0, first_token_s=seconds, total_s=seconds, tokens_per_s=None),
            refusal=Refusal(error.why, error.known),
        )

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of several answers, and how likely the network finds it."""

    text: str
    sum_log_likelihood: float
    mean_log_likelihood: float
    """Over its tokens, so that long choices are not at a disadvantage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterChoice:
    """One of several answers that were offered by letters."""

    text: str
    letter: str
    share: float
    """Of the probability of all letters as the first token; they sum to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogueInfo:
    """What a session has seen and holds."""

    num_frames: int
    num_forgotten: int
    """Temporal grids, or turns, that were evicted."""
    num_tokens: int
    """In memory, those of forks and questions under way included."""
    num_places: int
    """Most tokens of the video and the talk, those of questions under way not counted."""
    num_bytes: int
    """Allocated for keys and values."""
    live_bytes: int
    """Of them in use."""
    next_position: int
    seen_until_s: float | None
    seeing_s: float
    """Seconds spent on frames so far."""


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
