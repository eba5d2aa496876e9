"""A long run through a tiny network: memory, time and allocations must not depend on how long it already runs."""

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil
import torch
from torch import Tensor

from longtake.geometry.model import GeometryModel
from longtake.runtime.retention import ContextRetention, MemoryPlan
from longtake.runtime.session import GeometrySession
from longtake.weights.presets import TINY

SIZE = (28, 42)
RETENTION = ContextRetention(anchors=2, window=8, history=256)
_PALETTE = 64
_SLACK_BYTES = 20_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What a stretch of frames took: the most resident memory, the median step, what was alive at its end."""

    resident_bytes: int
    step_ms: float
    num_tensors: int
    num_objects: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakFigures:
    """The first and the last stretch of a long run."""

    num_frames: int
    stretch_frames: int
    memory_bytes: int
    first: Stretch
    last: Stretch

    @property
    def is_flat(self) -> bool:
        """Resident memory within 5 % or 20 MB of the first stretch, and no more tensors alive."""
        allowed = max(0.05 * self.first.resident_bytes, _SLACK_BYTES)
        grown = self.last.resident_bytes - self.first.resident_bytes
        return grown <= allowed and self.last.num_tensors <= self.first.num_tensors

    @property
    def step_ratio(self) -> float:
        return self.last.step_ms / self.first.step_ms


def soak(num_frames: int, stretch_frames: int, progress: Callable[[int], None]) -> SoakFigures:
    """Stream `num_frames` random frames, every one kept, and compare the first and the last `stretch_frames`."""
    generator = torch.Generator().manual_seed(0)
    model = GeometryModel(TINY).eval().requires_grad_(requires_grad=False)
    plan = MemoryPlan(config=TINY, size=SIZE, retention=RETENTION, num_scale_frames=2)
    session = GeometrySession(model, plan)
    palette = torch.rand(_PALETTE, 3, *SIZE, generator=generator)
    first = _stretch(session, palette, stretch_frames, progress)
    for _ in range(num_frames - 2 * stretch_frames):
        session.step(palette[session.num_kept % _PALETTE])
        progress(1)
    last = _stretch(session, palette, stretch_frames, progress)
    return SoakFigures(
        num_frames=num_frames,
        stretch_frames=stretch_frames,
        memory_bytes=session.num_bytes,
        first=first,
        last=last,
    )


def _stretch(session: GeometrySession, palette: Tensor, num_frames: int, progress: Callable[[int], None]) -> Stretch:
    process = psutil.Process()
    resident, steps_ms = 0, []
    for _ in range(num_frames):
        start = time.perf_counter()
        session.step(palette[session.num_kept % _PALETTE])
        steps_ms.append((time.perf_counter() - start) * 1e3)
        resident = max(resident, process.memory_info().rss)
        progress(1)
    gc.collect()
    alive = gc.get_objects()
    return Stretch(
        resident_bytes=resident,
        step_ms=statistics.median(steps_ms),
        num_tensors=sum(issubclass(type(thing), Tensor) for thing in alive),
        num_objects=len(alive),
    )
