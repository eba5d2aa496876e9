"""The pre-norm transformer block that encoder, trunk and camera head share; what its queries see is an argument."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from longtake.layers.rotary import Rotate, Tokens

Attend = Callable[[Tokens, Tokens, Tokens], Tokens]
MLP_RATIO = 4


def attend_within(q: Tokens, k: Tokens, v: Tokens) -> Tokens:
    """Every token sees every token of its own batch entry."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)


class Attention(nn.Module):
    """Project to queries, keys and values, norm the first two if asked, turn them, attend, project."""

    def __init__(self, width: int, heads: int, *, qk_norm: bool) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.q_norm = nn.LayerNorm(width // heads) if qk_norm else nn.Identity()
        self.k_norm = nn.LayerNorm(width // heads) if qk_norm else nn.Identity()

    def longest(self) -> tuple[float, float] | None:
        """How long a query and a key can be, whatever comes; None without norms. Turning keeps lengths."""
        if not isinstance(self.q_norm, nn.LayerNorm) or not isinstance(self.k_norm, nn.LayerNorm):
            return None
        return _longest_of(self.q_norm), _longest_of(self.k_norm)

    def forward(
        self, x: Float[Tensor, "batch tokens width"], rotate: Rotate, attend: Attend
    ) -> Float[Tensor, "batch tokens width"]:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(dim=-3)
        # Norms and phases may have come out in float32 under autocast; keys are stored as wide as values.
        q, k = (rotate(normed).to(v.dtype) for normed in (self.q_norm(q), self.k_norm(k)))
        projected: Tensor = self.proj(attend(q, k, v).flatten(-2))
        return projected


def _longest_of(norm: nn.LayerNorm) -> float:
    """A normed row is no longer than the root of its size; a little more, for rounding to a half type."""
    weight, bias = norm.weight.detach(), norm.bias.detach()
    return (1 + 2**-7) * (float(weight.abs().max()) * math.sqrt(weight.numel()) + float(bias.norm()))


class Mlp(nn.Module):
    """Fc2(GELU(Fc1(x))), the exact GELU."""

    def __init__(self, width: int, hidden: int, output: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, output)

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch output"]:
        out: Tensor = self.fc2(functional.gelu(self.fc1(x)))
        return out


class LayerScale(nn.Module):
    """A learned factor per channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((width,), 0.01))

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        return x * self.gamma


class Block(nn.Module):
    """x + γ₁ Attention(LN(x)), then x + γ₂ MLP(LN(x)).

    Under autocast the branches run in half precision and the float32 γ lifts them back, so the residual stays float32.
    """

    def __init__(self, width: int, heads: int, *, qk_norm: bool = False, eps: float = 1e-5) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=eps)
        self.attn = Attention(width, heads, qk_norm=qk_norm)
        self.ls1 = LayerScale(width)
        self.norm2 = nn.LayerNorm(width, eps=eps)
        self.mlp = Mlp(width, MLP_RATIO * width, width)
        self.ls2 = LayerScale(width)

    def forward(
        self, x: Float[Tensor, "batch tokens width"], rotate: Rotate, attend: Attend
    ) -> Float[Tensor, "batch tokens width"]:
        x = x + self.ls1(self.attn(self.norm1(x), rotate, attend))
        out: Tensor = x + self.ls2(self.mlp(self.norm2(x)))
        return out
