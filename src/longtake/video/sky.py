"""Which pixels show no sky, from the score map of a sky model."""

from jaxtyping import Bool, UInt8
from torch import Tensor

LEAST_GROUND = 0.1
"""Confidence that a pixel is not sky, from 0 to 1, which it must exceed to be kept."""


def keep_ground(
    score: UInt8[Tensor, "*batch height width"], least_ground: float = LEAST_GROUND
) -> Bool[Tensor, "*batch height width"]:
    """Where a map of sky scores, 255 for certain sky, leaves enough confidence in ground.

    The published tool clips the scores to 0 and 1 first, and so keeps only what scored exactly 0.
    """
    return 1 - score.float() / 255 > least_ground
