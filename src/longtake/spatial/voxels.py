"""Clouds thinned to one point a voxel: the mean of what fell in, whatever the order it came in.

Sums are kept in whole numbers, 2⁻²⁸ of a voxel's edge (or of an attribute's unit) each unless told otherwise, for sums
of fractions depend on their order. A voxel is known by one key, 21 bits an axis, high to low:

63  62      42 41      21 20       0
│ 0 │    x    │    y    │    z    │     index of the voxel along the axis, plus 2²⁰
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from longtake.errors import InputError, SettingError

REACH = 1 << 20
"""How many voxels of the first size a grid extends from the origin each way along each axis."""
LARGEST_ATTRIBUTE = 256
_AXIS_BITS = 21
_AXIS_MASK = (1 << _AXIS_BITS) - 1
_AXIS_SHIFTS = (2 * _AXIS_BITS, _AXIS_BITS, 0)
_FEWEST_MERGED = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class VoxelContent:
    """All that a grid holds, so that it can be put away and taken up again."""

    keys: Int[np.ndarray, " voxels"]
    """Ascending."""
    sums: Int[np.ndarray, "voxels columns"]
    """Of places within the voxel, of attributes, and last the number of points."""
    doublings: int
    """How often voxels were made twice as wide."""


class VoxelGrid:
    """Takes points, of one frame at a time, and holds one entry for each voxel that any fell in.

    Attributes are numbers that go with a point, such as a colour or a normal, up to 256 in size; they are averaged too.
    Sums have the unit 2⁻ᵇ for b `fraction_bits`. A voxel takes up to 2⁶³⁻ᵇ points, halved with every doubling, and up
    to 2⁵⁵⁻ᵇ with attributes of the largest size.
    """

    def __init__(
        self, voxel: float, *, num_attributes: int = 0, fraction_bits: int = 28, content: VoxelContent | None = None
    ) -> None:
        """Empty, or with the content of a grid that was made with the same values."""
        if not (voxel > 0 and math.isfinite(voxel)):
            raise SettingError(f"The edge of a voxel must be a positive length, but is {voxel}.")
        self._finest, self._fraction_bits = voxel, fraction_bits
        self._doublings = 0
        self._keys = np.empty(0, dtype=np.int64)
        self._sums = np.empty((0, 3 + num_attributes + 1), dtype=np.int64)
        # One block for all that waits: arrays of single frames, alive for a while each, would leave the heap in holes.
        self._num_waiting = 0
        self._waiting_keys, self._waiting_sums = self._keys, self._sums
        if content is not None:
            self._keys, self._sums, self._doublings = content.keys.copy(), content.sums.copy(), content.doublings

    def __len__(self) -> int:
        self._merge_waiting()
        return len(self._keys)

    @property
    def voxel(self) -> float:
        """The edge of a voxel."""
        return math.ldexp(self._finest, self._doublings)

    @property
    def most_voxels(self) -> int:
        """As many as `len` or more, without the work of counting."""
        return len(self._keys) + self._num_waiting

    @property
    def content(self) -> VoxelContent:
        self._merge_waiting()
        return VoxelContent(keys=self._keys.copy(), sums=self._sums.copy(), doublings=self._doublings)

    def add(
        self, points: Float[Tensor, "points 3"], attributes: Float[Tensor, "points attributes"] | None = None
    ) -> None:
        """Count in some points, with the attributes this grid was made for."""
        columns = np.empty((len(points), 0)) if attributes is None else _as_numpy(attributes)
        expected = self._sums.shape[1] - 4
        if columns.shape[1] != expected:
            raise InputError(
                f"Expected {expected} attributes with each point, as the voxel grid was made for, "
                f"but {columns.shape[1]} came."
            )
        if not (np.abs(columns) <= LARGEST_ATTRIBUTE).all():
            raise InputError(f"Attributes of points must be finite and within ±{LARGEST_ATTRIBUTE}; scale them down.")
        self._let_wait(*self._summed(_as_numpy(points) / self._finest, columns))

    def coarsen(self) -> None:
        """Make voxels twice as wide; the means of what fell in stay exact."""
        self._merge_waiting()
        index = _indices_of(self._keys)
        upper_half = (index & 1) << (self._fraction_bits + self._doublings)
        self._sums[:, :3] += upper_half * self._sums[:, -1:]
        self._keys, self._sums = _gathered(_keys_of(index >> 1), self._sums)
        self._doublings += 1

    @property
    def points(self) -> Float[Tensor, "voxels 3"]:
        """The mean point of each voxel, ordered by the voxel's x, then y, then z; in double precision."""
        means = self._means[:, :3]
        return torch.from_numpy((_indices_of(self._keys) * 2.0**self._doublings + means) * self._finest)

    @property
    def attributes(self) -> Float[Tensor, "voxels attributes"]:
        """The mean attributes of each voxel, in the order of the points."""
        return torch.from_numpy(self._means[:, 3:])

    @property
    def counts(self) -> Int[Tensor, " voxels"]:
        """How many points fell in each voxel."""
        self._merge_waiting()
        return torch.from_numpy(self._sums[:, -1].copy())

    @property
    def _means(self) -> Float[np.ndarray, "voxels columns"]:
        self._merge_waiting()
        means: Float[np.ndarray, "voxels columns"] = self._sums[:, :-1] * 2.0**-self._fraction_bits / self._sums[:, -1:]
        return means

    def _summed(
        self, place: Float[np.ndarray, "points 3"], columns: Float[np.ndarray, "points attributes"]
    ) -> tuple[Int[np.ndarray, " voxels"], Int[np.ndarray, "voxels columns"]]:
        """Places, measured in the finest voxels, as keys and sums."""
        _require_reach(place)
        corner = np.floor(place)
        finest = corner.astype(np.int64)
        index = finest >> self._doublings
        within = finest - (index << self._doublings)
        grains = np.rint(np.ldexp(np.concatenate([place - corner, columns], axis=1), self._fraction_bits))
        rows = np.concatenate([grains.astype(np.int64), np.ones((len(place), 1), dtype=np.int64)], axis=1)
        rows[:, :3] += within << self._fraction_bits
        return _gathered(_keys_of(index), rows)

    def _let_wait(self, keys: Int[np.ndarray, " voxels"], sums: Int[np.ndarray, "voxels columns"]) -> None:
        """Until many voxels can be merged at once."""
        if self._num_waiting + len(keys) > len(self._waiting_keys):
            self._merge_waiting()
            room = max(_FEWEST_MERGED, len(self._keys) // 2, len(keys))
            if room > len(self._waiting_keys):
                self._waiting_keys = np.empty(room, dtype=np.int64)
                self._waiting_sums = np.empty((room, self._sums.shape[1]), dtype=np.int64)
        taken = slice(self._num_waiting, self._num_waiting + len(keys))
        self._waiting_keys[taken], self._waiting_sums[taken] = keys, sums
        self._num_waiting = taken.stop

    def _merge_waiting(self) -> None:
        """Add to the voxels known, then put the others in their places."""
        if not self._num_waiting:
            return
        waiting = slice(self._num_waiting)
        keys, sums = _gathered(self._waiting_keys[waiting], self._waiting_sums[waiting])
        self._num_waiting = 0
        place = np.searchsorted(self._keys, keys)
        known = np.append(self._keys, -1)[place] == keys
        self._sums[place[known]] += sums[known]
        if not known.all():
            self._keys = np.insert(self._keys, place[~known], keys[~known])
            self._sums = np.insert(self._sums, place[~known], sums[~known], axis=0)


def thin_by_voxel(points: Float[Tensor, "points 3"], voxel: float) -> Float[Tensor, "voxels 3"]:
    """One point for each voxel that has any: the mean of those in it, ordered by the voxel's x, then y, then z."""
    grid = VoxelGrid(voxel)
    grid.add(points)
    return grid.points.to(points)


def _as_numpy(values: Float[Tensor, "rows columns"]) -> Float[np.ndarray, "rows columns"]:
    array: Float[np.ndarray, "rows columns"] = values.detach().double().cpu().numpy()
    return array


def _require_reach(place: Float[np.ndarray, "points 3"]) -> None:
    if not np.isfinite(place).all():
        raise InputError("Expected finite points to thin by voxel, but some are not; leave those out.")
    if (np.abs(place) >= REACH).any():
        raise InputError(
            f"Points lie up to {np.abs(place).max():.3g} voxels from the origin, but a voxel grid reaches only "
            f"{REACH}; choose larger voxels."
        )


def _keys_of(index: Int[np.ndarray, "voxels 3"]) -> Int[np.ndarray, " voxels"]:
    x, y, z = (index + REACH).T
    keys: Int[np.ndarray, " voxels"] = x << 2 * _AXIS_BITS | y << _AXIS_BITS | z
    return keys


def _indices_of(keys: Int[np.ndarray, " voxels"]) -> Int[np.ndarray, "voxels 3"]:
    return np.stack([(keys >> shift & _AXIS_MASK) - REACH for shift in _AXIS_SHIFTS], axis=1)


def _gathered(
    keys: Int[np.ndarray, " points"], rows: Int[np.ndarray, "points columns"]
) -> tuple[Int[np.ndarray, " voxels"], Int[np.ndarray, "voxels columns"]]:
    """Each key once, ascending, with the sum of its rows."""
    order = np.argsort(keys)
    ordered = keys[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    return ordered[starts], np.add.reduceat(rows[order], starts, axis=0)
