"""Attention through longtake's own kernels, on CUDA and in half precision: the memory is read where it lies.

Triton, which comes with torch on Linux, is loaded when a kernel is first asked for, and compiles it once: what it made
stays on disk.
"""

from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from jaxtyping import Float, Float32, Int32
from torch import Tensor

from longtake.attention.attention_mass import attention_mass
from longtake.attention.backend import Attended, Keys, NormBounds, Queries, SdpaBackend, grouped, merge, ungrouped
from longtake.memory.slots import Seen, is_wide

_KERNELS = "longtake.attention.slot_kernels"
_HALVES = (torch.float16, torch.bfloat16)
_HEAD_DIMS = (64, 128)
_OLDEST_GPU = (8, 0)
_FEW = 16
"""Queries of a head of keys, up to which there is a kernel in float32."""
_BUSY = 4096
"""Queries of all heads, 64 to a program, that keep a GPU busy; of fewer the keys are shared out among programs."""


_SharedKeys = Float[Tensor, "1 keys key_heads head_dim"]


class TritonBackend:
    """Reads slots in place or by their indices, both to the same bits; what it has no kernel for goes through torch."""

    name = "triton"

    def __init__(self) -> None:
        self._elsewhere = SdpaBackend()

    @property
    def kernels(self) -> ModuleType:
        return import_module(_KERNELS)

    def attend(self, q: Queries, k: Keys, v: Keys) -> Attended:
        """Over keys that were read already: by torch."""
        return self._elsewhere.attend(q, k, v)

    def attend_slots(self, q: Queries, seen: Seen, bounds: NormBounds | None = None) -> Attended:
        """Attention over a view of slots; with bounds on the norms of queries and keys, without a running maximum."""
        if why_unsuitable(q.device, q.dtype, q.shape[-1], num_rows=_rows(q, seen)) is not None:
            return merge([self._attend_block(q, k.unsqueeze(0), v.unsqueeze(0)) for k, v in seen.blocks()])
        places, view = seen.view.device_places, seen.view
        mixed, log_sum_exp = self.launch(
            q[0].contiguous(), self._storage(seen), places.ranges, places.slots, view.num_slots, bounds
        )
        return Attended(mixed.unsqueeze(0), log_sum_exp.unsqueeze(0))

    def _attend_block(self, q: Queries, k: _SharedKeys, v: _SharedKeys) -> Attended:
        """By torch; query heads that share keys become more queries of that head."""
        key_heads = k.shape[2]
        attended = self._elsewhere.attend(grouped(q, key_heads), k, v)
        weights = attended.log_sum_exp.unsqueeze(-1)
        return Attended(ungrouped(attended.values, q), ungrouped(weights, q[..., :1]).squeeze(-1))

    def _storage(self, seen: Seen) -> Any:
        return self.kernels.Storage(seen.where, seen.keys.shape[1], is_wide(seen.keys))

    def launch(
        self,
        q: Float[Tensor, "queries heads head_dim"],
        storage: Any,
        ranges: Int32[Tensor, "ranges 2"],
        slots: Int32[Tensor, "_"] | None,
        most: int,
        bounds: NormBounds | None,
    ) -> tuple[Float[Tensor, "queries heads head_dim"], Float32[Tensor, "queries heads"]]:
        """The kernel for these queries over at most so many slots: few of them share out the keys."""
        num_queries, num_heads, head_dim = q.shape
        if q.dtype is torch.float32 or num_queries * num_heads < _BUSY:
            mixed, log_sum_exp = self.kernels.attend_few(q, storage, ranges, most, slots)
            return mixed, log_sum_exp
        is_bounded = bounds is not None and bounds.key <= self.kernels.most_key_norm(bounds.query, head_dim, q.dtype)
        key_norm = bounds.key if bounds is not None and is_bounded else None
        mixed, log_sum_exp = self.kernels.attend(q, storage, ranges, slots, key_norm=key_norm)
        return mixed, log_sum_exp

    def received(self, q: Queries, seen: Seen, log_sum_exp: Float32[Tensor, "1 queries heads"]) -> Float32[Tensor, "_"]:
        """What each slot of a view got of the attention, in the order of the view."""
        if why_unsuitable(q.device, q.dtype, q.shape[-1]) is not None:
            key_heads = seen.keys.shape[1]
            weights = grouped(log_sum_exp.unsqueeze(-1), key_heads).squeeze(-1)
            blocks = [attention_mass(grouped(q, key_heads), k.unsqueeze(0), weights) for k, _ in seen.blocks()]
            return torch.cat(blocks)
        places, storage = seen.view.device_places, self._storage(seen)
        received: Tensor = self.kernels.received(
            q[0].contiguous(), storage, log_sum_exp[0].contiguous(), places.ranges, seen.view.num_slots, places.slots
        )
        return received


def why_unsuitable(device: torch.device, dtype: torch.dtype, head_dim: int, *, num_rows: int = _FEW + 1) -> str | None:
    """Why the kernels cannot be used for such tensors, or None where they can; a few queries may be float32."""
    if device.type != "cuda" or torch.version.hip is not None:
        return f"the kernels run on NVIDIA GPUs, not on {'ROCm' if device.type == 'cuda' else device.type}"
    missing = why_missing()
    if missing is not None:
        return missing
    if torch.cuda.get_device_capability(device) < _OLDEST_GPU:
        return f"the kernels need an Ampere GPU or a later one, not {torch.cuda.get_device_name(device)}"
    if dtype not in _HALVES and not (dtype is torch.float32 and num_rows <= _FEW):
        return f"the kernels compute in float16 or bfloat16, not in {dtype}"
    if head_dim not in _HEAD_DIMS:
        return f"there are kernels for heads of {' and '.join(map(str, _HEAD_DIMS))} channels, not of {head_dim}"
    return None


@cache
def why_missing() -> str | None:
    """Why the kernels cannot be loaded, or None where they are."""
    try:
        import_module(_KERNELS)
        import_module("triton").runtime.driver.active.get_current_target()  # compiles what it needs itself
    except Exception as error:  # noqa: BLE001 - of many kinds: no Triton, no compiler, no headers, no driver
        reason = (str(error) or type(error).__name__).partition("\n")[0]
        return f"the kernels need Triton, which comes with torch on Linux, and a C compiler for it ({reason})"
    return None


def _rows(q: Queries, seen: Seen) -> int:
    """Queries of each head of keys."""
    return q.shape[1] * q.shape[2] // seen.keys.shape[1]
