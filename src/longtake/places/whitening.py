"""What sets places of one walk apart: descriptors in units in which those of the walk vary alike in all directions.

Descriptors of one house lie within a few degrees of each other, along a few directions in which all of them vary; what
tells places apart is in the others. So they are divided by the walk's own covariance, to which a tenth of the mean
variance is added in every direction; what that gains is in docs/benchmarks.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float16, Float32, Float64
from torch import Tensor

from longtake.places.graph import array_of
from longtake.places.steady_product import steady_product
from longtake.places.steady_solve import inverse_factor

MOST_CHANNELS = 192
"""Wider descriptors are folded: keys are computed anew now and then, in time as the square of their width."""
_SHARED = 0.1
"""Of the mean variance, added to all."""
_FEWEST, _MOST = 16, 1024
"""Places whose covariance is computed; of more, some at equal distances."""


@dataclass(frozen=True, slots=True)
class Whitening:
    """key = unit length of factor · (descriptor - mean)."""

    mean: Float64[np.ndarray, " channels"]
    factor: Float64[np.ndarray, "channels channels"]

    @classmethod
    def none(cls, num_channels: int) -> "Whitening":
        """Before anything is known: keys are descriptors of unit length."""
        width = min(num_channels, MOST_CHANNELS)
        return cls(np.zeros(width), np.eye(width))

    @classmethod
    def of(cls, descriptors: Float16[np.ndarray, "places channels"]) -> "Whitening":
        """By the places of a walk."""
        if len(descriptors) < _FEWEST:
            return cls.none(descriptors.shape[1])
        folded = _folded(descriptors[:: -(-len(descriptors) // _MOST)])
        mean = folded.mean(axis=0)
        covariance = steady_product(np.ascontiguousarray((folded - mean).T), folded - mean) / len(folded)
        shared = _SHARED * float(np.trace(covariance)) / len(mean)
        if not shared > 0:
            return cls.none(descriptors.shape[1])
        return cls(mean, inverse_factor(covariance + shared * np.eye(len(mean))))

    def keys(self, descriptors: Float16[np.ndarray, "places channels"]) -> Float32[np.ndarray, "places width"]:
        """Of unit length; zeros where a descriptor says nothing."""
        keys = steady_product(_folded(descriptors) - self.mean, np.ascontiguousarray(self.factor.T))
        length = np.sqrt((keys**2).sum(axis=1, keepdims=True))
        return (keys / np.where(length > 0, length, 1)).astype(np.float32)

    def tensors(self) -> dict[str, Tensor]:
        return {"mean": torch.from_numpy(self.mean.copy()), "factor": torch.from_numpy(self.factor.copy())}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, Tensor], num_channels: int) -> "Whitening":
        width = min(num_channels, MOST_CHANNELS)
        return cls(
            array_of(tensors, "mean", torch.float64, (width,)),
            array_of(tensors, "factor", torch.float64, (width, width)),
        )

    @staticmethod
    def num_bytes(num_channels: int) -> int:
        width = min(num_channels, MOST_CHANNELS)
        return 8 * width * (width + 1)


def _folded(descriptors: Float16[np.ndarray, "places channels"]) -> Float64[np.ndarray, "places width"]:
    """In double precision; wide ones as sums of channels with fixed random signs, which keeps angles nearly."""
    whole = descriptors.astype(np.float64)
    num_channels = whole.shape[1]
    if num_channels <= MOST_CHANNELS:
        return whole
    signs = np.random.default_rng(num_channels).choice([-1.0, 1.0], num_channels)
    padded = np.pad(whole * signs, ((0, 0), (0, -num_channels % MOST_CHANNELS)))
    folded: Float64[np.ndarray, "places width"] = padded.reshape(len(whole), -1, MOST_CHANNELS).sum(axis=1)
    return folded
