"""What the attention mass of each key costs, next to the attention itself, in one run."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from longtake.attention.attention_mass import attention_mass
from longtake.attention.backend import SdpaBackend
from longtake.bench.machine import synchronize


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionMassFigures:
    """Medians of one layer and one frame, and all that they depend on."""

    device: str
    threads: int
    dtype: str
    queries: int
    keys: int
    heads: int
    head_dim: int
    attention_ms: float
    statistics_ms: float

    @property
    def overhead(self) -> float:
        """Time of the statistics over that of the attention."""
        return self.statistics_ms / self.attention_ms


@torch.no_grad()
def measure_attention_mass(
    *,
    tokens_per_frame: int = 1041,
    cached_frames: int = 16,
    num_heads: int = 16,
    head_dim: int = 64,
    dtype: torch.dtype = torch.float32,
    device: torch.device,
    repeats: int = 5,
) -> AttentionMassFigures:
    """One frame attends to itself and the cached frames; attention and statistics take turns."""
    generator = torch.Generator().manual_seed(0)
    num_keys = (cached_frames + 1) * tokens_per_frame
    shapes = [(1, count, num_heads, head_dim) for count in (tokens_per_frame, num_keys, num_keys)]
    q, k, v = (torch.randn(shape, generator=generator).to(device, dtype) for shape in shapes)
    backend = SdpaBackend()
    log_sum_exp = backend.attend(q, k, v).log_sum_exp
    attention_mass(q, k, log_sum_exp)
    attention_ms, statistics_ms = [], []
    for _ in range(repeats):
        attention_ms.append(_time_ms(lambda: backend.attend(q, k, v), device))
        statistics_ms.append(_time_ms(lambda: attention_mass(q, k, log_sum_exp), device))
    return AttentionMassFigures(
        device=str(device),
        threads=torch.get_num_threads(),
        dtype=str(dtype).removeprefix("torch."),
        queries=tokens_per_frame,
        keys=num_keys,
        heads=num_heads,
        head_dim=head_dim,
        attention_ms=statistics.median(attention_ms),
        statistics_ms=statistics.median(statistics_ms),
    )


def _time_ms(work: Callable[[], object], device: torch.device) -> float:
    synchronize(device)
    start = time.perf_counter()
    work()
    synchronize(device)
    return (time.perf_counter() - start) * 1e3
