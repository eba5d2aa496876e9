"""Whether a video is unlike what its model was trained on: judged by its first frames, said once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from longtake.weights.familiarity import CLIP_FRAMES, FEWEST_FRAMES, Familiarity


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """What a model knows of videos, and what to say of one that is unlike them."""

    familiarity: Familiarity
    note: str
    """`{}` stands for how much farther it is than most that the model knows."""


class UnlikenessJudge:
    """Sees what each new frame looks like, in order; says nothing where nothing is known of the model."""

    def __init__(self, knowledge: Knowledge | None) -> None:
        self._knowledge = knowledge
        self._num_frames, self._sum, self._has_told = 0, 0.0, False

    @property
    def unlikeness(self) -> float | None:
        """Above 1 for a video that is unlike what the model knows; None before enough of it was seen."""
        if self._knowledge is None or self._num_frames < FEWEST_FRAMES:
            return None
        return self._knowledge.familiarity.unlikeness(self._sum / self._num_frames)

    def add(self, descriptor: Float[np.ndarray, " channels"] | None) -> None:
        """The next frame; after the first so many, nothing changes any more."""
        if self._knowledge is None or descriptor is None or self._num_frames >= CLIP_FRAMES:
            return
        self._num_frames += 1
        self._sum += float(self._knowledge.familiarity.distances(torch.from_numpy(descriptor)[None])[0])

    def note(self, *, has_ended: bool) -> str | None:
        """What is to be said, once, when the first frames were seen, or the video has ended before."""
        unlikeness = self.unlikeness
        if self._has_told or unlikeness is None or (self._num_frames < CLIP_FRAMES and not has_ended):
            return None
        self._has_told = True
        assert self._knowledge is not None
        return self._knowledge.note.format(f"{unlikeness:.1f}") if unlikeness > 1 else None

    def state(self) -> Mapping[str, Any]:
        """All but whether it was said: a run that goes on says it again."""
        return {"num_frames": self._num_frames, "sum": self._sum}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._num_frames, self._sum = int(state.get("num_frames", 0)), float(state.get("sum", 0.0))
