"""How far half precision is from float32, against the plainest way to run in half precision.

The same random network streams the same frames three times: in float32; plainly, as the published demonstration does it
(encoder and trunk cast whole, autocast, dense attention); and as longtake does it. LayerScale may be raised from its
small start, so that what attention gets wrong shows in the results.
"""

import copy
import math
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from longtake.attention.backend import Attended, Backend, Keys, Queries
from longtake.geometry.config import GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.layers.block import LayerScale
from longtake.memory.policies.lockstep import ContextRetention
from longtake.runtime.memory_plan import MemoryPlan
from longtake.runtime.session import SequenceSession

LAYER_SCALE = 0.5
_RECENT = 8


class PlainHalfBackend:
    """Dense attention in bfloat16 over one block, without a log-sum-exp."""

    name = "plain"

    def attend(self, q: Queries, k: Keys, v: Keys) -> Attended:
        queries, keys, mixed = (tensor.to(torch.bfloat16).transpose(1, 2) for tensor in (q, k, v))
        values = scaled_dot_product_attention(queries, keys, mixed).transpose(1, 2)
        return Attended(values.to(q.dtype), q.new_zeros(q.shape[:3], dtype=torch.float32))


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionFigures:
    """Errors relative to float32, norm of the difference over norm, root mean square over the frames up to this one.

    One frame's error is partly luck, so the last few count.
    """

    frame: int
    backend: str
    pose_error: float
    plain_pose_error: float
    depth_error: float
    plain_depth_error: float
    single_pose_ratio: float
    """Our error over the plain one, of this frame alone."""
    single_depth_ratio: float

    @property
    def worst_ratio(self) -> float:
        """Our error over the plain one, the worse of pose and depth."""
        return max(self.pose_error / self.plain_pose_error, self.depth_error / self.plain_depth_error)


def measure_precision(
    config: GeometryConfig,
    size: tuple[int, int],
    *,
    at_frames: Sequence[int],
    backends: Sequence[Backend],
    device: torch.device,
    progress: Callable[[int], None],
    layer_scale: float | None = LAYER_SCALE,
) -> Iterator[PrecisionFigures]:
    """Stream up to the last of `at_frames`, every frame kept, and compare at each.

    Without a `layer_scale` it is the small one that networks start with.
    """
    exact_model = random_model(config, device, layer_scale)
    plain_model, own_model = copy.deepcopy(exact_model), copy.deepcopy(exact_model).cast_products(torch.bfloat16)
    for part in (plain_model.encoder, plain_model.tokens, plain_model.trunk):
        part.to(torch.bfloat16)

    half = torch.bfloat16

    def plan(memory: torch.dtype) -> MemoryPlan:
        return MemoryPlan(
            config=config, size=size, retention=ContextRetention(), num_scale_frames=8, trunk_dtype=memory
        )

    exact = SequenceSession(exact_model, plan(torch.float32))
    plain = SequenceSession(plain_model, plan(torch.float32), backend=PlainHalfBackend(), compute_dtype=half)
    own = {
        backend.name: SequenceSession(own_model, plan(half), backend=backend, compute_dtype=half)
        for backend in backends
    }
    sessions = {"plain": plain, **own}
    recent: dict[str, deque[tuple[float, float]]] = {name: deque(maxlen=_RECENT) for name in sessions}
    generator = torch.Generator().manual_seed(1)
    for index in range(max(at_frames) + 1):
        frame = torch.rand(3, *size, generator=generator)
        want = exact.step(frame)
        for name, session in sessions.items():
            got = session.step(frame)
            if len(want):
                pose_error = relative_error(got.pose_encoding.flatten(), want.pose_encoding.flatten())
                recent[name].append((pose_error, relative_error(got.depth.flatten(), want.depth.flatten())))
        progress(1)
        if index in at_frames:
            plain_pose_error, plain_depth_error = _root_mean_square(recent["plain"])
            for name in own:
                pose_error, depth_error = _root_mean_square(recent[name])
                single = [ours / theirs for ours, theirs in zip(recent[name][-1], recent["plain"][-1], strict=True)]
                yield PrecisionFigures(
                    frame=index,
                    backend=name,
                    pose_error=pose_error,
                    plain_pose_error=plain_pose_error,
                    depth_error=depth_error,
                    plain_depth_error=plain_depth_error,
                    single_pose_ratio=single[0],
                    single_depth_ratio=single[1],
                )


def _root_mean_square(errors: Iterable[tuple[float, float]]) -> tuple[float, float]:
    pose, depth = (math.sqrt(statistics.fmean(error**2 for error in column)) for column in zip(*errors, strict=True))
    return pose, depth


def random_model(config: GeometryConfig, device: torch.device, layer_scale: float | None) -> GeometryModel:
    torch.manual_seed(0)
    with device:
        model = GeometryModel(config)
    for module in model.modules():
        if isinstance(module, LayerScale) and layer_scale is not None:
            module.gamma.data.fill_(layer_scale)
    return model.eval().requires_grad_(requires_grad=False)


def relative_error(got: Float[Tensor, "..."], want: Float[Tensor, "..."]) -> float:
    difference: Any = (got.double() - want.double()).norm() / want.double().norm()
    return float(difference)
