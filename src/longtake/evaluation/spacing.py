"""Some of many, evenly spaced."""

import torch
from jaxtyping import Int64
from torch import Tensor


def evenly_spaced(count: int, most: int) -> Int64[Tensor, " chosen"]:
    """All indices below `count`, or `most` of them where there are more, the first and the last among them."""
    return torch.linspace(0, count - 1, min(count, most), dtype=torch.float64).round().long()
