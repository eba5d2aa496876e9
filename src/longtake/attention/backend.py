"""What every attention backend does: attend to one contiguous block of keys and say how much it weighed.

Axes are `batch tokens heads head_dim` everywhere, so a slab's slots are read in place. The log-sum-exp of the scaled
logits lets results over disjoint blocks be merged exactly:

    softmax over A and B together = (e^lse_A out_A + e^lse_B out_B) / (e^lse_A + e^lse_B)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

Queries = Float[Tensor, "batch queries heads head_dim"]
Keys = Float[Tensor, "batch keys heads head_dim"]


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


def merge(parts: Sequence[Attended]) -> Attended:
    """Attention over the union of disjoint blocks, from the attention over each."""
    if len(parts) == 1:
        return parts[0]
    weights = torch.stack([part.log_sum_exp for part in parts])
    total = torch.logsumexp(weights, dim=0)
    shares = torch.exp(weights - total).unsqueeze(-1)
    values = (shares * torch.stack([part.values.float() for part in parts])).sum(dim=0)
    return Attended(values.to(parts[0].values.dtype), total)
