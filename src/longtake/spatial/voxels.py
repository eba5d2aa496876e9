"""Clouds thinned to one point a voxel: the mean of what fell in, whatever the order it came in.

Sums are kept in whole numbers, 2⁻²⁸ of a voxel's edge (or of an attribute's unit) each, for sums of fractions depend on
their order. A voxel is known by one key, 21 bits an axis, high to low:

63  62      42 41      21 20       0
│ 0 │    x    │    y    │    z    │     index of the voxel along the axis, plus 2²⁰
"""

import math

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from longtake.errors import InputError, SettingError

_AXIS_BITS = 21
_HALF_AXIS = 1 << (_AXIS_BITS - 1)
_AXIS_MASK = (1 << _AXIS_BITS) - 1
_GRAIN = 2.0**-28
_LARGEST_ATTRIBUTE = 256


class VoxelGrid:
    """Takes points, of one frame at a time, and holds one entry for each voxel that any fell in.

    Attributes are numbers that go with a point, such as a colour or a normal, up to 256 in size; they are averaged too.
    """

    def __init__(self, voxel: float, *, num_attributes: int = 0) -> None:
        if not (voxel > 0 and math.isfinite(voxel)):
            raise SettingError(f"The edge of a voxel must be a positive length, but is {voxel}.")
        self._voxel = voxel
        self._keys = np.empty(0, dtype=np.int64)
        self._sums = np.empty((0, 3 + num_attributes), dtype=np.int64)
        self._counts = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._keys)

    def add(
        self, points: Float[Tensor, "points 3"], attributes: Float[Tensor, "points attributes"] | None = None
    ) -> None:
        """Count in some points, with the attributes this grid was made for."""
        columns = np.empty((len(points), 0)) if attributes is None else _as_numpy(attributes)
        if columns.shape[1] != self._sums.shape[1] - 3:
            raise InputError(
                f"Expected {self._sums.shape[1] - 3} attributes with each point, as the voxel grid was made for, "
                f"but {columns.shape[1]} came."
            )
        if not (np.abs(columns) <= _LARGEST_ATTRIBUTE).all():
            raise InputError(f"Attributes of points must be finite and within ±{_LARGEST_ATTRIBUTE}; scale them down.")
        place = _as_numpy(points) / self._voxel
        keys = _keys_of(place)
        grains = np.rint(np.concatenate([place - np.floor(place), columns], axis=1) / _GRAIN).astype(np.int64)
        self._merge(*_gathered(keys, grains))

    def _merge(
        self,
        keys: Int[np.ndarray, " voxels"],
        sums: Int[np.ndarray, "voxels columns"],
        counts: Int[np.ndarray, " voxels"],
    ) -> None:
        """Add to the voxels known, then put the others in their places; `keys` ascend."""
        place = np.searchsorted(self._keys, keys)
        known = np.append(self._keys, -1)[place] == keys
        self._sums[place[known]] += sums[known]
        self._counts[place[known]] += counts[known]
        if not known.all():
            self._keys = np.insert(self._keys, place[~known], keys[~known])
            self._sums = np.insert(self._sums, place[~known], sums[~known], axis=0)
            self._counts = np.insert(self._counts, place[~known], counts[~known])

    @property
    def points(self) -> Float[Tensor, "voxels 3"]:
        """The mean point of each voxel, ordered by the voxel's x, then y, then z; in double precision."""
        shifts = (2 * _AXIS_BITS, _AXIS_BITS, 0)
        corner = np.stack([(self._keys >> shift & _AXIS_MASK) - _HALF_AXIS for shift in shifts], axis=1)
        return torch.from_numpy((corner + self._means[:, :3]) * self._voxel)

    @property
    def attributes(self) -> Float[Tensor, "voxels attributes"]:
        """The mean attributes of each voxel, in the order of the points."""
        return torch.from_numpy(self._means[:, 3:])

    @property
    def counts(self) -> Int[Tensor, " voxels"]:
        """How many points fell in each voxel."""
        return torch.from_numpy(self._counts.copy())

    @property
    def _means(self) -> Float[np.ndarray, "voxels columns"]:
        means: Float[np.ndarray, "voxels columns"] = self._sums * _GRAIN / self._counts[:, None]
        return means


def thin_by_voxel(points: Float[Tensor, "points 3"], voxel: float) -> Float[Tensor, "voxels 3"]:
    """One point for each voxel that has any: the mean of those in it, ordered by the voxel's x, then y, then z."""
    grid = VoxelGrid(voxel)
    grid.add(points)
    return grid.points.to(points)


def _as_numpy(values: Float[Tensor, "rows columns"]) -> Float[np.ndarray, "rows columns"]:
    array: Float[np.ndarray, "rows columns"] = values.detach().double().cpu().numpy()
    return array


def _keys_of(place: Float[np.ndarray, "points 3"]) -> Int[np.ndarray, " points"]:
    """The keys of the voxels that hold these places, which are measured in voxels."""
    if not np.isfinite(place).all():
        raise InputError("Expected finite points to thin by voxel, but some are not; leave those out.")
    if (np.abs(place) >= _HALF_AXIS).any():
        raise InputError(
            f"Points lie up to {np.abs(place).max():.3g} voxels from the origin, but a voxel grid reaches only "
            f"{_HALF_AXIS}; choose larger voxels."
        )
    x, y, z = (np.floor(place).astype(np.int64) + _HALF_AXIS).T
    keys: Int[np.ndarray, " points"] = x << 2 * _AXIS_BITS | y << _AXIS_BITS | z
    return keys


def _gathered(
    keys: Int[np.ndarray, " points"], grains: Int[np.ndarray, "points columns"]
) -> tuple[Int[np.ndarray, " voxels"], Int[np.ndarray, "voxels columns"], Int[np.ndarray, " voxels"]]:
    """Each key once, ascending, with the sum of its rows and their number."""
    order = np.argsort(keys)
    ordered, starts, counts = np.unique(keys[order], return_index=True, return_counts=True)
    return ordered, np.add.reduceat(grains[order], starts, axis=0), counts
