"""What a dialogue says: answers, choices, and how the session stands."""

from dataclasses import dataclass
from enum import StrEnum

from longtake.language.evidence import Evidence


class Ending(StrEnum):
    """Why an answer ends."""

    STOP = "stop"
    """The network, or a stop text, ended it."""
    LENGTH = "length"
    """It became as long as was allowed."""
    REFUSED = "refused"
    """The question is outside of what the model knows; the text says what it knows, and nothing was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds from the question to its answer."""

    fork_s: float
    prefill_s: float
    """From the fork to the first token, which is on the host by then."""
    first_token_s: float
    """From the question to the first token."""
    total_s: float
    tokens_per_s: float | None
    """After the first; None where there was no more than one."""

    @classmethod
    def at_once(cls, seconds: float) -> "Timing":
        """Of what needs no network."""
        return cls(fork_s=0.0, prefill_s=0.0, first_token_s=seconds, total_s=seconds, tokens_per_s=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was said, and about which moment."""

    text: str
    ids: tuple[int, ...]
    ending: Ending
    seen_until_s: float | None
    """The time of the last frame seen; None where there was no video, and the answer is about the words alone."""
    evidence: tuple[Evidence, ...]
    """The spans that the answer attended to most, each word as it was to be said, strongest first; weights sum to 1."""
    timing: Timing


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
    """Of the likelihood of all letters as the first token; they sum to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogueInfo:
    """What a session has seen and holds."""

    num_frames: int
    num_forgotten: int
    """Grids, or turns, that have left."""
    num_tokens: int
    num_bytes: int
    """Declared for keys and values."""
    live_bytes: int
    next_position: int
    seen_until_s: float | None
    seeing_s: float
    """Spent on frames so far."""
