"""Our attention kernels beside torch's own on a GPU, for one layer of a network with a full memory."""

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from longtake.attention.backend import NormBounds
from longtake.attention.triton import TritonBackend

_LAUNCHES = 10
_REPEATS = 9


@dataclass(frozen=True, slots=True)
class KernelTime:
    """How long a kernel takes for one layer, and how much of torch's flash attention that is."""

    kernel: str
    ms: float
    of_flash: float


def measure_attention(*, queries: int, keys: int, heads: int, head_dim: int, dtype: torch.dtype) -> list[KernelTime]:
    """Times of single kernels, launched one after another, on random numbers that are normed as a network's are."""
    generator, backend = torch.Generator(device="cuda").manual_seed(0), TritonBackend()

    def rows(count: int) -> Tensor:
        return torch.randn(count, heads, head_dim, device="cuda", generator=generator)

    q, k = (layer_norm(rows(count), (head_dim,)).to(dtype) for count in (queries, keys))
    v = rows(keys).to(dtype)
    anywhere = torch.randperm(keys, device="cuda", generator=generator)
    kernels = backend.kernels
    storage, scattered = kernels.Storage.of(k, v), kernels.Storage.of(k[anywhere.argsort()], v[anywhere.argsort()])
    ranges = torch.tensor([[0, keys], [0, 0], [0, 0], [0, 0]], dtype=torch.int32, device="cuda")
    slots, bounds = anywhere.int(), NormBounds(1.01 * math.sqrt(head_dim), 1.01 * math.sqrt(head_dim))
    _, log_sum_exp = backend.launch(q, storage, ranges, None, keys, bounds)
    heads_first = [each[None].transpose(1, 2) for each in (q, k, v)]
    launches: dict[str, Callable[[], object]] = {
        "torch flash": lambda: torch.ops.aten._scaled_dot_product_flash_attention(*heads_first),
        "in place, bounded logits": lambda: backend.launch(q, storage, ranges, None, keys, bounds),
        "in place, running maximum": lambda: backend.launch(q, storage, ranges, None, keys, None),
        "gathered, bounded logits": lambda: backend.launch(q, scattered, ranges, slots, keys, bounds),
        "gathered, running maximum": lambda: backend.launch(q, scattered, ranges, slots, keys, None),
        "what each key received": lambda: kernels.received(q, storage, log_sum_exp, ranges, keys),
    }
    times = {name: _milliseconds(launch) for name, launch in launches.items()}
    return [KernelTime(name, ms, ms / times["torch flash"]) for name, ms in times.items()]


def _milliseconds(launch: Callable[[], object]) -> float:
    """Of one launch, the median of several runs."""
    launch()
    times: list[float] = []
    for _ in range(_REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(_LAUNCHES):
            launch()
        end.record()
        end.synchronize()
        times.append(float(begin.elapsed_time(end)) / _LAUNCHES)
    return statistics.median(times)
