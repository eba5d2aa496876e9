"""Autoregressive generation: a token is chosen, given out as text and fed back, until something ends the answer."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from longtake.language.load import LanguageModel
from longtake.language.sampling import TextSampling
from longtake.language.tokenizer import TextStream
from longtake.runtime.answers import Ending, Timing

Logits = Float[Tensor, " vocabulary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """A whole answer, and when it came, by the clock of `time.perf_counter`."""

    text: str
    ids: tuple[int, ...]
    num_fed: int
    """How many of the ids were fed back; the rest is not in memory."""
    ending: Ending
    first_s: float
    ended_s: float

    def timing(self, started_s: float, forked_s: float) -> Timing:
        """For a question that came, and had its fork, at these times."""
        generating_s = self.ended_s - self.first_s
        return Timing(
            fork_s=forked_s - started_s,
            prefill_s=self.first_s - forked_s,
            first_token_s=self.first_s - started_s,
            total_s=self.ended_s - started_s,
            tokens_per_s=(len(self.ids) - 1) / generating_s if len(self.ids) > 1 and generating_s > 0 else None,
        )


def generate(
    language: LanguageModel, sampling: TextSampling, logits: Logits, feed: Callable[[int], Logits]
) -> Iterator[str | Generated]:
    """Text as it comes, and last all of it.

    The first token is chosen by `logits`; `feed` reads a token and returns the logits of the next one.
    """
    stream, generator = TextStream(language.required_tokenizer, sampling.stop), sampling.new_generator(logits.device)
    ids: list[int] = []
    pieces: list[str] = []
    ending, num_fed, first_s = Ending.LENGTH, 0, 0.0
    while len(ids) < sampling.max_new_tokens:
        token = sampling.choose(logits, generator, language.suppressed_ids)
        first_s = first_s or time.perf_counter()
        ids.append(token)
        piece = "" if token in language.eos_ids else stream.add(token)
        if piece:
            pieces.append(piece)
            yield piece
        if token in language.eos_ids or stream.stopped:
            ending = Ending.STOP
            break
        if len(ids) < sampling.max_new_tokens:
            logits = feed(token)
            num_fed += 1
    rest = stream.finish()
    if rest:
        pieces.append(rest)
        yield rest
    yield Generated(
        text="".join(pieces),
        ids=tuple(ids),
        num_fed=num_fed,
        ending=ending,
        first_s=first_s,
        ended_s=time.perf_counter(),
    )
