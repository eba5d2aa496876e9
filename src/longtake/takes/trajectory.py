"""Where a camera was, and when."""

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from longtake.errors import InputError
from longtake.types import counted


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Trajectory:
    """Poses in the order of time, one at least."""

    timestamp_s: Float64[Tensor, " frames"]
    """Strictly increasing."""
    world_from_camera: Float64[Tensor, "poses 4 4"]
    """One for each timestamp."""
    is_timed: bool = True
    """False where it is unknown when the poses were taken; timestamps then only count frames."""

    def __post_init__(self) -> None:
        if len(self.timestamp_s) != len(self.world_from_camera):
            raise InputError(
                f"A trajectory needs a timestamp for each pose, but there are {len(self.timestamp_s)} timestamps and "
                f"{len(self.world_from_camera)} poses."
            )
        if not len(self.timestamp_s):
            raise InputError("A trajectory needs one pose at least, but there is none.")
        if not (torch.isfinite(self.timestamp_s).all() and torch.isfinite(self.world_from_camera).all()):
            raise InputError("A trajectory needs finite timestamps and poses, but some are NaN or infinite.")
        if (late := self.timestamp_s.diff() <= 0).any():
            frame = int(late.int().argmax()) + 1
            raise InputError(
                f"Timestamps of a trajectory must increase, but frame {frame} at {self.timestamp_s[frame]:.6f} s "
                f"follows one at {self.timestamp_s[frame - 1]:.6f} s."
            )

    def __len__(self) -> int:
        return len(self.timestamp_s)

    def __repr__(self) -> str:
        unit = "s" if self.is_timed else "frames"
        return f"Trajectory({counted(len(self), 'pose')} in {self.duration_s:.1f} {unit}, a way of {self.length:.3g})"

    @property
    def positions(self) -> Float64[Tensor, "frames 3"]:
        """Where the camera was: x, y and z in the world."""
        return self.world_from_camera[:, :3, 3]

    @property
    def rotations(self) -> Float64[Tensor, "frames 3 3"]:
        """From the camera's axes, x right, y down, z forward, to the world's."""
        return self.world_from_camera[:, :3, :3]

    @property
    def duration_s(self) -> float:
        """Between the first pose and the last."""
        return float(self.timestamp_s[-1] - self.timestamp_s[0])

    @property
    def length(self) -> float:
        """Of the path, summed from pose to pose."""
        return float(self.positions.diff(dim=0).norm(dim=1).sum())
