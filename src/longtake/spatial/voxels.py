"""Clouds thinned to one point a voxel: the mean of what fell in, whatever the order it came in.

Sums are kept in whole numbers, 2⁻²⁸ of a voxel's edge (or of an attribute's unit) each unless told otherwise, for sums
of fractions depend on their order. A voxel is known by one key, 21 bits an axis, high to low:

63  62      42 41      21 20       0
│ 0 │    x    │    y    │    z    │     index of the voxel along the axis, plus 2²⁰

Sums lie in a table, in the order in which voxels were first met, and never move before voxels widen; what is kept in
order is keys and rows alone, in a large index and a small one that takes the new voxels of a few frames.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

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
_AXIS_UPPER_BITS = sum(_AXIS_MASK >> 1 << shift for shift in _AXIS_SHIFTS)
_HALF_REACH = sum(REACH >> 1 << shift for shift in _AXIS_SHIFTS)
_MOST_RECENT = 1 << 16
_PIECE = 1 << 13


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
        empty = np.empty((0, 3 + num_attributes + 1), dtype=np.int64)
        self._table, self._settled, self._recent = empty, _Index.empty(), _Index.empty()
        if content is not None:
            self._settle_on(replace(content, keys=content.keys.copy(), sums=content.sums.copy()))

    def __len__(self) -> int:
        return len(self._settled.keys) + len(self._recent.keys)

    @property
    def voxel(self) -> float:
        """The edge of a voxel."""
        return math.ldexp(self._finest, self._doublings)

    @property
    def content(self) -> VoxelContent:
        self._settle()
        return VoxelContent(
            keys=self._settled.keys.copy(), sums=self._table[self._settled.rows], doublings=self._doublings
        )

    @property
    def finest(self) -> float:
        """The edge of a voxel before any was made wider."""
        return self._finest

    def add(
        self, points: Float[Tensor, "points 3"], attributes: Float[Tensor, "points attributes"] | None = None
    ) -> None:
        """Count in some points, with the attributes this grid was made for."""
        self.merge(self.summed(points, attributes))

    def summed(
        self, points: Float[Tensor, "points 3"], attributes: Float[Tensor, "points attributes"] | None = None
    ) -> VoxelContent:
        """Some points as content to be merged; changes nothing, so that several threads may do it."""
        columns = np.empty((0, len(points))) if attributes is None else _columns(attributes)
        expected = self._table.shape[1] - 4
        if len(columns) != expected:
            raise InputError(
                f"Expected {expected} attributes with each point, as the voxel grid was made for, "
                f"but {len(columns)} came."
            )
        if not _largest(columns) <= LARGEST_ATTRIBUTE:
            raise InputError(f"Attributes of points must be finite and within ±{LARGEST_ATTRIBUTE}; scale them down.")
        return self._summed(_columns(points) / self._finest, columns, self._doublings)

    def merge(self, content: VoxelContent) -> None:
        """Count in what was summed for this grid, since when voxels may have become wider."""
        while content.doublings < self._doublings:
            index = _Index(content.keys, np.arange(len(content.keys)))
            content = _coarsened(index, content.sums, content.doublings, self._fraction_bits)
        rows, new = self._rows_of(content.keys)
        self._make_room(len(self) + len(new))
        recent = self._recent.joined_by(_Index(content.keys[new], rows[new]))
        _add_at(self._table, rows, content.sums)
        self._recent = recent
        if len(self._recent.keys) > max(_MOST_RECENT, len(self._settled.keys) // 8):
            self._settle()

    def coarsen(self) -> None:
        """Make voxels twice as wide; the means of what fell in stay exact."""
        self._settle()
        self._settle_on(_coarsened(self._settled, self._table, self._doublings, self._fraction_bits))

    @property
    def points(self) -> Float[Tensor, "voxels 3"]:
        """The mean point of each voxel, ordered by the voxel's x, then y, then z; in double precision."""
        return torch.cat([points for points, _ in self.pieces()])

    @property
    def attributes(self) -> Float[Tensor, "voxels attributes"]:
        """The mean attributes of each voxel, in the order of the points."""
        return torch.cat([attributes for _, attributes in self.pieces()])

    @property
    def counts(self) -> Int[Tensor, " voxels"]:
        """How many points fell in each voxel."""
        self._settle()
        return torch.from_numpy(self._table[self._settled.rows, -1])

    def pieces(self) -> Iterator[tuple[Float[Tensor, "voxels 3"], Float[Tensor, "voxels attributes"]]]:
        """The points and their attributes, some thousands at a time, which the processor's caches can hold."""
        self._settle()
        keys, rows = self._settled.keys, self._settled.rows
        for start in range(0, max(1, len(keys)), _PIECE):
            sums = self._table[rows[start : start + _PIECE]]
            means = sums[:, :-1] * 2.0**-self._fraction_bits
            means /= sums[:, -1:]
            corners = _indices_of(keys[start : start + _PIECE]) * 2.0**self._doublings
            points = (corners + means[:, :3]) * self._finest
            yield torch.from_numpy(points), torch.from_numpy(means[:, 3:])

    def _summed(
        self,
        place: Float[np.ndarray, "3 points"],
        columns: Float[np.ndarray, "attributes points"],
        doublings: int,
    ) -> VoxelContent:
        """Of places, measured in the finest voxels."""
        _require_reach(place)
        corner = np.floor(place)
        finest = corner.astype(np.int64)
        index = finest >> doublings
        keys, group = _groups(keys_of(*index))
        sums = np.empty((len(keys), self._table.shape[1]), dtype=np.int64)
        for column, values in enumerate((*(place - corner), *columns)):
            grains = np.rint(values * 2.0**self._fraction_bits).astype(np.int64)
            if doublings and column < len(index):
                grains += finest[column] - (index[column] << doublings) << self._fraction_bits
            summed = np.zeros(len(keys), dtype=np.int64)
            _add_at(summed, group, grains)
            sums[:, column] = summed
        sums[:, -1] = np.bincount(group, minlength=len(keys))
        return VoxelContent(keys=keys, sums=sums, doublings=doublings)

    def _rows_of(self, keys: Int[np.ndarray, " voxels"]) -> tuple[Int[np.ndarray, " voxels"], Int[np.ndarray, " new"]]:
        """Where in the table the sums of voxels lie, and which voxels are new; those get the rows after the last."""
        rows: Int[np.ndarray, " voxels"] = self._settled.find(keys)
        unsettled = np.flatnonzero(rows < 0)
        rows[unsettled] = self._recent.find(keys[unsettled])
        new = unsettled[rows[unsettled] < 0]
        rows[new] = np.arange(len(self), len(self) + len(new))
        return rows, new

    def _make_room(self, num_rows: int) -> None:
        """A table for so many voxels at least; what is not yet used is zero."""
        if num_rows > len(self._table):
            # In place: most systems move a large table without copying it, and nobody else holds a part of it.
            self._table.resize((num_rows + num_rows // 8, self._table.shape[1]), refcheck=False)

    def _settle(self) -> None:
        """One index of all voxels."""
        self._settled, self._recent = self._settled.joined_by(self._recent), _Index.empty()

    def _settle_on(self, content: VoxelContent) -> None:
        """Just these voxels."""
        index, none = _Index(content.keys, np.arange(len(content.keys))), _Index.empty()
        self._table, self._settled, self._recent, self._doublings = content.sums, index, none, content.doublings


@dataclass(frozen=True, slots=True)
class _Index:
    """Keys, ascending, and the row of the table that each has."""

    keys: Int[np.ndarray, " voxels"]
    rows: Int[np.ndarray, " voxels"]

    @classmethod
    def empty(cls) -> "_Index":
        return cls(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

    def find(self, keys: Int[np.ndarray, " searched"]) -> Int[np.ndarray, " searched"]:
        """The row of each key, -1 for one that is not here."""
        if not len(self.keys):
            return np.full(len(keys), -1)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, self.rows[place], -1)

    def joined_by(self, other: "_Index") -> "_Index":
        """With the keys of another, none of which is here."""
        if not len(other.keys):
            return self
        theirs = np.searchsorted(self.keys, other.keys) + np.arange(len(other.keys))
        is_ours = np.ones(len(self.keys) + len(other.keys), dtype=bool)
        is_ours[theirs] = False
        joined = _Index(np.empty(len(is_ours), dtype=np.int64), np.empty(len(is_ours), dtype=np.int64))
        for array, our_values, their_values in (
            (joined.keys, self.keys, other.keys),
            (joined.rows, self.rows, other.rows),
        ):
            array[is_ours], array[theirs] = our_values, their_values
        return joined


def _columns(values: Float[Tensor, "rows columns"]) -> Float[np.ndarray, "columns rows"]:
    """Each column in one piece; uncopied where it is double precision and lies so already."""
    array: Float[np.ndarray, "columns rows"] = values.detach().T.double().cpu().contiguous().numpy()
    return array


def _require_reach(place: Float[np.ndarray, "3 points"]) -> None:
    farthest = _largest(place)
    if not math.isfinite(farthest):
        raise InputError("Expected finite points to thin by voxel, but some are not; leave those out.")
    if farthest >= REACH:
        raise InputError(
            f"Points lie up to {farthest:.3g} voxels from the origin, but a voxel grid reaches only {REACH}; choose "
            "larger voxels."
        )


def _largest(values: Float[np.ndarray, "rows columns"]) -> float:
    """The largest size of a number, 0 where there is none, NaN where one is."""
    return float(max(values.max(initial=0), -values.min(initial=0)))


def keys_of(
    x: Int[np.ndarray, " voxels"], y: Int[np.ndarray, " voxels"], z: Int[np.ndarray, " voxels"]
) -> Int[np.ndarray, " voxels"]:
    """Of voxels at these places along the axes, each within reach."""
    keys: Int[np.ndarray, " voxels"] = x + REACH << 2 * _AXIS_BITS | y + REACH << _AXIS_BITS | z + REACH
    return keys


def _indices_of(keys: Int[np.ndarray, " voxels"]) -> Int[np.ndarray, "voxels 3"]:
    return np.stack([(keys >> shift & _AXIS_MASK) - REACH for shift in _AXIS_SHIFTS], axis=1)


def parents_of(keys: Int[np.ndarray, " voxels"]) -> Int[np.ndarray, " voxels"]:
    """The voxels twice as wide that voxels lie in."""
    parents: Int[np.ndarray, " voxels"] = (keys >> 1 & _AXIS_UPPER_BITS) + _HALF_REACH
    return parents


def _coarsened(
    index: _Index, table: Int[np.ndarray, "rows columns"], doublings: int, fraction_bits: int
) -> VoxelContent:
    """The voxels of an index, which has all rows of a table that are used, in voxels twice as wide."""
    keys, group = _groups(parents_of(index.keys))
    parent = np.empty_like(group)
    parent[index.rows] = group
    sums = np.zeros((len(keys), table.shape[1]), dtype=np.int64)
    _add_at(sums, parent, table[: len(parent)])
    for column, shift in enumerate(_AXIS_SHIFTS):
        upper_half = index.rows[(index.keys >> shift & 1).astype(bool)]
        _add_at(sums[:, column], parent[upper_half], table[upper_half, -1] << (fraction_bits + doublings))
    return VoxelContent(keys=keys, sums=sums, doublings=doublings + 1)


def _groups(keys: Int[np.ndarray, " points"]) -> tuple[Int[np.ndarray, " voxels"], Int[np.ndarray, " points"]]:
    """Each key once, ascending; and the place of each of the given ones among them."""
    order = np.argsort(keys, kind="stable")  # which finds what is in order already
    ordered = keys[order]
    is_first = np.diff(ordered, prepend=-1) != 0
    group = np.empty_like(order)
    group[order] = np.cumsum(is_first) - 1
    return ordered[is_first], group


def _add_at(
    sums: Int[np.ndarray, "voxels *columns"], places: Int[np.ndarray, " rows"], rows: Int[np.ndarray, "rows *columns"]
) -> None:
    """Add each row at its place, where others may come too; torch takes a third of the time that numpy does."""
    torch.from_numpy(sums).index_add_(0, torch.from_numpy(places), torch.from_numpy(rows))
