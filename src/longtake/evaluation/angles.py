"""Angles of rotations and between directions, exact to rounding from 0 to 180 degrees."""

import torch
from jaxtyping import Float64
from torch import Tensor


def rotation_angle_deg(rotation: Float64[Tensor, "*batch 3 3"]) -> Float64[Tensor, "*batch"]:
    """How far each rotation turns; from sine and cosine, for the cosine alone says little of small angles."""
    lower, upper = rotation[..., [2, 0, 1], [1, 2, 0]], rotation[..., [1, 2, 0], [2, 0, 1]]
    sine = (lower - upper).norm(dim=-1) / 2
    cosine = (rotation.diagonal(dim1=-2, dim2=-1).sum(dim=-1) - 1) / 2
    return torch.rad2deg(torch.atan2(sine, cosine))


def direction_angle_deg(a: Float64[Tensor, "*batch 3"], b: Float64[Tensor, "*batch 3"]) -> Float64[Tensor, "*batch"]:
    """The angle between two vectors of any length; 0 where one has none."""
    return torch.rad2deg(torch.atan2(torch.linalg.cross(a, b).norm(dim=-1), (a * b).sum(dim=-1)))
