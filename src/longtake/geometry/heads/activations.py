"""How raw head outputs become depths, points and confidences."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from jaxtyping import Float
from torch import Tensor

Values = Float[Tensor, "*batch channels"]
Confidence = Float[Tensor, "*batch"]


def signed_expm1(raw: Values) -> Values:
    """sign(y)(exp|y| − 1): linear near zero, exponential far out."""
    return raw.sign() * raw.abs().expm1()


def norm_expm1(raw: Values) -> Values:
    """The direction of y at distance exp|y| − 1."""
    return direction(raw) * _length(raw).expm1()


def direction(raw: Values) -> Values:
    return raw / _length(raw).clamp(min=1e-8)


def rays_times_depth(raw: Values) -> Values:
    """(x, y) on the plane at distance 1, and the depth at which to place them."""
    depth = signed_expm1(raw[..., 2:])
    return torch.cat([raw[..., :2] * depth, depth], dim=-1)


def _length(raw: Values) -> Float[Tensor, "*batch 1"]:
    length: Tensor = torch.linalg.vector_norm(raw, dim=-1, keepdim=True)
    return length


def linear(raw: Values) -> Values:
    return raw


VALUE_ACTIVATIONS: Mapping[str, Callable[[Values], Values]] = MappingProxyType(
    {
        "exp": torch.exp,
        "inv_log": signed_expm1,
        "norm_exp": norm_expm1,
        "norm": direction,
        "xy_inv_log": rays_times_depth,
        "relu": torch.relu,
        "sigmoid": torch.sigmoid,
        "linear": linear,
    }
)


def exp_plus_one(raw: Confidence) -> Confidence:
    return 1 + raw.exp()


CONFIDENCE_ACTIVATIONS: Mapping[str, Callable[[Confidence], Confidence]] = MappingProxyType(
    {"expp1": exp_plus_one, "expp0": torch.exp, "sigmoid": torch.sigmoid}
)
