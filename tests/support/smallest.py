"""The smallest network that remembers: a step of it is broken at every line, thousands of times."""

from functools import cache

import torch

from longtake.geometry.config import CameraConfig, DenseConfig, EncoderConfig, GeometryConfig, TrunkConfig
from longtake.geometry.model import GeometryModel

SMALLEST = GeometryConfig(
    width=32,
    patch=14,
    encoder=EncoderConfig(depth=1, heads=2, registers=1, side=2),
    trunk=TrunkConfig(depth=4, heads=2, registers=1, selected=(0, 1, 2, 3)),
    camera=CameraConfig(depth=1, heads=2, iterations=1),
    dense=DenseConfig(features=8, channels=(8, 8, 8, 8)),
)


@cache
def smallest_model() -> GeometryModel:
    torch.manual_seed(0)
    made = GeometryModel(SMALLEST).eval().requires_grad_(requires_grad=False)
    for name, tensor in made.state_dict().items():
        if name.endswith("gamma"):
            tensor.fill_(1.0)  # so that memory shows in every result
    return made
