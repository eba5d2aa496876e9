"""The newest frames of a dialogue and a sample of all that was before, even in time or of what was new."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from longtake.errors import SettingError
from longtake.memory.policy import Segment, SegmentPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinnedPast(SegmentPolicy):
    """The newest `recent` segments stay; of those before them the one leaves that is missed least, again and again; of
    equals the older. When the past is used up, the oldest of the recent leave."""

    recent: int = 8

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

    @abstractmethod
    def _loss(self, left: Sequence[Segment], place: int) -> float:
        """How much the segment at this place would be missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinned(ThinnedPast):
    """Of the past, the segment with the smallest gap in time between its neighbours is missed least."""

    def _loss(self, left: Sequence[Segment], place: int) -> float:
        before = left[place - 1].time_s if place else float("-inf")
        after = left[place + 1].time_s if place + 1 < len(left) else float("inf")
        return after - before


@dataclass(frozen=True, slots=True, kw_only=True)
class Novel(ThinnedPast):
    """Of the past, the segment that differs least from the one before it is missed least."""

    def _loss(self, left: Sequence[Segment], place: int) -> float:
        return left[place].novelty
