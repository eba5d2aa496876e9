"""An open clip that begins later: its remembered keys moved back in time, so that positions stay within range.

Only time moves: rows, columns and the differences between moments stay as they were. The result is the prompt of a
video that began when the oldest remembered grid was seen.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from longtake.language.facts import TextFacts

RANGE = 32_768
"""Positions that a clip may reach before it is moved back; what published checkpoints have been trained on."""


def moved_back(
    keys: Float[Tensor, "tokens heads head_dim"], positions: int, facts: TextFacts
) -> Float[Tensor, "tokens heads head_dim"]:
    """Keys as they would be had their tokens stood so many positions earlier in time.

    Channel i turns with channel i + d/2; the first of them turn with time.
    """
    half, num_time = facts.head_dim // 2, facts.mrope_section[0]
    frequency = torch.arange(num_time, dtype=torch.float64, device=keys.device) * 2 / facts.head_dim
    angle = -positions * facts.rope_theta**-frequency
    cos, sin = angle.cos(), angle.sin()
    exact = keys.double()
    first, second = exact[..., :num_time], exact[..., half : half + num_time]
    turned = exact.clone()
    turned[..., :num_time] = first * cos - second * sin
    turned[..., half : half + num_time] = second * cos + first * sin
    return turned.to(keys.dtype)
