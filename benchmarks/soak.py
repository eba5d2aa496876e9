"""A long run through a tiny network: memory, time and allocations must not depend on how long it already runs."""

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import psutil
import torch
from torch import Tensor

from longtake.geometry.model import GeometryModel
from longtake.memory.policies.budgeted import Budgeted
from longtake.memory.policies.farthest_frames import FarthestFrames
from longtake.memory.policies.lockstep import ContextRetention
from longtake.memory.policies.ratio import Ratio
from longtake.memory.policy import StreamPolicy
from longtake.runtime.memory_plan import MemoryPlan
from longtake.runtime.session import SequenceSession
from longtake.weights.presets import TINY, TINY_CAUSAL

SIZE = (28, 42)
RETENTION = ContextRetention(anchors=2, window=8, history=256)
_PALETTE = 64
_SLACK_BYTES = 20_000_000
_SLACK_STEP = 1.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What a stretch of frames took: the most memory, the median step, what was alive at its end."""

    resident_bytes: int
    taken_bytes: int
    """The most that the memory's slots in use took, those of the frame being watched included."""
    step_ms: float
    num_tensors: int
    num_objects: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ages:
    """Median steps of the session at its end and of a new one with a full memory, which took turns: whatever else the
    machine did in these minutes slowed both, as it does not slow the first and the last stretch alike."""

    num_frames: int
    old_step_ms: float
    young_step_ms: float

    @property
    def ratio(self) -> float:
        return self.old_step_ms / self.young_step_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakFigures:
    """The first and the last stretch of a long run."""

    num_frames: int
    stretch_frames: int
    memory_bytes: int
    """Declared for trunk, camera head and all statistics of tokens."""
    most_taken_bytes: int
    """Of all frames, those between the stretches included."""
    first: Stretch
    last: Stretch
    ages: Ages | None = None
    """Only of a rule that was asked for."""

    @property
    def is_flat(self) -> bool:
        """Resident memory within 5 % or 20 MB of the first stretch, and no more tensors alive."""
        allowed = max(0.05 * self.first.resident_bytes, _SLACK_BYTES)
        grown = self.last.resident_bytes - self.first.resident_bytes
        return grown <= allowed and self.last.num_tensors <= self.first.num_tensors

    @property
    def is_bounded(self) -> bool:
        """The memory never took more than was declared."""
        return self.most_taken_bytes <= self.memory_bytes

    @property
    def is_steady(self) -> bool:
        """The median step takes at most 10 % longer than that of a new session beside it."""
        return self.ages is None or self.ages.ratio <= _SLACK_STEP

    @property
    def step_ratio(self) -> float:
        return self.last.step_ms / self.first.step_ms


def small(rule: StreamPolicy) -> StreamPolicy:
    """A rule that a tiny network fills early in the first stretch."""
    if isinstance(rule, Budgeted):
        return replace(rule, num_frames=8, special_frames=16, camera_frames=256)
    if isinstance(rule, FarthestFrames):
        return replace(rule, num_frames=8, camera_frames=256)
    if isinstance(rule, Ratio):
        return replace(rule, special_frames=16, camera_frames=256)
    return RETENTION if isinstance(rule, ContextRetention) else rule


def soak(
    num_frames: int, stretch_frames: int, progress: Callable[[int], None], rule: StreamPolicy | None = None
) -> SoakFigures:
    """Stream `num_frames` random frames, every one kept, and compare the first and the last `stretch_frames`.

    A rule decides the network: one made for anchors, a window and a trail, as without a rule, or one made to remember
    all. With a rule, so many frames more are shown to the session and to a new one in turn.
    """
    session = _open(rule or RETENTION)
    palette = torch.rand(_PALETTE, 3, *SIZE, generator=torch.Generator().manual_seed(0))
    first = _stretch(session, palette, stretch_frames, progress)
    most_taken = 0
    for _ in range(num_frames - 2 * stretch_frames):
        most_taken = max(most_taken, _taken_bytes(session))
        _step_ms(session, palette)
        progress(1)
    last = _stretch(session, palette, stretch_frames, progress)
    return SoakFigures(
        num_frames=num_frames,
        stretch_frames=stretch_frames,
        memory_bytes=session.num_bytes,
        most_taken_bytes=max(first.taken_bytes, most_taken, last.taken_bytes),
        first=first,
        last=last,
        ages=None if rule is None else _compare_ages(session, _open(rule), palette, stretch_frames),
    )


def _open(rule: StreamPolicy) -> SequenceSession:
    is_context = isinstance(rule, ContextRetention)
    config = TINY if is_context else TINY_CAUSAL
    model = GeometryModel(config).eval().requires_grad_(requires_grad=False)
    plan = MemoryPlan(config=config, size=SIZE, retention=rule, num_scale_frames=2 if is_context else 1)
    return SequenceSession(model, plan)


def _compare_ages(old: SequenceSession, young: SequenceSession, palette: Tensor, num_frames: int) -> Ages:
    for _ in range(young.plan.requirements.full_after or 0):
        _step_ms(young, palette)
    old_ms, young_ms = [], []
    for _ in range(num_frames):
        old_ms.append(_step_ms(old, palette))
        young_ms.append(_step_ms(young, palette))
    return Ages(num_frames=num_frames, old_step_ms=statistics.median(old_ms), young_step_ms=statistics.median(young_ms))


def _stretch(session: SequenceSession, palette: Tensor, num_frames: int, progress: Callable[[int], None]) -> Stretch:
    process = psutil.Process()
    resident, taken, steps_ms = 0, 0, []
    for _ in range(num_frames):
        taken = max(taken, _taken_bytes(session))
        steps_ms.append(_step_ms(session, palette))
        resident = max(resident, process.memory_info().rss)
        progress(1)
    gc.collect()
    alive = gc.get_objects()
    return Stretch(
        resident_bytes=resident,
        taken_bytes=taken,
        step_ms=statistics.median(steps_ms),
        num_tensors=sum(issubclass(type(thing), Tensor) for thing in alive),
        num_objects=len(alive),
    )


def _step_ms(session: SequenceSession, palette: Tensor) -> float:
    start = time.perf_counter()
    session.step(palette[session.num_kept % _PALETTE])
    return (time.perf_counter() - start) * 1e3


def _taken_bytes(session: SequenceSession) -> int:
    """All that is remembered now, and the next frame before anything leaves for it."""
    used, taken = session.use(), 0
    for name, (layout, policy) in session.plan.requirements.streams.items():
        taken += (used[name].live + policy.slots_per_frame(layout)) * policy.bytes_per_slot(layout)
    return taken
