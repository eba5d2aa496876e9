"""Queries, keys and values of a block in training out of one product, in Triton: normed, turned, and back in one pass.

A head's channels are taken as two halves that turn together, `first` and `second`:

    neighbours      │ a₀ b₀ a₁ b₁ … │                         first at 2j, second at 2j + 1
    halves          │ a₀ a₁ … b₀ b₁ … │ a₀ a₁ … b₀ b₁ … │     of each of two axes; also where nothing turns
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor, nn

from longtake.layers.rotary import AdjacentRotation, HalvesRotation

Mixed = Float[Tensor, "batch tokens 3 heads head_dim"]
Heads = Float[Tensor, "batch tokens heads head_dim"]
Bias = Float[Tensor, " mixed"]
Vector = Float[Tensor, " head_dim"]
_ROWS = 32
_PROGRAMS = 352


@dataclass(frozen=True, slots=True)
class _Turn:
    """How heads are turned; None where they are not."""

    cos: Float[Tensor, "tokens pairs"] | None
    sin: Float[Tensor, "tokens pairs"] | None
    is_adjacent: bool

    @staticmethod
    def of(rotation: AdjacentRotation | HalvesRotation) -> "_Turn":
        return _Turn(rotation.phases.cos, rotation.phases.sin, isinstance(rotation, AdjacentRotation))


_UNTURNED = _Turn(None, None, is_adjacent=False)


def queries_keys_values(
    mixed: Mixed,
    bias: Bias,
    norms: tuple[nn.LayerNorm, nn.LayerNorm] | None,
    rotation: AdjacentRotation | HalvesRotation | None,
) -> tuple[Heads, Heads, Heads]:
    """From their product, whose `bias` was added to it and learns here."""
    turn = _UNTURNED if rotation is None else _Turn.of(rotation)
    weights = (None,) * 4 if norms is None else [each for layer in norms for each in (layer.weight, layer.bias)]
    q, k, v = _QueriesKeysValues.apply(mixed, bias, *weights, 0.0 if norms is None else norms[0].eps, turn)
    return q, k, v


class _QueriesKeysValues(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        mixed: Mixed,
        bias: Bias,  # noqa: ARG004 (what learns is given)
        q_weight: Vector | None,
        q_bias: Vector | None,
        k_weight: Vector | None,
        k_bias: Vector | None,
        eps: float,
        turn: _Turn,
    ) -> tuple[Heads, Heads, Heads]:
        assert mixed.is_contiguous()
        batch, tokens, _, heads, head_dim = mixed.shape
        q, k = (torch.empty(batch, tokens, heads, head_dim, dtype=mixed.dtype, device=mixed.device) for _ in range(2))
        shape, rows = _shape(mixed, turn), batch * tokens
        for at, (out, weight, weight_bias) in enumerate(((q, q_weight, q_bias), (k, k_weight, k_bias))):
            _turned[(triton.cdiv(rows, _ROWS), heads)](
                mixed, weight, weight_bias, turn.cos, turn.sin, out, rows, tokens, eps, at, **shape, num_warps=4
            )
        ctx.save_for_backward(mixed, q_weight, k_weight)
        ctx.eps, ctx.turn = eps, turn
        return q, k, mixed[:, :, 2]

    @staticmethod
    def backward(ctx: Any, d_q: Heads, d_k: Heads, d_v: Heads) -> tuple[Tensor | None, ...]:
        mixed, q_weight, k_weight = ctx.saved_tensors
        batch, tokens, _, heads, head_dim = mixed.shape
        d_mixed, rows = torch.empty_like(mixed), batch * tokens
        programs = min(_PROGRAMS, triton.cdiv(rows, _ROWS))
        sums = torch.empty(programs, 3, heads, 3, head_dim, device=mixed.device)
        parts = ((d_q, q_weight, ctx.turn), (d_k, k_weight, ctx.turn), (d_v, None, _UNTURNED))
        for at, (d_out, weight, turn) in enumerate(parts):
            d_out = d_out if d_out.stride(-1) == 1 else d_out.contiguous()
            _turned_backward[(programs, heads)](
                mixed,
                weight,
                turn.cos,
                turn.sin,
                d_out,
                *d_out.stride()[:3],
                d_mixed,
                sums,
                rows,
                tokens,
                ctx.eps,
                at,
                **_shape(mixed, turn),
                num_warps=4,
            )
        of_bias, of_weight, of_shift = sums.sum(dim=0).unbind(dim=2)
        of_norms = (
            (of_weight[at].sum(dim=0), of_shift[at].sum(dim=0)) if weight is not None else (None, None)
            for at, weight in enumerate((q_weight, k_weight))
        )
        return d_mixed, of_bias.flatten(), *(each for pair in of_norms for each in pair), None, None


def _shape(mixed: Mixed, turn: _Turn) -> dict[str, int | bool]:
    heads, head_dim = mixed.shape[3:]
    return {
        "HEADS": heads,
        "PAIRS": head_dim // 2,
        "ROUND": triton.next_power_of_2(head_dim // 2),
        "ROWS": _ROWS,
        "ADJACENT": turn.is_adjacent,
    }


@triton.jit
def _first_and_second(pair, PAIRS: tl.constexpr, ADJACENT: tl.constexpr):
    """Channels of a pair."""
    if ADJACENT:
        first = 2 * pair
        second = first + 1
    else:
        first = pair // (PAIRS // 2) * PAIRS + pair % (PAIRS // 2)
        second = first + PAIRS // 2
    return first, second


@triton.jit
def _turned(
    mixed_ptr,
    weight_ptr,
    bias_ptr,
    cos_ptr,
    sin_ptr,
    out_ptr,
    num_rows,
    num_tokens,
    eps,
    at,
    HEADS: tl.constexpr,
    PAIRS: tl.constexpr,
    ROUND: tl.constexpr,
    ROWS: tl.constexpr,
    ADJACENT: tl.constexpr,
):
    """Some rows of one head of queries or keys."""
    row, head = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None], tl.program_id(1)
    pair = tl.arange(0, ROUND)[None, :]
    is_pair = pair < PAIRS
    is_here = is_pair & (row < num_rows)
    first, second = _first_and_second(pair, PAIRS, ADJACENT)
    source = mixed_ptr + ((row.to(tl.int64) * 3 + at) * HEADS + head) * (2 * PAIRS)
    a = tl.load(source + first, is_here, 0.0).to(tl.float32)
    b = tl.load(source + second, is_here, 0.0).to(tl.float32)
    if weight_ptr is not None:
        mean = ((tl.sum(a, 1) + tl.sum(b, 1)) / (2 * PAIRS))[:, None]
        a, b = tl.where(is_pair, a - mean, 0.0), tl.where(is_pair, b - mean, 0.0)
        scale = tl.rsqrt((tl.sum(a * a, 1) + tl.sum(b * b, 1)) / (2 * PAIRS) + eps)[:, None]
        a = a * scale * tl.load(weight_ptr + first, is_pair, 0.0) + tl.load(bias_ptr + first, is_pair, 0.0)
        b = b * scale * tl.load(weight_ptr + second, is_pair, 0.0) + tl.load(bias_ptr + second, is_pair, 0.0)
    if cos_ptr is not None:
        phase = row % num_tokens * PAIRS + pair
        cos, sin = tl.load(cos_ptr + phase, is_pair, 0.0), tl.load(sin_ptr + phase, is_pair, 0.0)
        a, b = a * cos - b * sin, b * cos + a * sin
    target = out_ptr + (row.to(tl.int64) * HEADS + head) * (2 * PAIRS)
    tl.store(target + first, a.to(out_ptr.dtype.element_ty), is_here)
    tl.store(target + second, b.to(out_ptr.dtype.element_ty), is_here)


@triton.jit
def _turned_backward(
    mixed_ptr,
    weight_ptr,
    cos_ptr,
    sin_ptr,
    d_out_ptr,
    batch_stride,
    token_stride,
    head_stride,
    d_mixed_ptr,
    sums_ptr,
    num_rows,
    num_tokens,
    eps,
    at,
    HEADS: tl.constexpr,
    PAIRS: tl.constexpr,
    ROUND: tl.constexpr,
    ROWS: tl.constexpr,
    ADJACENT: tl.constexpr,
):
    """Every so many rows of one head of queries, keys or values."""
    head, pair = tl.program_id(1), tl.arange(0, ROUND)[None, :]
    is_pair = pair < PAIRS
    first, second = _first_and_second(pair, PAIRS, ADJACENT)
    sum_a = tl.zeros([ROWS, ROUND], tl.float32)
    sum_b = tl.zeros([ROWS, ROUND], tl.float32)
    weight_a = tl.zeros([ROWS, ROUND], tl.float32)
    weight_b = tl.zeros([ROWS, ROUND], tl.float32)
    shift_a = tl.zeros([ROWS, ROUND], tl.float32)
    shift_b = tl.zeros([ROWS, ROUND], tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(num_rows, ROWS), tl.num_programs(0)):
        row = tile * ROWS + tl.arange(0, ROWS)[:, None]
        is_here = is_pair & (row < num_rows)
        wide, token = row.to(tl.int64), row % num_tokens
        given = d_out_ptr + wide // num_tokens * batch_stride + token * token_stride + head * head_stride
        a = tl.load(given + first, is_here, 0.0).to(tl.float32)
        b = tl.load(given + second, is_here, 0.0).to(tl.float32)
        if cos_ptr is not None:
            phase = token * PAIRS + pair
            cos, sin = tl.load(cos_ptr + phase, is_pair, 0.0), tl.load(sin_ptr + phase, is_pair, 0.0)
            a, b = a * cos + b * sin, b * cos - a * sin
        place = ((wide * 3 + at) * HEADS + head) * (2 * PAIRS)
        if weight_ptr is not None:
            x = tl.load(mixed_ptr + place + first, is_here, 0.0).to(tl.float32)
            y = tl.load(mixed_ptr + place + second, is_here, 0.0).to(tl.float32)
            mean = ((tl.sum(x, 1) + tl.sum(y, 1)) / (2 * PAIRS))[:, None]
            x, y = tl.where(is_pair, x - mean, 0.0), tl.where(is_pair, y - mean, 0.0)
            scale = tl.rsqrt((tl.sum(x * x, 1) + tl.sum(y * y, 1)) / (2 * PAIRS) + eps)[:, None]
            x, y = x * scale, y * scale
            weight_a += a * x
            weight_b += b * y
            shift_a += a
            shift_b += b
            a *= tl.load(weight_ptr + first, is_pair, 0.0)
            b *= tl.load(weight_ptr + second, is_pair, 0.0)
            level = ((tl.sum(a, 1) + tl.sum(b, 1)) / (2 * PAIRS))[:, None]
            along = ((tl.sum(a * x, 1) + tl.sum(b * y, 1)) / (2 * PAIRS))[:, None]
            a = tl.where(is_here, scale * (a - level - x * along), 0.0)
            b = tl.where(is_here, scale * (b - level - y * along), 0.0)
        sum_a += a
        sum_b += b
        tl.store(d_mixed_ptr + place + first, a.to(d_mixed_ptr.dtype.element_ty), is_here)
        tl.store(d_mixed_ptr + place + second, b.to(d_mixed_ptr.dtype.element_ty), is_here)
    mine = sums_ptr + ((tl.program_id(0) * 3 + at) * HEADS + head) * 3 * (2 * PAIRS)
    lane = tl.arange(0, ROUND)
    is_lane = lane < PAIRS
    one, other = _first_and_second(lane, PAIRS, ADJACENT)
    tl.store(mine + one, tl.sum(sum_a, 0), is_lane)
    tl.store(mine + other, tl.sum(sum_b, 0), is_lane)
    if weight_ptr is not None:
        of_weight, of_shift = mine + 2 * PAIRS, mine + 4 * PAIRS
        tl.store(of_weight + one, tl.sum(weight_a, 0), is_lane)
        tl.store(of_weight + other, tl.sum(weight_b, 0), is_lane)
        tl.store(of_shift + one, tl.sum(shift_a, 0), is_lane)
        tl.store(of_shift + other, tl.sum(shift_b, 0), is_lane)
