"""How long a step of a map network's training takes, by the length of clips, with and without passing over blocks."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from longtake.geometry.config import GeometryConfig
from longtake.geometry.model import GeometryModel
from training.fusing import fuse
from training.learning import ClipTrainer
from training.losses import weighted
from training.optimise import initialise
from training.recording import prepare_gradients
from training.stream_pattern import random_pattern

_MEDIAN_OF = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """Forward and backward of one step, as it is trained on this device."""

    clip_frames: int
    sparse: bool
    first_s: float
    """The first step, with all that is compiled and recorded for it."""
    step_ms: float
    """Median of those that follow."""
    loss: float
    gradient: float
    """Its norm; with the loss it tells whether both ways learn the same."""


def measure_steps(
    network: GeometryConfig,
    size: tuple[int, int],
    lengths: Sequence[int],
    *,
    frames: int,
    deep: int,
    device: torch.device,
) -> list[StepFigures]:
    """Each length in both ways, on the same random clips."""
    torch.manual_seed(0)
    model = GeometryModel(network)
    initialise(model)
    model.to(device)
    if device.type == "cuda":
        fuse(model)
    weights = list(model.parameters())
    prepare_gradients(weights)
    pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
    with torch.no_grad():
        grid = model.grid(*size)
    figures = []
    for length in lengths:
        inputs = _clips(max(1, frames // length), length, size, deep, device)
        pattern = random_pattern(length, np.random.default_rng(length))
        for sparse in (False, True) if device.type == "cuda" else (False,):
            trainer = ClipTrainer(model, pattern, grid, sparse=sparse)
            times = []
            for _ in range(1 + _MEDIAN_OF):
                _wait(device)
                started = time.perf_counter()
                parts = trainer.learn(inputs, weights, pool)
                _wait(device)
                times.append(time.perf_counter() - started)
            squares = sum(float(weight.grad.square().sum()) for weight in weights if weight.grad is not None)
            figures.append(
                StepFigures(
                    clip_frames=length,
                    sparse=sparse,
                    first_s=times[0],
                    step_ms=1000 * statistics.median(times[1:]),
                    loss=float(weighted(parts)),
                    gradient=squares**0.5,
                )
            )
    return figures


def _clips(num_clips: int, length: int, size: tuple[int, int], deep: int, device: torch.device) -> list[Tensor]:
    """Pictures, poses, which of these are known, depths, and of which frames, all at random."""
    pose = 0.1 * torch.randn(num_clips, length, 9, device=device)
    pose[..., 6] += 1
    num_deep = min(length, max(1, deep // num_clips))
    return [
        torch.rand(num_clips, length, 3, *size, device=device),
        pose,
        torch.ones(num_clips, length, dtype=torch.bool, device=device),
        1 + torch.rand(num_clips, num_deep, *size, device=device),
        torch.arange(num_deep, device=device),
    ]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
