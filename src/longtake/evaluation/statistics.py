"""Six numbers that sum up many errors."""

from dataclasses import dataclass

from jaxtyping import Float64
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Of one error at least."""

    rmse: float
    """Root of the mean square."""
    mean: float
    median: float
    """The mean of the middle two of an even number."""
    std: float
    """About the mean, over all: divided by their number."""
    min: float
    max: float

    @classmethod
    def of(cls, errors: Float64[Tensor, " errors"]) -> "Statistics":
        ordered = errors.sort().values
        middle = len(ordered) // 2
        return cls(
            rmse=float(errors.square().mean().sqrt()),
            mean=float(errors.mean()),
            median=float((ordered[(len(ordered) - 1) // 2] + ordered[middle]) / 2),
            std=float(errors.std(correction=0)),
            min=float(ordered[0]),
            max=float(ordered[-1]),
        )
