"""How the frames of a run were tracked, counted, and said in one sentence."""

from collections.abc import Mapping
from dataclasses import dataclass

from longtake.records import record_from
from longtake.types import TrackingState, counted


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingSummary:
    """Of frames that are final."""

    states: Mapping[str, int]
    """Frames of each state that there was."""
    reasons: Mapping[str, Mapping[str, int]]
    """Of each state, frames by their reasons."""
    num_sub_maps: int
    apart: tuple[int, ...]
    """Numbers of the sub-maps that no loop joined to the first: they lie in worlds of their own."""

    @property
    def in_words(self) -> str | None:
        """None where there is nothing to say."""
        said = [
            f"{state.value} in {counted(self.states[state], 'frame')}{self._why(state)}"
            for state in (TrackingState.LOST, TrackingState.WEAK)
            if self.states.get(state)
        ]
        if self.num_sub_maps > 1:
            apart = f"{len(self.apart)} of them not joined" if self.apart else "all joined"
            said.append(f"{self.num_sub_maps} sub-maps, {apart}")
        return f"Tracking: {'; '.join(said)}." if said else None

    def _why(self, state: TrackingState) -> str:
        reasons = self.reasons.get(state, {})
        if len(reasons) == 1:
            return f" ({next(iter(reasons))})"
        told = ", ".join(f"{reason} {number}" for reason, number in reasons.items())
        return f" ({told})" if told else ""


def tracking_in(told: Mapping[str, object]) -> TrackingSummary | None:
    """Of a summary that was read back; None for one that says nothing of it, or is damaged."""
    try:
        return record_from(TrackingSummary, told.get("tracking"))
    except ValueError:
        return None
