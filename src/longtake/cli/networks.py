"""Networks by the names that commands take: files and known names, and two without trained weights."""

from collections.abc import Mapping
from types import MappingProxyType

import torch

from longtake.geometry.config import GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.hub.load import load_model
from longtake.weights.presets import MICRO, TINY

RANDOM: Mapping[str, GeometryConfig] = MappingProxyType({"tiny": TINY, "micro": MICRO})
"""With random weights: for tests of the machinery, where time matters and what comes out does not."""


def network_named(name: str, device: torch.device) -> GeometryModel:
    """A model ready to answer."""
    return random_model(RANDOM[name], device) if name in RANDOM else load_model(name, device=device)


def random_model(config: GeometryConfig, device: torch.device) -> GeometryModel:
    """Random weights, the same each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return GeometryModel(config).eval().requires_grad_(requires_grad=False).to(device)
