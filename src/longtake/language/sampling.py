"""How the next token is chosen from the logits of all tokens."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longtake.errors import InputError, SettingError


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSampling:
    """How an answer is sampled and where it ends; temperature 0 is greedy."""

    temperature: float = 0.0
    top_p: float = 1.0
    """Only the likeliest tokens that make up this share."""
    top_k: int | None = None
    """Only so many of the likeliest tokens."""
    max_new_tokens: int = 128
    seed: int | None = None
    """The same seed draws the same answer on the same machine; none draws anew each time."""
    stop: tuple[str, ...] = ()
    """Texts that end the answer and are no part of it."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise SettingError(f"Expected a temperature of 0 or more, got {self.temperature}; 0 takes the best word.")
        if not 0 < self.top_p <= 1:
            raise SettingError(f"Expected top_p above 0 and up to 1, got {self.top_p}; 1 leaves every word in.")
        if self.top_k is not None and self.top_k < 1:
            raise SettingError(f"Expected top_k of 1 or more, got {self.top_k}; leave it out to leave every word in.")
        if self.max_new_tokens < 1:
            raise SettingError(f"Expected max_new_tokens of 1 or more, got {self.max_new_tokens}; 128 is the default.")
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise SettingError(f"Expected a seed from 0 to 2^63 - 1, got {self.seed}; leave it out to draw anew.")
        if not all(self.stop):
            raise SettingError("Expected stop texts of at least one character, got an empty one; leave it out.")

    def new_generator(self, device: torch.device | str = "cpu") -> torch.Generator:
        """The random generator of one answer, on the device of its logits."""
        generator = torch.Generator(device)
        if self.seed is None:
            generator.seed()
        else:
            generator.manual_seed(self.seed)
        return generator

    def choose(
        self, logits: Float[Tensor, "vocabulary"], generator: torch.Generator, suppressed: Sequence[int] = ()
    ) -> int:
        """The next token, which is none of those suppressed."""
        (token,) = self.choose_each(logits.unsqueeze(0), [generator], suppressed)
        return token

    def choose_each(
        self,
        logits: Float[Tensor, "answers vocabulary"],
        generators: Sequence[torch.Generator],
        suppressed: Sequence[int] = (),
    ) -> list[int]:
        """The next token of each of several answers."""
        scores = logits.float()
        if suppressed:
            scores = scores.index_fill(-1, _on_device(tuple(suppressed), scores.device), -math.inf)
        highest = scores.max(-1)
        best, tops = torch.stack(
            [highest.indices.float(), highest.values]
        ).tolist()  # waited for once; no vocabulary has 2^24 words
        for top in tops:
            if not math.isfinite(top):
                raise InputError(
                    f"Expected finite scores from the model, but the best is {top}; its weights are damaged, "
                    "or overflow in this number type: try bfloat16 or float32."
                )
        if self.temperature == 0:
            return [int(token) for token in best]
        drawn = [self._draw(*each) for each in zip(scores, tops, generators, strict=True)]
        tokens: list[int] = torch.cat(drawn).tolist()
        return tokens

    def _draw(self, scores: Float[Tensor, "vocabulary"], top: float, generator: torch.Generator) -> Int[Tensor, "1"]:
        probabilities, ids = self._likeliest((scores - top) / self.temperature)
        return ids[torch.multinomial(probabilities, 1, generator=generator)]

    def _likeliest(self, scores: Float[Tensor, "vocabulary"]) -> tuple[Float[Tensor, "kept"], Int[Tensor, "kept"]]:
        """Tokens still in play, the likeliest first, with weights for sampling; the sum may be below 1."""
        kept = scores.numel() if self.top_k is None else min(self.top_k, scores.numel())
        values, ids = scores.topk(kept)
        probabilities = values.softmax(0)
        if self.top_p < 1:
            likelier = probabilities.cumsum(0) - probabilities
            probabilities = probabilities.where(likelier < self.top_p, 0.0)
        return probabilities, ids


@cache
def _on_device(ids: tuple[int, ...], device: torch.device) -> Int[Tensor, " ids"]:
    """Sent once: every token of every answer needs them."""
    return torch.tensor(ids, device=device)
