"""Where a language model looks while it answers, and how far that is from what shows why the answer is right.

What an answer attends to is its evidence. Unsupervised, a model may find the truth by ways that show nothing; with a
loss on the attention of some layers it learns sooner, and its evidence can be checked.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def supervised_layers(num_layers: int) -> range:
    """From the middle on, as the question was read by then; not the last of several, which forms the answer."""
    middle = num_layers // 2
    return range(middle, max(middle + 1, num_layers - 1))


def attention_mass(
    q: Float[Tensor, "clips heads words head_dim"],
    k: Float[Tensor, "clips heads tokens head_dim"],
    mask: Bool[Tensor, "clips 1 words tokens"],
    first: int,
    num_grids: int,
) -> Float[Tensor, "clips words grids"]:
    """Attention of words to grids, summed over heads; grids lie between the token `first` and the words."""
    logits = (q @ k.mT).float() * q.shape[-1] ** -0.5
    weights = logits.masked_fill(~mask, -torch.inf).softmax(dim=-1).sum(dim=1)
    of_grids: Tensor = weights[..., first : k.shape[2] - q.shape[2]].unflatten(-1, (num_grids, -1))
    return of_grids.sum(dim=-1)


def evidence_loss(
    attention_mass: Float[Tensor, "clips words grids"], evident: Bool[Tensor, "clips words grids"]
) -> Float[Tensor, ""]:
    """Of words with evidence: how unlikely it is that what they look at shows why."""
    share = (attention_mass * evident).sum(dim=-1) / attention_mass.sum(dim=-1).clamp_min(1e-6)
    has_evidence = evident.any(dim=-1)
    return -(share.clamp_min(1e-4).log() * has_evidence).sum() / has_evidence.sum().clamp_min(1)
