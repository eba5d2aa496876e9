"""Two linear layers with a GELU between."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


class Mlp(nn.Module):
    """Fc2(GELU(Fc1(x))), the exact GELU."""

    def __init__(self, width: int, hidden: int, output: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, output)

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch output"]:
        out: Tensor = self.fc2(functional.gelu(self.fc1(x)))
        return out
