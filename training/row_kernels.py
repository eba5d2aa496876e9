"""What a block in training does between its products, row by row, in Triton: forwards, and backwards in one pass.

Going back, sums over all rows (for weights of norms, factors and the biases of products) are made on the way by a fixed
number of programs, each of which leaves what it has; sums by themselves took longer than the products.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor, nn

Residual = Float32[Tensor, "rows width"]
Branch = Float[Tensor, "rows width"]
Vector = Float[Tensor, " width"]
_PROGRAMS = 1056
"""Eight for each of a large GPU's multiprocessors."""
_NUMBERS = 2048
"""Of a tile of whole rows."""
_TILE = 64
"""Rows and columns of a tile where rows need not be whole."""


def norm(x: Residual, layer: nn.LayerNorm, dtype: torch.dtype) -> tuple[Residual, Branch]:
    """What came, to go on with, and its norm in a type for products."""
    total, normed = _AddNorm.apply(x, None, None, None, layer.weight, layer.bias, layer.eps, dtype)
    return total, normed


def add_norm(x: Residual, branch: Branch, bias: Vector, gamma: Vector, layer: nn.LayerNorm) -> tuple[Residual, Branch]:
    """`x + γ branch`, and the norm of it in the type of the branch, whose `bias` was added to it and learns here."""
    total, normed = _AddNorm.apply(x, branch, bias, gamma, layer.weight, layer.bias, layer.eps, branch.dtype)
    return total, normed


def add(x: Residual, branch: Branch, bias: Vector, gamma: Vector) -> Residual:
    """`x + γ branch`; the bias as above."""
    total: Tensor = _AddNorm.apply(x, branch, bias, gamma, None, None, 0.0, None)[0]
    return total


def gelu(x: Branch, bias: Vector) -> Branch:
    """The exact GELU; the bias, which was added before, learns here."""
    out: Tensor = _Gelu.apply(x, bias)
    return out


class _AddNorm(torch.autograd.Function):
    """Adds where there is a branch, norms where there is a weight."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Residual,
        branch: Branch | None,
        bias: Vector | None,
        gamma: Vector | None,
        weight: Vector | None,
        norm_bias: Vector | None,
        eps: float,
        dtype: torch.dtype | None,
    ) -> tuple[Residual, Branch | None]:
        assert x.is_contiguous()
        assert branch is None or branch.is_contiguous()
        total = x.view_as(x) if branch is None else torch.empty_like(x)
        normed = None if weight is None else torch.empty_like(x, dtype=dtype)
        shape = _shape(x)
        _add_norm[(triton.cdiv(len(x), shape["ROWS"]),)](
            x, branch, gamma, weight, norm_bias, total, normed, len(x), eps, **shape, num_warps=4
        )
        ctx.save_for_backward(total if weight is not None else None, branch, gamma, weight)
        ctx.eps, ctx.has_bias = eps, bias is not None
        return total, normed

    @staticmethod
    def backward(ctx: Any, d_total: Residual, d_normed: Branch | None) -> tuple[Tensor | None, ...]:
        total, branch, gamma, weight = ctx.saved_tensors
        d_total = d_total.contiguous()
        d_x = d_total if weight is None else torch.empty_like(d_total)
        d_branch = None if branch is None else torch.empty_like(branch)
        shape = _shape(d_total)
        programs = min(_PROGRAMS, triton.cdiv(len(d_total), shape["ROWS"]))
        sums = torch.empty(programs, 4, d_total.shape[1], device=d_total.device)
        _add_norm_backward[(programs,)](
            total,
            branch,
            gamma,
            weight,
            d_total,
            None if d_normed is None else d_normed.contiguous(),
            d_x,
            d_branch,
            sums,
            len(d_total),
            ctx.eps,
            **shape,
            num_warps=4,
        )
        d_weight, d_norm_bias, d_gamma, d_sum = sums.sum(dim=0)
        of_norm = (None, None) if weight is None else (d_weight, d_norm_bias)
        of_branch = (None, None) if gamma is None else (gamma * d_sum, d_gamma)
        return d_x, d_branch, *of_branch, *of_norm, None, None


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Branch, bias: Vector) -> Branch:  # noqa: ARG004 (what learns is given)
        ctx.save_for_backward(x)
        return nn.functional.gelu(x)

    @staticmethod
    def backward(ctx: Any, d_out: Branch) -> tuple[Branch, Vector]:
        (x,) = ctx.saved_tensors
        rows, width = x.shape
        assert x.is_contiguous()
        d_x = torch.empty_like(x)
        columns = triton.cdiv(width, _TILE)
        programs = min(triton.cdiv(_PROGRAMS, columns), triton.cdiv(rows, _TILE))
        sums = torch.empty(programs, width, device=x.device)
        _gelu_backward[(programs, columns)](x, d_out.contiguous(), d_x, sums, rows, width, TILE=_TILE, num_warps=4)
        return d_x, sums.sum(dim=0)


def _shape(x: Tensor) -> dict[str, int]:
    """Of a tile of whole rows."""
    lanes = triton.next_power_of_2(x.shape[1])
    return {"WIDTH": x.shape[1], "ROUND": lanes, "ROWS": max(1, _NUMBERS // lanes)}


@triton.jit
def _add_norm(
    x_ptr,
    branch_ptr,
    gamma_ptr,
    weight_ptr,
    bias_ptr,
    total_ptr,
    normed_ptr,
    num_rows,
    eps,
    WIDTH: tl.constexpr,
    ROUND: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Some rows."""
    row, channel = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None], tl.arange(0, ROUND)[None, :]
    is_channel = channel < WIDTH
    here, is_here = row.to(tl.int64) * WIDTH + channel, is_channel & (row < num_rows)
    x = tl.load(x_ptr + here, is_here, 0.0)
    if branch_ptr is not None:
        branch = tl.load(branch_ptr + here, is_here, 0.0).to(tl.float32)
        x += branch * tl.load(gamma_ptr + channel, is_channel, 0.0)
        tl.store(total_ptr + here, x, is_here)
    if normed_ptr is not None:
        centered = tl.where(is_channel, x - (tl.sum(x, 1) / WIDTH)[:, None], 0.0)
        scale = tl.rsqrt(tl.sum(centered * centered, 1) / WIDTH + eps)[:, None]
        weight, bias = tl.load(weight_ptr + channel, is_channel, 0.0), tl.load(bias_ptr + channel, is_channel, 0.0)
        tl.store(normed_ptr + here, (centered * scale * weight + bias).to(normed_ptr.dtype.element_ty), is_here)


