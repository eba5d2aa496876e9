"""Which frames and which of their pixels become points of a cloud."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from longtake.errors import SettingError
from longtake.exports.frame import FrameStatus, MappedFrame
from longtake.exports.masks import MaskFolder
from longtake.exports.pixels import shows_source
from longtake.exports.sky import SkyModel, shows_ground
from longtake.types import FrameKind


@dataclass(frozen=True, slots=True, kw_only=True)
class PointFilter:
    """A pixel becomes a point if it has a depth, shows the source, and nothing here speaks against it."""

    drop_percent: float = 25.0
    """How many of each frame's pixels are left out, the least confident; pixels as confident as one kept are kept."""
    largest_jump: float | None = 0.05
    """How much depth may differ from that of a neighbour, as a share of the nearer one; pixels at a larger jump often
    hang in the air between two surfaces. None keeps them."""
    masks: MaskFolder | None = None
    sky: SkyModel | None = None
    statuses: tuple[FrameStatus, ...] = (FrameStatus.OK, FrameStatus.WEAK)
    """Frames of other statuses are left out: where the camera jumped or the scene was cut its place is doubtful, and a
    repeated picture says nothing new."""
    every: int = 1
    """One frame in so many."""
    keyframes_only: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.drop_percent < 100:
            raise SettingError(f"Expected to leave out from 0 to less than 100 % of pixels, not {self.drop_percent} %.")
        if self.largest_jump is not None and not (self.largest_jump > 0 and math.isfinite(self.largest_jump)):
            raise SettingError(f"Expected a largest jump of depth greater than 0, or none, not {self.largest_jump}.")
        if self.every < 1:
            raise SettingError(f"Expected to take one frame in 1 or more, not in {self.every}.")

    def takes(self, frame: MappedFrame) -> bool:
        """Whether any point may come of a frame; none does where the camera is lost or in the dark."""
        is_kind = not self.keyframes_only or frame.kind is not FrameKind.PASSING
        return is_kind and not frame.is_blind and frame.status in self.statuses and frame.index % self.every == 0

    def lacks_mask(self, frame: MappedFrame) -> bool:
        """Whether there are masks, but none for this frame."""
        return self.masks is not None and self.masks.find(frame) is None

    def kept(self, frame: MappedFrame) -> Bool[np.ndarray, "height width"]:
        """The pixels of a frame that become points."""
        has_depth = np.isfinite(frame.depth) & (frame.depth > 0) & ~np.isnan(frame.confidence)
        usable = np.logical_and(has_depth, shows_source(frame.placement, frame.depth.shape))
        kept = _most_confident(frame.confidence, usable, self.drop_percent)
        if self.largest_jump is not None:
            kept &= ~_jumps(np.where(usable, frame.depth, np.nan), self.largest_jump)
        if self.masks is not None:
            kept &= self.masks.wanted(frame)
        if self.sky is not None:
            kept &= shows_ground(frame.image, self.sky)
        return kept


def _most_confident(
    confidence: Float[np.ndarray, "height width"], usable: Bool[np.ndarray, "height width"], drop_percent: float
) -> Bool[np.ndarray, "height width"]:
    """The usable pixels but for so many, the least confident."""
    if not usable.any():
        return usable
    least = np.percentile(confidence[usable], drop_percent, method="lower")
    confident: Bool[np.ndarray, "height width"] = usable & (confidence >= least)
    return confident


def _jumps(depth: Float[np.ndarray, "height width"], largest_jump: float) -> Bool[np.ndarray, "height width"]:
    """Pixels whose depth differs too much from that of a neighbour above, below, left or right; NaN has none."""
    jumps = np.zeros(depth.shape, dtype=bool)
    for near, far in ((np.s_[:, :-1], np.s_[:, 1:]), (np.s_[:-1], np.s_[1:])):
        one, other = depth[near], depth[far]
        apart = np.abs(one - other) > largest_jump * np.minimum(one, other)
        jumps[near] |= apart
        jumps[far] |= apart
    return jumps
