"""Two sides of a comparison, read and matched: which frame of the result shows what which frame of the truth shows."""

from dataclasses import dataclass, replace
from pathlib import Path

from longtake.errors import InputError, SettingError
from longtake.evaluation.association import Association, PosePairs, associate
from longtake.evaluation.motion import path_length
from longtake.evaluation.settings import EvalSettings
from longtake.takes.header import Unit
from longtake.takes.take import Take, read_take
from longtake.takes.trajectory import Trajectory
from longtake.takes.trajectory_file import read_trajectory

_ENOUGH_MATCHED = 0.9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Side:
    """A trajectory, and the take it is of where there is one."""

    path: Path
    trajectory: Trajectory
    take: Take | None = None

    @property
    def unit(self) -> Unit:
        """TUM and KITTI files are in metres by definition."""
        return Unit.METRE if self.take is None else self.take.header.unit

    @property
    def poses_per_s(self) -> float:
        """Of the middle step, 0 for a single pose."""
        steps_s = self.trajectory.timestamp_s.diff()
        return float(1 / steps_s.median()) if len(steps_s) else 0.0

    def take_with_depth(self) -> Take:
        """The take, which must have depth."""
        if self.take is None:
            raise InputError(f"Depth comes from takes, but {self.path} is a trajectory alone; name a take's folder.")
        if self.take.header.depth is None:
            raise InputError(f"The take {self.path} has no depth; make it with depth.")
        return self.take


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Matched:
    """Both sides, and the frames they have in common."""

    result: Side
    truth: Side
    frames: Association
    poses: PosePairs
    max_gap_s: float

    @property
    def is_timed(self) -> bool:
        """Whether frames were matched by time, else one by one."""
        return self.result.trajectory.is_timed and self.truth.trajectory.is_timed

    @property
    def path_length(self) -> float:
        """Of the truth, from matched pose to matched pose."""
        return float(path_length(self.poses.truth)[-1])

    @property
    def warning(self) -> str | None:
        """The sentence for poses that stayed alone, as they do at frame rates that do not fit."""
        sides = {"result": self.result, "truth": self.truth}
        few = min(sides, key=lambda name: len(sides[name].trajectory))
        num_poses = len(sides[few].trajectory)
        if not self.is_timed or len(self.frames) >= _ENOUGH_MATCHED * num_poses:
            return None
        rates = " and ".join(f"{side.poses_per_s:.4g} a second in the {name}" for name, side in sides.items())
        return (
            f"Only {len(self.frames)} of the {few}'s {num_poses} poses were matched, at most {self.max_gap_s:g} s "
            f"apart; there are {rates}."
        )


def read_matched(result: Path, truth: Path, settings: EvalSettings) -> Matched:
    """Both sides and the frames they have in common, which must be two at least."""
    sides = [_read_side(path) for path in (result, truth)]
    if settings.times is not None or settings.fps is not None:
        sides = _with_times(sides, settings)
    left, right = (side.trajectory for side in sides)
    frames = associate(left, right, max_gap_s=settings.max_gap_s, offset_s=settings.offset_s)
    return Matched(
        result=sides[0],
        truth=sides[1],
        frames=frames,
        poses=frames.poses_of(left, right),
        max_gap_s=settings.max_gap_s,
    )


def _read_side(path: Path) -> Side:
    try:
        is_folder = path.is_dir()
    except OSError as error:
        raise InputError(f"{path} cannot be looked at ({error.strerror}); name a take or a file of poses.") from error
    if not is_folder:
        return Side(path=path, trajectory=read_trajectory(path))
    take = read_take(path)
    return Side(path=path, trajectory=take.trajectory, take=take)


def _with_times(sides: list[Side], settings: EvalSettings) -> list[Side]:
    """The same sides, those without timestamps read again with what the settings say of them."""
    if all(side.trajectory.is_timed for side in sides):
        raise SettingError(
            f"{sides[0].path} and {sides[1].path} have timestamps of their own; leave out the file of times and the "
            "frame rate."
        )
    return [
        side
        if side.trajectory.is_timed
        else replace(side, trajectory=read_trajectory(side.path, times=settings.times, fps=settings.fps))
        for side in sides
    ]
