"""Rotary positions when turns or whole clips are evicted: what is after them closes up, and how far each token moved.

    written   | sink | turn 0 | turn 1 | words | turn 2 |
    later     | sink | turn 1 | words | turn 2 |            all after turn 0 have moved back by its extent

Positions are then those of a conversation that never had what left. Keys stay as they were written: what reads them
turns them once, by all that their tokens have moved (`KeyRotation`), so that nothing is ever corrected twice.

An open clip that begins later is moved back in time alone, in memory: rows, columns and the differences between moments
stay as they were; the result is the prompt of a video that began when the oldest remembered grid was seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from longtake.language.model_config import TextConfig
from longtake.memory.policy import Segment

Tokens = Int64[np.ndarray, " tokens"]
Keys = Float[Tensor, "tokens heads head_dim"]
RANGE = 32_768
"""Positions that a clip may reach before it is moved back; what published checkpoints have been trained on."""


@dataclass(frozen=True, slots=True)
class ShiftedRun:
    """Tokens from the conversation's `first` on, up to the next run, have moved back by so many positions."""

    first: int
    back: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Positions on which nothing stands any more; what comes after token `first` moves back by them."""

    first: int
    extent: int


def moved_back_by(runs: Sequence[ShiftedRun], token: Tokens) -> Tokens:
    """How far each of these tokens of the conversation has moved back; not at all before the first run."""
    steps = np.array([0, *(run.back for run in runs)], dtype=np.int64)
    return steps[np.searchsorted([run.first for run in runs], token, side="right")]


def closed_up(
    runs: Sequence[ShiftedRun], leaving: Sequence[Segment | Gap], staying: Tokens, *, next_token: int
) -> tuple[ShiftedRun, ...]:
    """The runs of tokens that stay when others leave; what comes from `next_token` on has not moved."""
    if not any(segment.extent for segment in leaving):
        return tuple(runs)
    token = np.sort(staying)
    back = moved_back_by(runs, token)
    for segment in leaving:
        back[token > segment.first] += segment.extent
    token, back = np.append(token, next_token), np.append(back, 0)
    return tuple(ShiftedRun(int(token[place]), int(back[place])) for place in np.flatnonzero(np.diff(back, prepend=0)))


@dataclass(frozen=True, slots=True, eq=False)
class KeyRotation:
    """Rotates the keys of tokens that have moved in time, rows and columns alike; the same in every layer."""

    cos: Float32[Tensor, "past 1 half"]
    sin: Float32[Tensor, "past 1 half"]

    @classmethod
    def back(
        cls, positions: Int64[np.ndarray, " past"], text_config: TextConfig, device: torch.device
    ) -> "KeyRotation | None":
        """For tokens that have moved back by so many positions each, or none if they all stand where they were."""
        if not positions.any():
            return None
        distinct, which = np.unique(positions, return_inverse=True)
        angle = torch.outer(torch.from_numpy(-distinct).double(), frequencies(text_config, text_config.head_dim // 2))
        place = torch.from_numpy(which).to(device)
        cos, sin = (part.float().to(device).index_select(0, place) for part in (angle.cos(), angle.sin()))
        return cls(cos.unsqueeze(1), sin.unsqueeze(1))

    def __call__(self, start: int, keys: Keys) -> Keys:
        """Keys of the past from its token `start` on, as they are to be read; those given stay as they are.

        Every token of an answer pays for this, in every layer: few passes over the keys, and no more room than theirs.
        """
        cos, sin = (part[start : start + len(keys)] for part in (self.cos, self.sin))
        first, second = keys.float().chunk(2, dim=-1)
        turned = torch.empty(keys.shape, device=keys.device)
        half = first.shape[-1]
        torch.mul(first, cos, out=turned[..., :half]).addcmul_(second, sin, value=-1)
        torch.mul(second, cos, out=turned[..., half:]).addcmul_(first, sin)
        return turned.to(keys.dtype)


def moved_back(keys: Keys, positions: Int64[np.ndarray, " tokens"], text_config: TextConfig) -> Keys:
    """Keys as they would be had their tokens stood so many positions each earlier in time.

    Channel i turns with channel i + d/2; the first of them turn with time.
    """
    half, num_time = text_config.head_dim // 2, text_config.mrope_section[0]
    back = torch.from_numpy(-positions).double()
    angle = torch.outer(back, frequencies(text_config, num_time)).unsqueeze(1).to(keys.device)
    cos, sin = angle.cos(), angle.sin()
    exact = keys.double()
    first, second = exact[..., :num_time], exact[..., half : half + num_time]
    turned = exact.clone()
    turned[..., :num_time] = first * cos - second * sin
    turned[..., half : half + num_time] = second * cos + first * sin
    return turned.to(keys.dtype)


def frequencies(text_config: TextConfig, count: int) -> Float[Tensor, " count"]:
    """How far each of the first channels turns for a position."""
    return text_config.rope_theta ** -(torch.arange(count, dtype=torch.float64) * 2 / text_config.head_dim)