@triton.jit
def _add_norm_backward(
    total_ptr,
    branch_ptr,
    gamma_ptr,
    weight_ptr,
    d_total_ptr,
    d_normed_ptr,
    d_x_ptr,
    d_branch_ptr,
    sums_ptr,
    num_rows,
    eps,
    WIDTH: tl.constexpr,
    ROUND: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Every so many tiles of rows."""
    channel = tl.arange(0, ROUND)[None, :]
    is_channel = channel < WIDTH
    d_weight = tl.zeros([ROWS, ROUND], tl.float32)
    d_bias = tl.zeros([ROWS, ROUND], tl.float32)
    d_gamma = tl.zeros([ROWS, ROUND], tl.float32)
    d_sum = tl.zeros([ROWS, ROUND], tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(num_rows, ROWS), tl.num_programs(0)):
        row = tile * ROWS + tl.arange(0, ROWS)[:, None]
        here, is_here = row.to(tl.int64) * WIDTH + channel, is_channel & (row < num_rows)
        d_x = tl.load(d_total_ptr + here, is_here, 0.0)
        if weight_ptr is not None:
            x = tl.load(total_ptr + here, is_here, 0.0)
            centered = tl.where(is_channel, x - (tl.sum(x, 1) / WIDTH)[:, None], 0.0)
            scale = tl.rsqrt(tl.sum(centered * centered, 1) / WIDTH + eps)[:, None]
            unit = centered * scale
            d_normed = tl.load(d_normed_ptr + here, is_here, 0.0).to(tl.float32)
            d_weight += d_normed * unit
            d_bias += d_normed
            d_unit = d_normed * tl.load(weight_ptr + channel, is_channel, 0.0)
            level, along = tl.sum(d_unit, 1) / WIDTH, tl.sum(d_unit * unit, 1) / WIDTH
            d_x += tl.where(is_here, scale * (d_unit - level[:, None] - unit * along[:, None]), 0.0)
            tl.store(d_x_ptr + here, d_x, is_here)
        if branch_ptr is not None:
            d_gamma += d_x * tl.load(branch_ptr + here, is_here, 0.0).to(tl.float32)
            d_sum += d_x
            d_branch = d_x * tl.load(gamma_ptr + channel, is_channel, 0.0)
            tl.store(d_branch_ptr + here, d_branch.to(d_branch_ptr.dtype.element_ty), is_here)
    column, is_column = tl.arange(0, ROUND), tl.arange(0, ROUND) < WIDTH
    mine = sums_ptr + tl.program_id(0) * 4 * WIDTH + column
    if weight_ptr is not None:
        tl.store(mine, tl.sum(d_weight, 0), is_column)
        tl.store(mine + WIDTH, tl.sum(d_bias, 0), is_column)
    if branch_ptr is not None:
        tl.store(mine + 2 * WIDTH, tl.sum(d_gamma, 0), is_column)
        tl.store(mine + 3 * WIDTH, tl.sum(d_sum, 0), is_column)


@triton.jit
def _gelu_backward(x_ptr, d_out_ptr, d_x_ptr, sums_ptr, num_rows, width, TILE: tl.constexpr):
    """Every so many tiles of some columns."""
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    is_column = column < width
    d_bias = tl.zeros([TILE, TILE], tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(num_rows, TILE), tl.num_programs(0)):
        row = tile * TILE + tl.arange(0, TILE)[:, None]
        here, is_here = row.to(tl.int64) * width + column[None, :], is_column[None, :] & (row < num_rows)
        x = tl.load(x_ptr + here, is_here, 0.0).to(tl.float32)
        share = 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
        slope = share + x * tl.exp(-0.5 * x * x) * 0.3989422804014327
        d_x = tl.load(d_out_ptr + here, is_here, 0.0).to(tl.float32) * slope
        d_bias += d_x
        tl.store(d_x_ptr + here, d_x.to(d_x_ptr.dtype.element_ty), is_here)
    tl.store(sums_ptr + tl.program_id(0) * width + column, tl.sum(d_bias, 0), is_column)
