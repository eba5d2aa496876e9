"""Which pose of a result belongs to which of the truth: by time, or by index where there are no timestamps."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from longtake.errors import InputError, SettingError
from longtake.takes.trajectory import Trajectory

DEFAULT_GAP_S = 0.02
"""As in the tools of the TUM benchmark; evo allows half of it."""
_FEWEST = 2


@dataclass(frozen=True, slots=True)
class Association:
    """Pairs of indices, in the order of time; no index occurs twice."""

    result_index: Int64[Tensor, " pairs"]
    truth_index: Int64[Tensor, " pairs"]

    def __len__(self) -> int:
        return len(self.result_index)

    def poses_of(self, result: Trajectory, truth: Trajectory) -> "PosePairs":
        """What these indices stand for."""
        return PosePairs(
            timestamp_s=truth.timestamp_s[self.truth_index],
            result=result.world_from_camera[self.result_index],
            truth=truth.world_from_camera[self.truth_index],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PosePairs:
    """Poses of a result and of the truth at the same moments, each in a world of its own."""

    timestamp_s: Float64[Tensor, " frames"]
    """The truth's."""
    result: Float64[Tensor, "frames 4 4"]
    truth: Float64[Tensor, "frames 4 4"]

    def __post_init__(self) -> None:
        if len(self.timestamp_s) < _FEWEST:
            raise InputError(f"Trajectories are compared by {_FEWEST} poses at least, but {len(self)} came.")
        if not (torch.isfinite(self.result).all() and torch.isfinite(self.truth).all()):
            raise InputError("Trajectories are compared by finite poses, but some are NaN or infinite.")

    def __len__(self) -> int:
        return len(self.timestamp_s)


def associate(
    result: Trajectory, truth: Trajectory, *, max_gap_s: float = DEFAULT_GAP_S, offset_s: float = 0.0
) -> Association:
    """Pairs at most `max_gap_s` apart once `offset_s` is added to the result's timestamps, two at least.

    Each pose of the trajectory with fewer poses (of the result, if equally many) takes the nearest of the other, the
    earlier of two equally near. Where several take the same one, the nearest of them keeps it and the rest stay alone.
    If either trajectory is not timed, both must have as many poses and are paired in order.
    """
    _check_settings(max_gap_s, offset_s)
    if not (result.is_timed and truth.is_timed):
        return _associate_by_index(result, truth)
    result_s, truth_s = (result.timestamp_s + offset_s).numpy(), truth.timestamp_s.numpy()
    if len(truth_s) < len(result_s):
        truth_index, result_index = _nearest_pairs(truth_s, result_s, max_gap_s)
    else:
        result_index, truth_index = _nearest_pairs(result_s, truth_s, max_gap_s)
    if len(result_index) < _FEWEST:
        raise _too_few(len(result_index), (result_s, truth_s), max_gap_s)
    return Association(torch.from_numpy(result_index), torch.from_numpy(truth_index))


def _nearest_pairs(
    few_s: Float64[np.ndarray, " few"], many_s: Float64[np.ndarray, " many"], max_gap_s: float
) -> tuple[Int64[np.ndarray, " pairs"], Int64[np.ndarray, " pairs"]]:
    """Indices into the few and the many, without repeats."""
    after = np.searchsorted(many_s, few_s).clip(max=len(many_s) - 1)
    before = (after - 1).clip(min=0)
    nearest = np.where(np.abs(many_s[after] - few_s) < np.abs(few_s - many_s[before]), after, before)
    gap_s = np.abs(many_s[nearest] - few_s)
    near = np.flatnonzero(gap_s <= max_gap_s)
    nearest_first = near[np.lexsort((gap_s[near], nearest[near]))]
    taken, first = np.unique(nearest[nearest_first], return_index=True)
    return nearest_first[first], taken


def _associate_by_index(result: Trajectory, truth: Trajectory) -> Association:
    if len(result) != len(truth):
        raise InputError(
            f"The result has {len(result)} poses and the truth {len(truth)}, and without timestamps for both they can "
            "only be paired one by one; give a file of times or a frame rate."
        )
    if len(result) < _FEWEST:
        raise InputError(f"The result and the truth have 1 pose each, but {_FEWEST} at least are needed.")
    return Association(torch.arange(len(result)), torch.arange(len(truth)))


def _too_few(
    num_pairs: int, timestamps_s: tuple[Float64[np.ndarray, " few"], Float64[np.ndarray, " many"]], max_gap_s: float
) -> InputError:
    result_s, truth_s = timestamps_s
    found = "no pair of poses is" if num_pairs == 0 else "only 1 pair of poses is"
    return InputError(
        f"The result runs from {result_s[0]:.6f} to {result_s[-1]:.6f} s and the truth from {truth_s[0]:.6f} to "
        f"{truth_s[-1]:.6f} s, but {found} at most {max_gap_s:g} s apart, and {_FEWEST} at least are needed; give a "
        "time offset or a larger tolerance if they show the same take."
    )


def _check_settings(max_gap_s: float, offset_s: float) -> None:
    if not max_gap_s >= 0:
        raise SettingError(f"The largest gap between timestamps must be zero or more seconds, but {max_gap_s:g} came.")
    if not math.isfinite(offset_s):
        raise SettingError(f"The time offset must be a finite number of seconds, but {offset_s:g} came.")
