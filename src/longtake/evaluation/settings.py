"""What a comparison measures and by which rules."""

import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from longtake.errors import SettingError
from longtake.evaluation.alignment_mode import AlignmentMode
from longtake.evaluation.association import DEFAULT_GAP_S
from longtake.evaluation.depth_alignment import AlignmentSpan, DepthAlignment
from longtake.evaluation.relative import NEXT_FRAME, Delta


class Part(StrEnum):
    """What can be measured apart from the rest."""

    TRAJECTORY = "trajectory"
    DEPTH = "depth"
    POINTS = "points"
    ANSWERS = "answers"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSettings:
    """The rules of one comparison."""

    align: AlignmentMode = AlignmentMode.SIM3
    max_gap_s: float = DEFAULT_GAP_S
    offset_s: float = 0.0
    """Added to the result's timestamps."""
    delta: Delta = NEXT_FRAME
    depth_align: DepthAlignment = DepthAlignment.SCALE
    """The one that is drawn; others are measured beside it."""
    depth_span: AlignmentSpan = AlignmentSpan.SEQUENCE
    threshold: float = 0.05
    """Distance at which points count as met, in the unit of the truth."""
    only: tuple[Part, ...] | None = None
    """What must be measured, and nothing else; None for all that can be."""
    times: Path | None = None
    """Timestamps of a KITTI file, one a line."""
    fps: float | None = None
    """Frame rate of a KITTI file."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold < math.inf:
            raise SettingError(
                f"The distance at which points count as met must be positive, but is {self.threshold:g}."
            )
        if self.only is not None and not self.only:
            raise SettingError(f"Expected something to measure; choose from {', '.join(Part)}.")
        if self.times is not None and self.fps is not None:
            raise SettingError("A trajectory takes either a file of timestamps or a frame rate; leave one out.")

    def wants(self, part: Part) -> bool:
        return self.only is None or part in self.only

    @property
    def needs_poses(self) -> bool:
        """Whether frames must be matched; answers name theirs."""
        return any(self.wants(part) for part in Part if part is not Part.ANSWERS)
