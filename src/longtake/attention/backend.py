"""What every attention backend does: attend to one contiguous block of keys and say how much it weighed.

Two need torch alone: the reference, slow and obvious, is the definition of right; `sdpa` is the portable fast path.

Axes are `batch tokens heads head_dim` everywhere, so a slab's slots are read in place. The log-sum-exp of the scaled
logits lets results over disjoint blocks be merged exactly:

    softmax over A and B together = (e^lse_A out_A + e^lse_B out_B) / (e^lse_A + e^lse_B)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Float32
from torch import Tensor

from longtake.memory.slots import Seen

Queries = Float[Tensor, "batch queries heads head_dim"]
Keys = Float[Tensor, "batch keys heads head_dim"]


@dataclass(frozen=True, slots=True)
class NormBounds:
    """The longest query and key that a layer can make, by its weights alone."""

    query: float
    key: float


@dataclass(frozen=True, slots=True)
class Attended:
    """Attention over one block: the mixed values, and the float32 log-sum-exp of each query's logits."""

    values: Float[Tensor, "batch queries heads head_dim"]
    log_sum_exp: Float[Tensor, "batch queries heads"]


@runtime_checkable
class Backend(Protocol):
    """Every query attends to every key of one block."""

    @property
    def name(self) -> str: ...

    def attend(self, q: Queries, k: Keys, v: Keys) -> Attended: ...


@runtime_checkable
class SlotBackend(Backend, Protocol):
    """A backend that reads a slab's slots where they lie, whatever their order, and says what each received."""

    def attend_slots(self, q: Queries, seen: Seen, bounds: NormBounds | None = None) -> Attended: ...

    def received(
        self, q: Queries, seen: Seen, log_sum_exp: Float32[Tensor, "1 queries heads"]
    ) -> Float32[Tensor, "_"]: ...


def as_slot_backend(backend: Backend) -> SlotBackend | None:
    """None where it is another. Asked once a clip and not in each layer, for to ask a protocol takes time."""
    return backend if isinstance(backend, SlotBackend) else None


def merge(parts: Sequence[Attended]) -> Attended:
    """Attention over the union of disjoint blocks, from the attention over each."""
    if len(parts) == 1:
        return parts[0]
    weights = torch.stack([part.log_sum_exp for part in parts])
    total = torch.logsumexp(weights, dim=0)
    shares = torch.exp(weights - total).unsqueeze(-1)
    values = (shares * torch.stack([part.values.float() for part in parts])).sum(dim=0)
    return Attended(values.to(parts[0].values.dtype), total)


def grouped(q: Queries, key_heads: int) -> Float[Tensor, "1 rows key_heads head_dim"]:
    """Query heads that share keys, side by side as queries."""
    batch, tokens, heads, head_dim = q.shape
    apart = q.reshape(batch, tokens, key_heads, heads // key_heads, head_dim)
    return apart.transpose(2, 3).reshape(1, -1, key_heads, head_dim)


def ungrouped(values: Float[Tensor, "1 rows key_heads head_dim"], like: Queries) -> Queries:
    """The same the other way round."""
    batch, tokens, heads, head_dim = like.shape
    key_heads = values.shape[2]
    apart = values.reshape(batch, tokens, heads // key_heads, key_heads, head_dim)
    return apart.transpose(2, 3).reshape(like.shape)


class ReferenceBackend:
    """The whole attention map in plain torch, float32 inside."""

    name = "reference"

    def attend(self, q: Queries, k: Keys, v: Keys) -> Attended:
        logits = torch.einsum("bqhd,bkhd->bqhk", q.float(), k.float()) / math.sqrt(q.shape[-1])
        log_sum_exp = torch.logsumexp(logits, dim=-1)
        attention = torch.exp(logits - log_sum_exp.unsqueeze(-1))
        values = torch.einsum("bqhk,bkhd->bqhd", attention, v.float())
        return Attended(values.to(q.dtype), log_sum_exp)


class SdpaBackend:
    """Torch's fused kernels on CPU and CUDA; elsewhere, where they do not return log-sum-exp, the reference."""

    name = "sdpa"

    def __init__(self) -> None:
        self._elsewhere = ReferenceBackend()

    def attend(self, q: Queries, k: Keys, v: Keys) -> Attended:
        if q.device.type not in ("cpu", "cuda"):
            return self._elsewhere.attend(q, k, v)
        heads_first = [tensor.transpose(1, 2) for tensor in (q, k, v)]
        if q.device.type == "cpu":
            values, log_sum_exp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*heads_first)
        elif q.dtype in (torch.bfloat16, torch.float16):
            values, log_sum_exp, *_ = torch.ops.aten._scaled_dot_product_flash_attention(*heads_first)
        else:
            values, log_sum_exp, *_ = torch.ops.aten._scaled_dot_product_efficient_attention(
                *heads_first, attn_bias=None, compute_log_sumexp=True
            )
        return Attended(values.transpose(1, 2), log_sum_exp[..., : q.shape[1]].transpose(1, 2))
