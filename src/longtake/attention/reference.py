"""Attention in plain torch, float32 inside: slow, obvious, the definition of right."""

import math

import torch
from jaxtyping import Float, Float32
from torch import Tensor

from longtake.attention.backend import Attended, Keys, Queries


class ReferenceBackend:
    """Materialises the whole attention map."""

    name = "reference"

    def attend(self, q: Queries, k: Keys, v: Keys) -> Attended:
        logits = torch.einsum("bqhd,bkhd->bqhk", q.float(), k.float()) / math.sqrt(q.shape[-1])
        log_sum_exp = torch.logsumexp(logits, dim=-1)
        attention = torch.exp(logits - log_sum_exp.unsqueeze(-1))
        values = torch.einsum("bqhk,bkhd->bqhd", attention, v.float())
        return Attended(values.to(q.dtype), log_sum_exp)


def attention_mass_by_map(
    q: Float[Tensor, "1 queries heads head_dim"],
    k: Float[Tensor, "1 keys heads head_dim"],
    log_sum_exp: Float32[Tensor, "1 queries heads"],
) -> Float32[Tensor, " keys"]:
    """What each key gets of the attention, summed over queries and heads of the whole map."""
    logits = torch.einsum("bqhd,bkhd->bqhk", q.float(), k.float()) / math.sqrt(q.shape[-1])
    return torch.exp(logits - log_sum_exp.unsqueeze(-1)).sum(dim=(0, 1, 2))
