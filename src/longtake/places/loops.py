"""Places that were known again: where one node lies in another, as was measured, and how surely."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from longtake.errors import SettingError
from longtake.spatial.similarities import Similarities
from longtake.spatial.similarity import Similarity

_AXES = np.array([3, 3, 1])
"""Numbers of a tangent that share a standard deviation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Standard deviations of a measured similarity, along and about each axis."""

    translation: float
    """In the units of the second node's own frame."""
    rotation_rad: float
    log_scale: float

    def __post_init__(self) -> None:
        if not all(np.isfinite(number) and number > 0 for number in self.numbers):
            raise SettingError(f"Expected standard deviations above 0 of a measured similarity, but got {self}.")

    @property
    def numbers(self) -> tuple[float, float, float]:
        return self.translation, self.rotation_rad, self.log_scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Loops:
    """Places that were known again, in the order in which they were."""

    number: Int64[np.ndarray, " loops"]
    """Which loop each is; a later one has a higher number."""
    first: Int64[np.ndarray, " loops"]
    second: Int64[np.ndarray, " loops"]
    """Nodes, the earlier and the later one of each loop."""
    measured: Similarities
    """first_from_second."""
    spread: Float64[np.ndarray, "loops 3"]
    weight: Float64[np.ndarray, " loops"]
    """How much of each is believed, 0 to 1, by the last solution; 1 for a loop that none has seen yet."""
    is_withdrawn: Bool[np.ndarray, " loops"]

    @classmethod
    def none(cls) -> "Loops":
        nothing = np.empty(0, dtype=np.int64)
        return cls(
            number=nothing,
            first=nothing,
            second=nothing,
            measured=Similarities.identity(0),
            spread=np.empty((0, 3)),
            weight=np.empty(0),
            is_withdrawn=np.empty(0, dtype=bool),
        )

    @classmethod
    def one(cls, number: int, ends: tuple[int, int], first_from_second: Similarity, spread: Spread) -> "Loops":
        """That no solution has seen yet."""
        return cls(
            number=np.array([number]),
            first=np.array([ends[0]]),
            second=np.array([ends[1]]),
            measured=Similarities.of([first_from_second]),
            spread=np.array([spread.numbers]),
            weight=np.ones(1),
            is_withdrawn=np.zeros(1, dtype=bool),
        )

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, chosen: Int64[np.ndarray, " chosen"] | slice) -> "Loops":
        return Loops(
            number=self.number[chosen],
            first=self.first[chosen],
            second=self.second[chosen],
            measured=self.measured[chosen],
            spread=self.spread[chosen],
            weight=self.weight[chosen],
            is_withdrawn=self.is_withdrawn[chosen],
        )

    def followed_by(self, other: "Loops") -> "Loops":
        return Loops(
            number=np.concatenate([self.number, other.number]),
            first=np.concatenate([self.first, other.first]),
            second=np.concatenate([self.second, other.second]),
            measured=self.measured.followed_by(other.measured),
            spread=np.concatenate([self.spread, other.spread]),
            weight=np.concatenate([self.weight, other.weight]),
            is_withdrawn=np.concatenate([self.is_withdrawn, other.is_withdrawn]),
        )

    def least_missed(self) -> int:
        """The loop without which most stays known: a withdrawn one, else of the two closest the one believed less."""
        if self.is_withdrawn.any():
            withdrawn = np.flatnonzero(self.is_withdrawn)
            return int(withdrawn[self.weight[withdrawn].argmin()])
        apart = np.abs(self.first[:, None] - self.first) + np.abs(self.second[:, None] - self.second)
        apart[np.tril_indices(len(self))] = np.iinfo(np.int64).max
        earlier, later = np.unravel_index(int(apart.argmin()), apart.shape)
        return int(earlier if self.weight[earlier] <= self.weight[later] else later)

    def residuals(self, world_from_node: Similarities) -> Float64[np.ndarray, "loops 7"]:
        """log(measured⁻¹ · node_first⁻¹ · node_second), for nodes that lie so."""
        found = world_from_node[self.first].inverse() @ world_from_node[self.second]
        return (self.measured.inverse() @ found).log()

    def distances(self, world_from_node: Similarities) -> Float64[np.ndarray, " loops"]:
        """Squares of the residuals, in standard deviations."""
        whitened = self.residuals(world_from_node) / by_number(self.spread)
        squares: Float64[np.ndarray, " loops"] = (whitened**2).sum(axis=1)
        return squares


def by_number(spread: Float64[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n 7"]:
    """The standard deviation of each number of a tangent."""
    return np.repeat(spread, _AXES, axis=1)
