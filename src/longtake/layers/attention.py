"""Multi-head attention whose memory is an argument: the caller says what the queries may see."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from longtake.layers.rotary import Rotate, Tokens

Attend = Callable[[Tokens, Tokens, Tokens], Tokens]


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

    def forward(
        self, x: Float[Tensor, "batch tokens width"], rotate: Rotate, attend: Attend
    ) -> Float[Tensor, "batch tokens width"]:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(dim=-3)
        # Norms and phases may have come out in float32 under autocast; keys are stored as wide as values.
        q, k = (rotate(normed).to(v.dtype) for normed in (self.q_norm(q), self.k_norm(k)))
        projected: Tensor = self.proj(attend(q, k, v).flatten(-2))
        return projected
