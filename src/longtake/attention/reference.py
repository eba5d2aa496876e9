"""Attention in plain torch, float32 inside: slow, obvious, the definition of right."""

import math

import torch

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
