"""The pre-norm transformer block with LayerScale that encoder, trunk and camera head share."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from longtake.layers.attention import Attend, Attention
from longtake.layers.mlp import Mlp
from longtake.layers.rotary import Rotate

MLP_RATIO = 4


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
