"""Which voxels were met: a set that stays bounded, for voxels become twice as wide when there are too many."""

import math

import numpy as np
from jaxtyping import Bool, Float, Int

from longtake.errors import SettingError
from longtake.spatial.voxels import REACH, keys_of, parents_of

_MOST_RECENT = 1 << 14


class VoxelSet:
    """Keys of voxels in two ordered lists, a large one and a small one that takes what is new."""

    def __init__(self, voxel: float, *, most: int) -> None:
        """Of voxels of this edge, and no more than so many."""
        if not (voxel > 0 and math.isfinite(voxel)):
            raise SettingError(f"The edge of a voxel must be a positive length, but is {voxel}.")
        if most < 1:
            raise SettingError(f"Expected room for 1 voxel or more, not for {most}.")
        self._finest, self._most, self._doublings = voxel, most, 0
        self._settled, self._recent = np.empty(0, np.int64), np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._settled) + len(self._recent)

    @property
    def voxel(self) -> float:
        """The edge of a voxel now."""
        return math.ldexp(self._finest, self._doublings)

    def firsts(self, points: Float[np.ndarray, "points 3"]) -> Int[np.ndarray, " new"]:
        """Places of those points, in their order, that are the first in a voxel that was not met; adds nothing.

        Points beyond the reach of voxels, or not finite, are none of them.
        """
        place = np.floor(points.T / self.voxel)
        within = np.flatnonzero((np.abs(place) < REACH).all(axis=0))
        keys, first = np.unique(keys_of(*place[:, within].astype(np.int64)), return_index=True)
        is_new = ~(_contains(self._settled, keys) | _contains(self._recent, keys))
        firsts: Int[np.ndarray, " new"] = within[np.sort(first[is_new])]
        return firsts

    def add(self, points: Float[np.ndarray, "points 3"]) -> None:
        """Count the voxels of points as met; they must be some that `firsts` gave since the last time."""
        keys = np.sort(keys_of(*np.floor(points.T / self.voxel).astype(np.int64)))
        self._recent = _merged(self._recent, keys)
        if len(self._recent) > _MOST_RECENT:
            self._settle()
        while len(self) > self._most:
            self._widen()

    def _settle(self) -> None:
        self._settled, self._recent = _merged(self._settled, self._recent), np.empty(0, np.int64)

    def _widen(self) -> None:
        self._settle()
        self._settled = np.unique(parents_of(self._settled))
        self._doublings += 1


def _contains(ordered: Int[np.ndarray, " voxels"], keys: Int[np.ndarray, " keys"]) -> Bool[np.ndarray, " keys"]:
    if not len(ordered):
        return np.zeros(len(keys), dtype=bool)
    place = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
    found: Bool[np.ndarray, " keys"] = ordered[place] == keys
    return found


def _merged(one: Int[np.ndarray, " some"], other: Int[np.ndarray, " others"]) -> Int[np.ndarray, " all"]:
    """Two ordered lists as one."""
    return np.insert(one, np.searchsorted(one, other), other)
