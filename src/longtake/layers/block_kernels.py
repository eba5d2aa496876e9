"""What a block does between its products, in Triton: norms, residuals and phases, one pass over the data each.

All of it is computed in float32 and rounded once, as autocast does it one operation after another. This module and the
kernels of `attention` alone load Triton.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor, nn

from longtake.layers.rotary import AdjacentRotation, HalvesRotation

Residual = Float32[Tensor, "*batch width"]
Half = Float[Tensor, "*batch width"]
_ROWS = 32
"""Rows of a head that a program turns."""
_GATED = 1024
"""Numbers of a program that gates."""


def norm(x: Residual, layer: nn.LayerNorm, dtype: torch.dtype) -> Half:
    """The norm of each row, in a type for products."""
    normed = torch.empty_like(x, dtype=dtype)
    _launch_add_norm(x, x, None, layer, x, normed)
    return normed


def add(x: Residual, branch: Half, gamma: Float32[Tensor, " width"]) -> Residual:
    """`x + γ branch`."""
    total = torch.empty_like(x)
    _launch_add_norm(x, branch, gamma, None, total, total)
    return total


def add_norm(x: Residual, branch: Half, gamma: Float32[Tensor, " width"], layer: nn.LayerNorm) -> tuple[Residual, Half]:
    """`x + γ branch`, and the norm of it in the type of the branch."""
    total, normed = torch.empty_like(x), torch.empty_like(branch)
    _launch_add_norm(x, branch, gamma, layer, total, normed)
    return total, normed


def scale_norm(x: Residual, weight: Float[Tensor, " width"], eps: float, dtype: torch.dtype) -> Half:
    """Each row over its root mean square, in a type for products."""
    normed = torch.empty_like(x, dtype=dtype)
    _launch_add_scale_norm(x, None, weight, eps, x, normed)
    return normed


def add_scale_norm(x: Residual, branch: Half, weight: Float[Tensor, " width"], eps: float) -> tuple[Residual, Half]:
    """`x + branch`, and that over its root mean square in the type of the branch."""
    total, normed = torch.empty_like(x), torch.empty_like(branch)
    _launch_add_scale_norm(x, branch, weight, eps, total, normed)
    return total, normed


def gated(gate: Half, x: Half) -> Half:
    """`silu(gate) x`."""
    assert gate.is_contiguous()
    assert x.is_contiguous()
    out = torch.empty_like(x)
    _gated[(triton.cdiv(x.numel(), _GATED),)](gate, x, out, x.numel(), BLOCK=_GATED, num_warps=4)
    return out


def turn(
    mixed: Float[Tensor, "batch tokens 3 heads head_dim"],
    norms: tuple[nn.LayerNorm, nn.LayerNorm] | None,
    rotation: AdjacentRotation | HalvesRotation | None,
) -> tuple[Float[Tensor, "batch tokens heads head_dim"], Float[Tensor, "batch tokens heads head_dim"]]:
    """Queries and keys, normed and turned, where norms and phases are given."""
    batch, tokens, _, heads, head_dim = mixed.shape
    assert mixed.is_contiguous()
    turned = [torch.empty(batch, tokens, heads, head_dim, dtype=mixed.dtype, device=mixed.device) for _ in range(2)]
    weights = [mixed] * 4 if norms is None else [each for layer in norms for each in (layer.weight, layer.bias)]
    cos, sin = (mixed, mixed) if rotation is None else (rotation.phases.cos, rotation.phases.sin)
    rows = batch * tokens * heads
    _turn[(triton.cdiv(rows, _ROWS), 2)](
        mixed,
        *turned,
        *weights,
        cos,
        sin,
        rows,
        1 if rotation is None else len(cos),
        0.0 if norms is None else norms[0].eps,
        HEADS=heads,
        PAIRS=head_dim // 2,
        ROWS=_ROWS,
        NORMED=norms is not None,
        TURNED=rotation is not None,
        ADJACENT=isinstance(rotation, AdjacentRotation),
        num_warps=4,
    )
    return turned[0], turned[1]


def _launch_add_norm(
    x: Residual,
    branch: Half,
    gamma: Float32[Tensor, " width"] | None,
    layer: nn.LayerNorm | None,
    total: Residual,
    normed: Half,
) -> None:
    width = x.shape[-1]
    assert x.is_contiguous()
    assert branch.is_contiguous()
    _add_norm[(x.numel() // width,)](
        x,
        branch,
        x if gamma is None else gamma,
        x if layer is None else layer.weight,
        x if layer is None else layer.bias,
        total,
        normed,
        0.0 if layer is None else layer.eps,
        WIDTH=width,
        ROUND=triton.next_power_of_2(width),
        ADDED=gamma is not None,
        NORMED=layer is not None,
        num_warps=4,
    )


@triton.jit
def _add_norm(
    x_ptr,
    branch_ptr,
    gamma_ptr,
    weight_ptr,
    bias_ptr,
    total_ptr,
    normed_ptr,
    eps,
    WIDTH: tl.constexpr,
    ROUND: tl.constexpr,
    ADDED: tl.constexpr,
    NORMED: tl.constexpr,
):
    """One row."""
    channel = tl.arange(0, ROUND)
    is_channel = channel < WIDTH
    here = tl.program_id(0).to(tl.int64) * WIDTH + channel
    x = tl.load(x_ptr + here, is_channel, 0.0).to(tl.float32)
    if ADDED:
        branch = tl.load(branch_ptr + here, is_channel, 0.0).to(tl.float32)
        x += branch * tl.load(gamma_ptr + channel, is_channel, 0.0)
        tl.store(total_ptr + here, x, is_channel)
    if NORMED:
        centered = tl.where(is_channel, x - tl.sum(x) / WIDTH, 0.0)
        scale = tl.rsqrt(tl.sum(centered * centered) / WIDTH + eps)
        weight, bias = tl.load(weight_ptr + channel, is_channel, 0.0), tl.load(bias_ptr + channel, is_channel, 0.0)
        tl.store(normed_ptr + here, (centered * scale * weight + bias).to(normed_ptr.dtype.element_ty), is_channel)


def _launch_add_scale_norm(
    x: Residual, branch: Half | None, weight: Float[Tensor, " width"], eps: float, total: Residual, normed: Half
) -> None:
    width = x.shape[-1]
    assert x.is_contiguous()
    assert branch is None or branch.is_contiguous()
    _add_scale_norm[(x.numel() // width,)](
        x,
        x if branch is None else branch,
        weight,
        total,
        normed,
        eps,
        WIDTH=width,
        ROUND=triton.next_power_of_2(width),
        ADDED=branch is not None,
        num_warps=4,
    )


@triton.jit
def _add_scale_norm(
    x_ptr,
    branch_ptr,
    weight_ptr,
    total_ptr,
    normed_ptr,
    eps,
    WIDTH: tl.constexpr,
    ROUND: tl.constexpr,
    ADDED: tl.constexpr,
):
    """One row."""
    channel = tl.arange(0, ROUND)
    is_channel = channel < WIDTH
    here = tl.program_id(0).to(tl.int64) * WIDTH + channel
    x = tl.load(x_ptr + here, is_channel, 0.0)
    if ADDED:
        x += tl.load(branch_ptr + here, is_channel, 0.0).to(tl.float32)
        tl.store(total_ptr + here, x, is_channel)
    scale = tl.rsqrt(tl.sum(x * x) / WIDTH + eps)
    weight = tl.load(weight_ptr + channel, is_channel, 0.0).to(tl.float32)
    tl.store(normed_ptr + here, (x * scale * weight).to(normed_ptr.dtype.element_ty), is_channel)


@triton.jit
def _gated(gate_ptr, x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    """Some numbers."""
    here = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_here = here < count
    gate = tl.load(gate_ptr + here, is_here, 0.0).to(tl.float32)
    x = tl.load(x_ptr + here, is_here, 0.0).to(tl.float32)
    tl.store(out_ptr + here, (gate / (1.0 + tl.exp(-gate)) * x).to(out_ptr.dtype.element_ty), is_here)


@triton.jit
def _turn(
    mixed_ptr,
    q_ptr,
    k_ptr,
    q_weight_ptr,
    q_bias_ptr,
    k_weight_ptr,
    k_bias_ptr,
    cos_ptr,
    sin_ptr,
    num_rows,
    num_phases,
    eps,
    HEADS: tl.constexpr,
    PAIRS: tl.constexpr,
    ROWS: tl.constexpr,
    NORMED: tl.constexpr,
    TURNED: tl.constexpr,
    ADJACENT: tl.constexpr,
):
    """Some rows of queries or of keys, a row for each token and head, as pairs of channels that turn together."""
    row, channel, pair = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, 2 * PAIRS), tl.arange(0, PAIRS)
    is_row = (row < num_rows)[:, None]
    token, head, is_key = row // HEADS, row % HEADS, tl.program_id(1)
    source = mixed_ptr + ((token * 3 + is_key) * HEADS + head).to(tl.int64)[:, None] * (2 * PAIRS)
    x = tl.load(source + channel[None, :], is_row, 0.0).to(tl.float32)
    if NORMED:
        x -= (tl.sum(x, 1) / (2 * PAIRS))[:, None]
        weight_ptr, bias_ptr = q_weight_ptr, q_bias_ptr
        if is_key:
            weight_ptr, bias_ptr = k_weight_ptr, k_bias_ptr
        x *= tl.rsqrt(tl.sum(x * x, 1) / (2 * PAIRS) + eps)[:, None]
        x = x * tl.load(weight_ptr + channel)[None, :] + tl.load(bias_ptr + channel)[None, :]
    if TURNED:
        phase = (token % num_phases)[:, None] * PAIRS + pair[None, :]
        cos, sin = tl.load(cos_ptr + phase), tl.load(sin_ptr + phase)
        if ADJACENT:
            a, b = tl.split(tl.reshape(x, (ROWS, PAIRS, 2)))
            x = tl.reshape(tl.join(a * cos - b * sin, b * cos + a * sin), (ROWS, 2 * PAIRS))
        else:  # axis, half, channel
            a, b = tl.split(tl.permute(tl.reshape(x, (ROWS, 2, 2, PAIRS // 2)), (0, 1, 3, 2)))
            cos, sin = tl.reshape(cos, (ROWS, 2, PAIRS // 2)), tl.reshape(sin, (ROWS, 2, PAIRS // 2))
            turned = tl.join(a * cos - b * sin, b * cos + a * sin)
            x = tl.reshape(tl.permute(turned, (0, 1, 3, 2)), (ROWS, 2 * PAIRS))
    target = q_ptr
    if is_key:
        target = k_ptr
    target += row.to(tl.int64)[:, None] * (2 * PAIRS)
    tl.store(target + channel[None, :], x.to(q_ptr.dtype.element_ty), is_row)
