"""How frames were tracked, as tensors, and back to the bit."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from longtake.places.overlay import Overlay
from longtake.places.tracking import Recent, Sight, Tracker, TrackingRule
from longtake.types import TrackingReason, TrackingState

_STATES, _REASONS = tuple(TrackingState), (None, *TrackingReason)
_RECENT, _OVERLAY = ("likeness", "sureness", "steps"), ("last", "stayed", "covered")
_SIGHT = ("blocks", "colours", "grey")
_COVERED = "overlay.covered"
_ARRAYS = ("descriptor", "pose", *_SIGHT, *(f"overlay.{name}" for name in _OVERLAY))


def tracker_tensors(tracker: Tracker) -> dict[str, Tensor]:
    """All but the rule."""
    sight, recent = tracker.sight, tracker.recent
    overlay = {f"overlay.{name}": getattr(tracker.overlay, name) for name in _OVERLAY}
    arrays = {"descriptor": tracker.descriptor, "pose": tracker.pose, **overlay}
    if sight is not None:
        arrays |= {name: getattr(sight, name) for name in _SIGHT}
    return {
        "state": state_numbers([(tracker.state, tracker.reason)]),
        "counts": torch.tensor([tracker.num_dark, tracker.num_still]),
        "likeness": torch.tensor(tracker.likeness, dtype=torch.float64),
        **{f"recent.{name}": torch.tensor(getattr(recent, name), dtype=torch.float64) for name in _RECENT},
        **{name: _stored(array) for name, array in arrays.items() if array is not None},
    }


def tracker_of(tensors: Mapping[str, Tensor], rule: TrackingRule) -> Tracker:
    """What `tracker_tensors` gave."""
    arrays = {name: tensors[name].numpy().copy() for name in _ARRAYS if name in tensors}
    if _COVERED in arrays:
        arrays[_COVERED] = arrays[_COVERED].astype(bool)
    (state, reason), (num_dark, num_still) = states_of(tensors["state"])[0], tensors["counts"].tolist()
    return Tracker(
        rule=rule,
        state=state,
        reason=reason,
        sight=Sight(**{name: arrays[name] for name in _SIGHT}) if "grey" in arrays else None,
        overlay=Overlay(**{name: arrays.get(f"overlay.{name}") for name in _OVERLAY}),
        num_dark=num_dark,
        num_still=num_still,
        likeness=float(tensors["likeness"]),
        descriptor=arrays.get("descriptor"),
        pose=arrays.get("pose"),
        recent=Recent(**{name: tuple(tensors[f"recent.{name}"].tolist()) for name in _RECENT}),
    )


def state_numbers(states: Sequence[tuple[TrackingState, TrackingReason | None]]) -> Tensor:
    """A row for each frame."""
    rows = [(_STATES.index(state), _REASONS.index(reason)) for state, reason in states]
    return torch.tensor(rows, dtype=torch.int64).reshape(-1, 2)


def states_of(numbers: Tensor) -> tuple[tuple[TrackingState, TrackingReason | None], ...]:
    """What `state_numbers` gave."""
    return tuple((_STATES[state], _REASONS[reason]) for state, reason in numbers.tolist())


def _stored(array: np.ndarray) -> Tensor:
    """A file of tensors has no truth values; they are bytes there."""
    return torch.from_numpy(array.astype(np.uint8) if array.dtype == bool else array.copy())
