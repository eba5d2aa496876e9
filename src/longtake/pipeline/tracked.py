"""How frames were tracked: what is told of it while they come, and counted when they are final."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from longtake.exports.tracking import TrackingSummary
from longtake.pipeline.events import Begun, Found, Lost
from longtake.types import Tracking, TrackingReason, TrackingState


class TrackingTeller:
    """Tells when the camera is lost, goes on and is found; once each, though a frame may be told again."""

    def __init__(self) -> None:
        self._is_lost, self._newest, self._found = False, -1, -1

    def take(self, index: int, timestamp_s: float, tracking: Tracking | None) -> Iterator[Lost | Begun | Found]:
        """A frame as it is known now."""
        if tracking is None:
            return
        is_lost = tracking.state is TrackingState.LOST
        if index > self._newest and is_lost != self._is_lost:
            if tracking.sub_map is None:
                assert tracking.reason is not None
                yield Lost(index=index, timestamp_s=timestamp_s, reason=tracking.reason)
            else:
                yield Begun(index=index, timestamp_s=timestamp_s, sub_map=tracking.sub_map)
            self._is_lost = is_lost
        if tracking.state is TrackingState.RELOCALISED and index > self._found:
            assert tracking.sub_map is not None
            yield Found(index=index, timestamp_s=timestamp_s, sub_map=tracking.sub_map)
            self._found = index
        self._newest = max(self._newest, index)

    def state(self) -> Mapping[str, Any]:
        """As plain values."""
        return {"is_lost": self._is_lost, "newest": self._newest, "found": self._found}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._is_lost = state.get("is_lost", False)
        self._newest, self._found = state.get("newest", -1), state.get("found", -1)


def count_tracking(counts: Counter[str], tracking: Tracking | None, *, later: int = 0) -> None:
    """Add a final frame to the counts of a run, under names of their own; its sub-map has a number so much higher."""
    if tracking is not None:
        counts[_key(tracking.state)] += 1
        if tracking.reason is not None:
            counts[_key(tracking.state, tracking.reason)] += 1
        if tracking.sub_map is not None:
            counts[_sub_map_key(later + tracking.sub_map)] += 1


def tracking_summary(counts: Mapping[str, int], *, num_sub_maps: int, apart: Iterable[int]) -> TrackingSummary | None:
    """None where nothing was tracked."""
    apart = tuple(apart)
    states = {state.value: counts[_key(state)] for state in TrackingState if counts.get(_key(state))}
    if not states:
        return None
    reasons = {
        state: {why.value: counts[_key(state, why)] for why in TrackingReason if counts.get(_key(state, why))}
        for state in states
    }
    return TrackingSummary(
        states=states,
        reasons={state: found for state, found in reasons.items() if found},
        num_sub_maps=num_sub_maps,
        apart=apart,
        frames_apart=sum(counts.get(_sub_map_key(number), 0) for number in apart),
    )


def _sub_map_key(number: int) -> str:
    return f"tracking in sub-map {number}"


def _key(state: str, reason: str | None = None) -> str:
    return f"tracking {state}" if reason is None else f"tracking {state}, {reason}"
