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
    frames_apart: int = 0
    """Frames of those."""

    @property
    def in_words(self) -> str | None:
        """What happened, and what that means for the results; None where there is nothing to say."""
        said = [
            f"{state.value} in {counted(self.states[state], 'frame')}{self._why(state)}"
            for state in (TrackingState.LOST, TrackingState.WEAK)
            if self.states.get(state)
        ]
        if self.num_sub_maps > 1:
            said.append(self.sub_maps_in_words)
        meaning = self._meaning
        return f"Tracking: {'; '.join(said)}.{f' {meaning}' if meaning else ''}" if said else None

    @property
    def has_trouble(self) -> bool:
        """Whether frames were lost or weak, or lie apart: several walks that were joined are none."""
        states = (TrackingState.LOST, TrackingState.WEAK)
        return bool(self.apart) or any(self.states.get(state) for state in states)

    @property
    def sub_maps_in_words(self) -> str:
        """Of several."""
        if not self.apart:
            return f"{self.num_sub_maps} sub-maps, all joined"
        frames = f" ({counted(self.frames_apart, 'frame')})" if self.frames_apart else ""
        return f"{self.num_sub_maps} sub-maps, {len(self.apart)} of them not joined{frames}"

    @property
    def _meaning(self) -> str:
        apart = "a sub-map that is not joined lies where the camera was last known, in a unit of its own"
        lost = "poses of lost frames say nothing"
        meant = "; ".join([*([apart] if self.apart else []), *([lost] if self.states.get(TrackingState.LOST) else [])])
        return f"{meant[:1].upper()}{meant[1:]}." if meant else ""

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
