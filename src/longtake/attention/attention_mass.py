"""What each key gets of the queries' attention, exactly, without ever holding the map.

Fused attention says the log-sum-exp of every query; with it a second pass over blocks of keys rebuilds the weights,
sums them and forgets them:

    mass[key] = Σ over queries and heads of exp(q · key / √d − log_sum_exp)

For one head that is itself the exponential of a log-sum-exp, over queries, of logits with a bias: where fused attention
is much faster than anything else, keys and queries change places and it computes the sum.

Workspace is of a fixed number of keys, so that memory grows with the queries and with the keys, never with both.
"""

import math

import torch
from jaxtyping import Float, Float32
from torch import Tensor

_BLOCK_KEYS = 512
_WORKSPACE_BYTES = 2**26
_SWAPPED_KEYS = 2**15
_BIAS_TERMS = 3
_WIDEST_FUSED_HEAD = 256


@torch.no_grad()
def attention_mass(
    q: Float[Tensor, "1 queries heads head_dim"],
    k: Float[Tensor, "1 keys heads head_dim"],
    log_sum_exp: Float32[Tensor, "1 queries heads"],
) -> Float32[Tensor, " keys"]:
    """Sums over queries and heads for one block of keys; `log_sum_exp` is over all blocks the queries attended to."""
    if q.device.type != "cuda":
        return _head_by_head(q[0], k[0], log_sum_exp[0])
    if k.dtype in (torch.bfloat16, torch.float16) and q.shape[-1] + 8 <= _WIDEST_FUSED_HEAD:
        return _swapped(q[0], k[0], log_sum_exp[0])
    return _heads_together(q[0], k[0], log_sum_exp[0])


def attention_mass_by_map(
    q: Float[Tensor, "1 queries heads head_dim"],
    k: Float[Tensor, "1 keys heads head_dim"],
    log_sum_exp: Float32[Tensor, "1 queries heads"],
) -> Float32[Tensor, " keys"]:
    """The same from the whole map, in plain torch: the definition of right."""
    logits = torch.einsum("bqhd,bkhd->bqhk", q.float(), k.float()) / math.sqrt(q.shape[-1])
    return torch.exp(logits - log_sum_exp.unsqueeze(-1)).sum(dim=(0, 1, 2))


def _head_by_head(
    q: Float[Tensor, "queries heads head_dim"],
    k: Float[Tensor, "keys heads head_dim"],
    log_sum_exp: Float32[Tensor, "queries heads"],
) -> Float32[Tensor, " keys"]:
    """Fastest on a CPU: a block of one head's weights stays in the cache until it is summed."""
    num_queries, num_heads, head_dim = q.shape
    total = torch.zeros(len(k), device=k.device)
    workspace = torch.empty(min(_BLOCK_KEYS, len(k)), num_queries, device=q.device)
    for head in range(num_heads):
        scaled = q[:, head].float().T / math.sqrt(head_dim)
        bias = -log_sum_exp[:, head]
        for start in range(0, len(k), _BLOCK_KEYS):
            block = k[start : start + _BLOCK_KEYS, head].float()
            weights = torch.addmm(bias, block, scaled, out=workspace[: len(block)])
            total[start : start + _BLOCK_KEYS] += weights.exp_().sum(1)
    return total


def _heads_together(
    q: Float[Tensor, "queries heads head_dim"],
    k: Float[Tensor, "keys heads head_dim"],
    log_sum_exp: Float32[Tensor, "queries heads"],
) -> Float32[Tensor, " keys"]:
    """Fastest on a GPU in float32: as many keys at once, of all heads, as a fixed workspace holds."""
    num_queries, num_heads, head_dim = q.shape
    block_keys = max(1, min(len(k), _WORKSPACE_BYTES // (4 * num_heads * num_queries)))
    total = torch.empty(len(k), device=k.device)
    workspace = torch.empty(num_heads * block_keys * num_queries, device=q.device)
    scaled = q.float().permute(1, 2, 0) / math.sqrt(head_dim)
    bias = -log_sum_exp.T.unsqueeze(1)
    for start in range(0, len(k), block_keys):
        block = k[start : start + block_keys].float().transpose(0, 1)
        room = workspace[: num_heads * block.shape[1] * num_queries].view(num_heads, block.shape[1], num_queries)
        weights = torch.baddbmm(bias, block, scaled, out=room)
        torch.sum(weights.exp_(), dim=(0, 2), out=total[start : start + block_keys])
    return total


def _swapped(
    q: Float[Tensor, "queries heads head_dim"],
    k: Float[Tensor, "keys heads head_dim"],
    log_sum_exp: Float32[Tensor, "queries heads"],
) -> Float32[Tensor, " keys"]:
    """Fastest on a GPU in half precision: fused attention of keys to queries, the bias in columns of its own.

    query [ key,    1 1 1, 0 … ] · key [ query, bias as a sum of three halves, 0 … ]
    """
    head_dim = q.shape[-1]
    padding = -(head_dim + _BIAS_TERMS) % 8
    bias = _as_halves(-log_sum_exp * math.sqrt(head_dim), q.dtype)
    biased = torch.cat((q, bias, bias.new_zeros(*bias.shape[:2], padding)), dim=-1)
    ones = torch.cat((k.new_ones(_BIAS_TERMS), k.new_zeros(padding)))
    total = torch.empty(len(k), device=k.device)
    for start in range(0, len(k), _SWAPPED_KEYS):
        block = k[start : start + _SWAPPED_KEYS]
        asking = torch.cat((block, ones.expand(*block.shape[:2], -1)), dim=-1)
        total[start : start + len(block)] = _fused_log_sum_exp(asking, biased, 1 / math.sqrt(head_dim)).exp().sum(0)
    return total


def _as_halves(exact: Float32[Tensor, "queries heads"], dtype: torch.dtype) -> Float[Tensor, "queries heads terms"]:
    """Numbers as sums of less precise ones; each term holds what those before it left over."""
    terms: list[Tensor] = []
    for _ in range(_BIAS_TERMS):
        terms.append(exact.to(dtype))
        exact = exact - terms[-1].float()
    return torch.stack(terms, dim=-1)


def _fused_log_sum_exp(
    q: Float[Tensor, "queries heads head_dim"], k: Float[Tensor, "keys heads head_dim"], scale: float
) -> Float32[Tensor, "heads queries"]:
    queries, keys = (tensor.transpose(0, 1).unsqueeze(0) for tensor in (q, k))
    if q.device.type == "cpu":
        attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    else:
        attend = torch.ops.aten._scaled_dot_product_flash_attention
    _, log_sum_exp, *_ = attend(queries, keys, keys, scale=scale)
    found: Tensor = log_sum_exp[0, :, : len(q)]
    return found
