"""What a fork of a filled memory costs: time, and bytes of any kind."""

import statistics
import time
import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from longtake.memory.budget import MemoryRequirements
from longtake.memory.memory import Memory
from longtake.memory.policies.lockstep import KeepAll
from longtake.memory.policy import Keep
from longtake.memory.tokens import StreamLayout

FORKED_TOKENS = (1_000, 10_000, 100_000)
_COUNTED = 9
"""Forks whose bytes are counted: now and then one is charged for a table of Python's own that grows."""
_LAYOUT = StreamLayout(num_layers=1, num_heads=2, head_dim=64, tokens_per_frame=1, causal=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkFigures:
    """A fork of a memory that holds so many tokens."""

    num_tokens: int
    memory_bytes: int
    fork_us: float
    """Median."""
    fork_bytes: int
    """Allocated by Python, numpy and torch at the most; the least of several forks."""
    step_us: float
    """Median of a fork's first step: one token more, without any arithmetic on keys and values."""


def measure_fork(num_tokens: int, *, repeats: int = 200) -> ForkFigures:
    """Fill a memory with random keys and fork it."""
    requirements = MemoryRequirements(streams={"text": (_LAYOUT, KeepAll())}, first_clip=1, reserve=1)
    memory = Memory(requirements.plan((num_tokens + 64) * _LAYOUT.bytes_per_slot * 5 // 4))
    rows = torch.randn(num_tokens, _LAYOUT.num_heads, _LAYOUT.head_dim)
    with memory.begin(num_tokens, Keep.YES) as transaction:
        transaction.write("text", 0, rows, rows)
        transaction.commit()
    times = [_time_fork(memory, rows[:1]) for _ in range(repeats)]
    figures = ForkFigures(
        num_tokens=num_tokens,
        memory_bytes=memory.use()["text"].live_bytes,
        fork_us=statistics.median(forked for forked, _ in times) * 1e6,
        fork_bytes=min(_fork_bytes(memory) for _ in range(_COUNTED)),
        step_us=statistics.median(stepped for _, stepped in times) * 1e6,
    )
    memory.close()
    return figures


def _time_fork(memory: Memory, row: Float[Tensor, "1 heads head_dim"]) -> tuple[float, float]:
    """Seconds of a fork, and of its first step."""
    started = time.perf_counter()
    fork = memory.fork()
    forked = time.perf_counter()
    with fork:
        with fork.begin(1, Keep.YES) as transaction:
            transaction.write("text", 0, row, row)
            transaction.commit()
        return forked - started, time.perf_counter() - forked


def _fork_bytes(memory: Memory) -> int:
    """Python and numpy report to tracemalloc; what torch makes is counted as it is made."""
    made = _TensorBytes()
    with made:
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        fork = memory.fork()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    fork.close()
    return most - before + made.num_bytes


class _TensorBytes(TorchDispatchMode):
    """Bytes of every tensor that an operation returns, views included."""

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        tensors = made if isinstance(made, (list, tuple)) else [made]
        self.num_bytes += sum(one.nbytes for one in tensors if isinstance(one, Tensor))
        return made
