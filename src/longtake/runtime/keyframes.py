"""Which frames are remembered."""

from dataclasses import dataclass

from longtake.errors import SettingError
from longtake.memory.retention import Keep

TRAINED_FRAMES = 320
"""Kept frames that the published geometry models saw in training."""


@dataclass(frozen=True, slots=True)
class EveryNth:
    """The first frame after the scale block, then every n-th."""

    interval: int = 1

    def __post_init__(self) -> None:
        if self.interval < 1:
            raise SettingError(f"Expected a keyframe interval of at least 1, but got {self.interval}.")

    def before(self, since_scale_block: int) -> Keep:
        """What is known of the frame that came this many frames after the scale block."""
        return Keep.YES if since_scale_block % self.interval == 0 else Keep.NO


def interval_for(num_frames: int, trained_frames: int = TRAINED_FRAMES) -> EveryNth:
    """Every frame while the video is short, else as few as keep it within what the model was trained on."""
    return EveryNth(max(1, -(-num_frames // trained_frames)))
