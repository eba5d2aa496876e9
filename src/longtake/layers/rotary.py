"""Rotary phases on one, two or three axes, computed on demand from integer positions: no table, no longest sequence.

A head's channels are turned in pairs; pair `j` of an axis with `D` channels turns by `position · theta^(−2j/D)`.

    2-D, halves     │ row: a₀ a₁ … b₀ b₁ … │ column: a₀ a₁ … b₀ b₁ … │     `a_j` pairs with `b_j`
    3-D, adjacent   │ time: a₀ b₀ a₁ b₁ … │ row: a₀ b₀ … │ column: a₀ b₀ … │
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

Tokens = Float[Tensor, "batch tokens heads head_dim"]
Rotate = Callable[[Tokens], Tokens]


@dataclass(frozen=True, slots=True)
class Phases:
    """Cosine and sine of the angle by which each pair of channels of a token is turned."""

    cos: Float[Tensor, "*tokens pairs"]
    sin: Float[Tensor, "*tokens pairs"]


def axis_phases(
    positions: Int[Tensor, " tokens"], channels: int, *, theta: float, dtype: torch.dtype = torch.float32
) -> Phases:
    """Phases of one axis, angles in float64 and rounded once (on the CPU where the device has no float64)."""
    place = torch.device("cpu") if positions.device.type == "mps" else positions.device
    exponents = torch.arange(0, channels, 2, dtype=torch.float64, device=place) / channels
    angles = positions.to(place)[:, None] * theta**-exponents
    return Phases(
        cos=angles.cos().to(dtype).to(positions.device),
        sin=angles.sin().to(dtype).to(positions.device),
    )


def join_axes(*axes: Phases) -> Phases:
    """The phases of several axes side by side."""
    return Phases(
        cos=torch.cat([axis.cos for axis in axes], dim=-1),
        sin=torch.cat([axis.sin for axis in axes], dim=-1),
    )


def grid_phases(
    positions: Int[Tensor, "tokens 2"], head_dim: int, *, theta: float, dtype: torch.dtype = torch.float32
) -> Phases:
    """Phases on (row, column), half of the channels each."""
    return join_axes(*(axis_phases(axis, head_dim // 2, theta=theta, dtype=dtype) for axis in positions.unbind(dim=-1)))


def axial_split(head_dim: int) -> tuple[int, int, int]:
    """Channels for (time, row, column): a third each, rounded up to pairs for the image axes; 64 gives 20, 22, 22."""
    image = 2 * -(-head_dim // 6)
    return head_dim - 2 * image, image, image


def spread_over_frames(time: Phases, image: Phases) -> Phases:
    """Phases of all tokens, frame by frame, from those of the frames in time and of one frame's tokens in its image."""
    return Phases(cos=_spread(time.cos, image.cos), sin=_spread(time.sin, image.sin))


def _spread(frames: Float[Tensor, "frames _"], tokens: Float[Tensor, "tokens _"]) -> Float[Tensor, "all_tokens pairs"]:
    num_frames, num_tokens = len(frames), len(tokens)
    of_frame = frames[:, None].expand(-1, num_tokens, -1)
    return torch.cat([of_frame, tokens.expand(num_frames, -1, -1)], dim=-1).flatten(0, 1)


def repeat_over_frames(image: Phases, num_frames: int) -> Phases:
    """One frame's phases for each of several frames."""
    return Phases(cos=image.cos.repeat(num_frames, 1), sin=image.sin.repeat(num_frames, 1))


@dataclass(frozen=True)
class HalvesRotation:
    """Turns channel `j` with channel `j + D/2` within each of two axes."""

    phases: Phases

    def __call__(self, tokens: Tokens) -> Tokens:
        first, second = tokens.unflatten(-1, (2, 2, -1)).unbind(dim=-2)
        cos, sin = (table.unflatten(-1, (2, -1))[:, None] for table in (self.phases.cos, self.phases.sin))
        return torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-2).flatten(-3)


@dataclass(frozen=True)
class AdjacentRotation:
    """Turns channel `2j` with channel `2j + 1`: as one complex number each, in one product."""

    phases: Phases

    @cached_property
    def _turns(self) -> Complex[Tensor, "tokens 1 pairs"]:
        return torch.complex(self.phases.cos, self.phases.sin)[:, None]

    def __call__(self, tokens: Tokens) -> Tokens:
        pairs = tokens.to(self.phases.cos.dtype).contiguous().unflatten(-1, (-1, 2))
        return torch.view_as_real(torch.view_as_complex(pairs) * self._turns).flatten(-2)


def leave_unrotated(tokens: Tokens) -> Tokens:
    """For blocks without positions."""
    return tokens
