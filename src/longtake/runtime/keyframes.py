"""Which frames are remembered."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from longtake.errors import SavedSessionError, SettingError
from longtake.memory.policy import Keep
from longtake.records import record_from
from longtake.spatial.flow import mean_flow_px
from longtake.spatial.pose import decode_pose
from longtake.types import Geometry

TRAINED_FRAMES = 320
"""Kept frames that the published geometry models saw in training."""


@runtime_checkable
class KeyframeRule(Protocol):
    """Says before the model looks whether a frame is kept, or afterwards if it cannot know."""

    @property
    def interval(self) -> int | None:
        """How many frames there are to a keyframe, or None where that depends on the video."""

    def before(self, since_scale_block: int) -> Keep:
        """What is known of the frame that came this many frames after the scale block."""

    def after(self, frame: Geometry, last_kept: "KeptCamera") -> bool:
        """Whether a single frame judged afterwards is kept."""

    def to_record(self) -> dict[str, int | float]:
        """The rule as a saved session writes it."""


@dataclass(frozen=True, slots=True)
class KeptCamera:
    """The last frame kept so far."""

    frame_index: int
    is_scale: bool
    pose_encoding: Float[Tensor, "9"]


@dataclass(frozen=True, slots=True)
class EveryNth:
    """The first frame after the scale block, then every n-th."""

    interval: int = 1

    def __post_init__(self) -> None:
        if self.interval < 1:
            raise SettingError(f"Expected a keyframe interval of at least 1, but got {self.interval}.")

    def before(self, since_scale_block: int) -> Keep:
        return Keep.YES if since_scale_block % self.interval == 0 else Keep.NO

    def after(self, frame: Geometry, last_kept: KeptCamera) -> bool:  # noqa: ARG002
        raise AssertionError("known before the model looks")

    def to_record(self) -> dict[str, int | float]:
        return {"interval": self.interval}


@dataclass(frozen=True, slots=True)
class ByFlow:
    """The first frame after the scale block, then whenever the image moved far enough or too long nothing was kept."""

    threshold_px: float
    max_gap: int = 30

    def __post_init__(self) -> None:
        if not self.threshold_px > 0 or self.max_gap < 1:
            raise SettingError(
                "Expected a flow threshold above 0 pixels and a gap of at least 1 frame, but got "
                f"{self.threshold_px} and {self.max_gap}."
            )

    @property
    def interval(self) -> int | None:
        return None

    def before(self, since_scale_block: int) -> Keep:  # noqa: ARG002
        return Keep.DEFERRED

    def after(self, frame: Geometry, last_kept: KeptCamera) -> bool:
        if last_kept.is_scale or frame.frame_index[0] - last_kept.frame_index >= self.max_gap:
            return True
        depth = frame.depth[0]
        height, width = depth.shape
        camera = decode_pose(frame.pose_encoding[0], height, width)
        other = decode_pose(last_kept.pose_encoding, height, width)
        return float(mean_flow_px(depth, camera, other)) > self.threshold_px

    def to_record(self) -> dict[str, int | float]:
        return {"threshold_px": self.threshold_px, "max_gap": self.max_gap}


def rule_from_record(record: Mapping[str, int | float]) -> KeyframeRule:
    """The rule that `to_record` wrote."""
    try:
        return record_from(EveryNth, record) if "interval" in record else record_from(ByFlow, record)
    except (ValueError, SettingError) as error:
        raise SavedSessionError(
            f"The saved session's rule of keyframes means nothing ({error}); save it again."
        ) from error


def interval_for(num_frames: int, trained_frames: int = TRAINED_FRAMES) -> EveryNth:
    """Every frame while the video is short, else so few that about as many are kept as the model was trained on.

    The published formula, which does not count the scale block.
    """
    return EveryNth(max(1, -(-num_frames // trained_frames)))
