"""What of a long video stays when the memory is full: whole temporal grids, or whole turns, leave; words stay.

Policies are values. What comes before the first frame, the sink, and remembered questions are not theirs to drop.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from longtake.errors import SettingError

NAMES = ("window", "thinned", "novel")
"""Of policies: the newest alone, or with a sample of the past, even in time or of what was new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Tokens that only make sense together: a temporal grid of an open clip, or a turn."""

    first: int
    """Which token of the conversation is its first."""
    num_tokens: int
    time_s: float
    novelty: float
    """How much it differs from the one before it; infinite for the first."""
    extent: int = 0
    """By how many positions what comes after it moves back when it leaves: all that a turn takes up, and nothing for a
    grid, as time has gone on."""


class Retaining(ABC):
    """Chooses what leaves, when more comes than there is room for."""

    @abstractmethod
    def leaving(self, segments: Sequence[Segment], num_missing: int) -> list[Segment]:
        """Which of these, oldest first, leave to make room for so many tokens; fewer where there are not enough."""


@dataclass(frozen=True, slots=True)
class KeepUntilFull(Retaining):
    """Nothing leaves; when the memory is full, no more frames are taken."""

    def leaving(self, segments: Sequence[Segment], num_missing: int) -> list[Segment]:  # noqa: ARG002
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentFrames(Retaining):
    """The newest stay: as many as there is room for, or no more than `most` grids or turns beside the ones coming."""

    most: int | None = None

    def __post_init__(self) -> None:
        if self.most is not None and self.most < 1:
            raise SettingError(
                f"Expected to keep 1 recent grid or more, not {self.most}; leave it out for all that fit."
            )

    def leaving(self, segments: Sequence[Segment], num_missing: int) -> list[Segment]:
        surplus = 0 if self.most is None else max(0, len(segments) - self.most)
        count, freed = surplus, sum(segment.num_tokens for segment in segments[:surplus])
        while freed < num_missing and count < len(segments):
            freed += segments[count].num_tokens
            count += 1
        return list(segments[:count])


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinnedPast(Retaining):
    """The newest `recent` stay; of those before them the one leaves that is missed least, again and again.

    That is the one with the smallest gap in time between its neighbours, or `by_novelty` the one that differs least
    from the one before it; of equals the older. When the past is used up, the oldest of the recent leave.
    """

    recent: int = 8
    by_novelty: bool = False

    def __post_init__(self) -> None:
        if self.recent < 1:
            raise SettingError(f"Expected to keep 1 recent grid or more, not {self.recent}.")

    def leaving(self, segments: Sequence[Segment], num_missing: int) -> list[Segment]:
        left, leaving = list(segments), list[Segment]()
        while sum(segment.num_tokens for segment in leaving) < num_missing and left:
            past = range(max(1, len(left) - self.recent))
            place = min(past, key=lambda at: self._loss(left, at))
            leaving.append(left.pop(place))
        return leaving

    def _loss(self, left: Sequence[Segment], place: int) -> float:
        if self.by_novelty:
            return left[place].novelty
        before = left[place - 1].time_s if place else float("-inf")
        after = left[place + 1].time_s if place + 1 < len(left) else float("inf")
        return after - before


def dialogue_policy_named(name: str, *, recent: int = 8) -> Retaining:
    """By one of `NAMES`; beside a sample of the past stay so many recent grids."""
    match name:
        case "window":
            return RecentFrames()
        case "thinned" | "novel":
            return ThinnedPast(recent=recent, by_novelty=name == "novel")
        case _:
            raise SettingError(f"Expected {', '.join(NAMES[:-1])} or {NAMES[-1]} to stay in memory, but got '{name}'.")
