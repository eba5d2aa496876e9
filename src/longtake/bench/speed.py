"""Milliseconds a frame, with the contract under which they were measured."""

import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from longtake import __version__
from longtake.bench.machine import device_name, synchronize
from longtake.geometry.config import GeometryConfig
from longtake.memory.registry import policy_record
from longtake.runtime.session import SequenceSession

_PALETTE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedFigures:
    """What was measured, and all that it depends on."""

    model: str
    weights: str
    device: str
    height: int
    width: int
    compute_dtype: str
    memory_dtype: str
    backend: str
    captured: bool
    why_portable: str | None
    """Why steps are not recorded as a whole; None where they are."""
    scale_frames: int
    policy: dict[str, Any]
    keyframes: dict[str, int | float]
    heads: str
    warm_up_frames: int
    timed_frames: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    frames_per_s: float
    """Of a run in which nobody waits for single results, so that the host can work ahead of the GPU."""
    memory_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    longtake: str
    torch: str
    python: str
    cuda: str


def measure_speed(
    session: SequenceSession, labels: dict[str, str], num_frames: int, warm_up: int, progress: Callable[[int], None]
) -> SpeedFigures:
    """Fill the memory, time single steps until their results are there, then a run of steps as a whole."""
    device, plan = session.device, session.plan
    frames = torch.randint(0, 256, (_PALETTE, 3, *plan.size), generator=torch.Generator().manual_seed(0)).byte()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    for index in range(warm_up):
        session.step(frames[index % _PALETTE])
        progress(1)
    times_ms = []
    for index in range(num_frames):
        synchronize(device)
        start = time.perf_counter()
        session.step(frames[index % _PALETTE])
        synchronize(device)
        times_ms.append((time.perf_counter() - start) * 1e3)
        progress(1)
    start = time.perf_counter()
    for index in range(num_frames):
        session.step(frames[index % _PALETTE])
        progress(1)
    synchronize(device)
    frames_per_s = num_frames / (time.perf_counter() - start)
    quantiles = statistics.quantiles(times_ms, n=100, method="inclusive") if num_frames > 1 else times_ms * 99
    on_gpu = device.type == "cuda"
    return SpeedFigures(
        model=labels["model"],
        weights=labels["weights"],
        device=device_name(device),
        height=plan.size[0],
        width=plan.size[1],
        compute_dtype=labels["compute_dtype"],
        memory_dtype=str(plan.trunk_dtype).removeprefix("torch."),
        backend=labels["backend"],
        captured=labels["captured"] == "yes",
        why_portable=session.why_portable,
        scale_frames=plan.num_scale_frames,
        policy=policy_record(plan.retention),
        keyframes=session.keyframes.to_record(),
        heads=_heads(plan.config),
        warm_up_frames=warm_up,
        timed_frames=num_frames,
        p50_ms=quantiles[49],
        p90_ms=quantiles[89],
        p99_ms=quantiles[98],
        frames_per_s=frames_per_s,
        memory_bytes=session.num_bytes,
        peak_allocated_bytes=torch.cuda.max_memory_allocated(device) if on_gpu else 0,
        peak_reserved_bytes=torch.cuda.max_memory_reserved(device) if on_gpu else 0,
        longtake=__version__,
        torch=torch.__version__,
        python=platform.python_version(),
        cuda=torch.version.cuda or "none",
    )


def _heads(config: GeometryConfig) -> str:
    heads = [f"camera x {config.camera.iterations}", "depth"]
    heads += ["points"] if config.dense.points else []
    heads += ["camera points"] if config.dense.camera_points else []
    return ", ".join(heads)
