"""Attention through FlashInfer's kernels, on CUDA and in half precision. This module alone loads FlashInfer.

FlashInfer is loaded when the backend is made, and compiles a kernel the first time it runs it. Its
log-sum-exp is to base 2; ours is natural.
"""

import math
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

from longtake.attention.backend import Attended, Keys, Queries, SdpaBackend
from longtake.errors import MissingExtraError

FA2 = "fa2"
_HALVES = (torch.float16, torch.bfloat16)
_HEAD_DIMS = (64, 128, 256)


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
