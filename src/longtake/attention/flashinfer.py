"""Attention through FlashInfer's kernels, on CUDA and in half precision. This module alone loads FlashInfer.

FlashInfer is loaded when one of these classes is made, and compiles a kernel the first time it runs it. Its
log-sum-exp is to base 2; ours is natural.
"""

import math
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

from longtake.attention.backend import Attended, Keys, Queries
from longtake.attention.paged import PageReading, PagesOfLayer
from longtake.attention.sdpa import SdpaBackend
from longtake.errors import MissingExtraError
from longtake.memory.layout import StreamLayout

FA2 = "fa2"
_HALVES = (torch.float16, torch.bfloat16)
_HEAD_DIMS = (64, 128, 256)
_WORKSPACE_BYTES = 128 * 2**20


class FlashInferBackend:
    """Attends to contiguous blocks; what FlashInfer has no kernel for goes through the portable path.

    `kernel` is FlashInfer's name for a generation of kernels: fa2 runs on any GPU since Ampere, fa3 on Hopper.
    """

    def __init__(self, kernel: str = FA2) -> None:
        self.name = "flashinfer" if kernel == FA2 else f"flashinfer-{kernel}"
        self._prefill: Callable[..., tuple[Tensor, Tensor]] = _load().single_prefill_with_kv_cache
        self._kernel = kernel
        self._elsewhere = SdpaBackend()

    def attend(self, q: Queries, k: Keys, v: Keys) -> Attended:
        if why_unsuitable(q.device, q.dtype, q.shape[-1]) is not None:
            return self._elsewhere.attend(q, k, v)
        attended = [self._attend_one(*sequence) for sequence in zip(q, k, v, strict=True)]
        return Attended(*(torch.stack(parts) for parts in zip(*attended, strict=True)))

    def _attend_one(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        values, log2_sum_exp = self._prefill(
            q, k, v, causal=False, sm_scale=1 / math.sqrt(q.shape[-1]), backend=self._kernel, return_lse=True
        )
        return values, log2_sum_exp * math.log(2)


class FlashInferPages:
    """FlashInfer's paged prefill as a `PageKernel`; the plan is made from host tensors, so it waits for no GPU work."""

    def __init__(self, device: torch.device | str = "cuda", kernel: str = FA2) -> None:
        flashinfer = _load()
        workspace = torch.empty(_WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        self._wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, kv_layout="NHD", backend=kernel)

    def why_unsuitable(self, layout: StreamLayout, device: torch.device) -> str | None:
        return why_unsuitable(device, layout.dtype, layout.head_dim)

    def plan(self, reading: PageReading, layout: StreamLayout, num_queries: int) -> None:
        pages = torch.from_numpy(reading.pages).int()
        self._wrapper.plan(
            torch.tensor([0, num_queries], dtype=torch.int32),
            torch.tensor([0, len(pages)], dtype=torch.int32),
            pages,
            torch.tensor([reading.last_page_len], dtype=torch.int32),
            layout.num_heads,
            layout.num_heads,
            layout.head_dim,
            reading.page_size,
            causal=False,
            sm_scale=1 / math.sqrt(layout.head_dim),
            q_data_type=layout.dtype,
            kv_data_type=layout.dtype,
        )

    def run(self, q: Queries, keys: PagesOfLayer, values: PagesOfLayer) -> Attended:
        mixed, log2_sum_exp = self._wrapper.run(q.squeeze(0).contiguous(), (keys, values), return_lse=True)
        return Attended(mixed.unsqueeze(0), log2_sum_exp.unsqueeze(0) * math.log(2))


def why_unsuitable(device: torch.device, dtype: torch.dtype, head_dim: int) -> str | None:
    """Why FlashInfer cannot be used for such tensors, or None where it can."""
    if device.type != "cuda":
        return f"FlashInfer runs on CUDA devices, not on {device.type}"
    if dtype not in _HALVES:
        return f"FlashInfer computes in float16 or bfloat16, not in {dtype}"
    if head_dim not in _HEAD_DIMS:
        return f"FlashInfer has kernels for heads of {_HEAD_DIMS}, not of {head_dim}"
    return None


def _load() -> ModuleType:
    try:
        return import_module("flashinfer")
    except ImportError as error:
        raise MissingExtraError(
            f"The flashinfer backend needs FlashInfer, which cannot be imported ({error}); install it with "
            'pip install "longtake[flashinfer]", or choose the sdpa backend.'
        ) from error
