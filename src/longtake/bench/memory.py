"""Bytes per frame and layer of each retention policy: a real memory's token counts against a closed formula.

The memory is real but its tensors are on torch's meta device: they have sizes and no storage, so the published size
fits any laptop.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from longtake.geometry.config import CAMERA, TRUNK, GeometryConfig
from longtake.memory.memory import Memory
from longtake.memory.policies.lockstep import ContextRetention, Trail
from longtake.memory.policy import Keep
from longtake.memory.tokens import StreamLayout
from longtake.runtime.memory_plan import MemoryPlan

PUBLISHED = ContextRetention()
POLICIES: Mapping[str, ContextRetention] = {
    "published": PUBLISHED,
    "camera only": replace(PUBLISHED, trail=Trail.CAMERA),
    "no trail": replace(PUBLISHED, trail=Trail.NONE),
    "no anchors": replace(PUBLISHED, anchors=0),
    "keep all": ContextRetention(anchors=0, window=4096),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFigures:
    """What one policy holds once `num_frames` frames were kept, as counted and by the formula."""

    policy: str
    num_frames: int
    trunk_bytes: int
    trunk_formula_bytes: int
    camera_bytes: int
    camera_formula_bytes: int
    resident_frame_layer_bytes: int
    """Trunk bytes in one layer that the first frame brought."""
    last_frame_layer_bytes: int
    """Trunk bytes in one layer that the last frame added, net of what it pushed out."""
    declared_bytes: int
    commit_ms: float

    @property
    def agrees(self) -> bool:
        return self.trunk_bytes == self.trunk_formula_bytes and self.camera_bytes == self.camera_formula_bytes


def measure(
    config: GeometryConfig,
    size: tuple[int, int],
    *,
    num_frames: int,
    dtype: torch.dtype = torch.bfloat16,
    policies: Mapping[str, ContextRetention] = POLICIES,
) -> Sequence[MemoryFigures]:
    """Keep `num_frames` frames under each policy and count."""
    return [_measure_one(name, config, size, retention, num_frames, dtype) for name, retention in policies.items()]


def _measure_one(
    name: str,
    config: GeometryConfig,
    size: tuple[int, int],
    retention: ContextRetention,
    num_frames: int,
    dtype: torch.dtype,
) -> MemoryFigures:
    plan = MemoryPlan(config=config, size=size, retention=retention, num_scale_frames=1, trunk_dtype=dtype)
    memory = Memory(plan.requirements.plan(), device="meta")
    token_bytes = plan.requirements.streams[TRUNK][0].bytes_per_slot_layer
    held, times_ms = [0], []
    for _ in range(num_frames):
        start = time.perf_counter()
        _keep_one_frame(memory)
        times_ms.append((time.perf_counter() - start) * 1e3)
        held.append(len(memory.tokens(TRUNK)) * token_bytes)
    use = memory.use()
    return MemoryFigures(
        policy=name,
        num_frames=num_frames,
        trunk_bytes=use[TRUNK].live_bytes,
        trunk_formula_bytes=trunk_formula(config, size, retention, num_frames, dtype.itemsize),
        camera_bytes=use[CAMERA].live_bytes,
        camera_formula_bytes=camera_formula(config, retention, num_frames),
        resident_frame_layer_bytes=held[1],
        last_frame_layer_bytes=held[-1] - held[-2],
        declared_bytes=memory.num_bytes,
        commit_ms=statistics.median(times_ms),
    )


def _keep_one_frame(memory: Memory) -> None:
    with memory.begin(1, Keep.YES) as transaction:
        for stream, plan in memory.plans.items():
            rows = _rows(plan.layout)
            for layer in range(plan.layout.num_layers):
                transaction.write(stream, layer, rows, rows)
        transaction.commit()


def _rows(layout: StreamLayout) -> torch.Tensor:
    shape = (layout.tokens_per_frame, layout.num_heads, layout.head_dim)
    return torch.empty(shape, dtype=layout.dtype, device="meta")


def trunk_formula(
    config: GeometryConfig, size: tuple[int, int], retention: ContextRetention, num_frames: int, itemsize: int
) -> int:
    """2 · width · itemsize bytes a token and layer; whole frames in anchors and window, a few tokens in the trail."""
    tokens_per_frame = config.special_tokens + (size[0] // config.patch) * (size[1] // config.patch)
    assert isinstance(retention.trail, Trail)
    left_behind = {Trail.SPECIAL: config.special_tokens, Trail.CAMERA: 1, Trail.NONE: 0}[retention.trail]
    whole = min(num_frames, retention.anchors + retention.window)
    trail = min(num_frames, retention.history or num_frames) - whole
    return (whole * tokens_per_frame + trail * left_behind) * 2 * config.width * itemsize * config.trunk.depth


def camera_formula(config: GeometryConfig, retention: ContextRetention, num_frames: int) -> int:
    """One float32 key and value of twice the trunk's width for each frame, iteration and block."""
    frames = min(num_frames, retention.history or num_frames)
    return frames * 2 * (2 * config.width) * 4 * config.camera.iterations * config.camera.depth
