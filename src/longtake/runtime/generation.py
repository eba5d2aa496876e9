"""An answer word by word: what is chosen, told as text, and heard again, until something ends it."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from longtake.language.load import LanguageModel
from longtake.language.sampling import TextSampling
from longtake.language.tokenizer import TextStream
from longtake.runtime.answers import Ending, Timing

Logits = Float[Tensor, " words"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """All that was said, and when, by the clock of `time.perf_counter`."""

    text: str
    ids: tuple[int, ...]
    num_heard: int
    """How many of the ids were heard again."""
    ending: Ending
    first_s: float
    ended_s: float

    def timing(self, started_s: float, forked_s: float) -> Timing:
        """For a question that came, and had its fork, at these times."""
        speaking_s = self.ended_s - self.first_s
        return Timing(
            fork_s=forked_s - started_s,
            prefill_s=self.first_s - forked_s,
            first_token_s=self.first_s - started_s,
            total_s=self.ended_s - started_s,
            tokens_per_s=(len(self.ids) - 1) / speaking_s if len(self.ids) > 1 and speaking_s > 0 else None,
        )


def generate(
    language: LanguageModel, sampling: TextSampling, logits: Logits, hear: Callable[[int], Logits]
) -> Iterator[str | Generated]:
    """Text as it comes, from what follows the question and what `hear` says follows each word; last, all of it."""
    stream, generator = TextStream(language.words, sampling.stop), sampling.new_generator(logits.device)
    ids: list[int] = []
    said: list[str] = []
    ending, num_heard, first_s = Ending.LENGTH, 0, 0.0
    while len(ids) < sampling.max_new_tokens:
        token = sampling.choose(logits, generator, language.suppressed_ids)
        first_s = first_s or time.perf_counter()
        ids.append(token)
        piece = "" if token in language.eos_ids else stream.add(token)
        if piece:
            said.append(piece)
            yield piece
        if token in language.eos_ids or stream.stopped:
            ending = Ending.STOP
            break
        if len(ids) < sampling.max_new_tokens:
            logits = hear(token)
            num_heard += 1
    rest = stream.finish()
    if rest:
        said.append(rest)
        yield rest
    yield Generated(
        text="".join(said),
        ids=tuple(ids),
        num_heard=num_heard,
        ending=ending,
        first_s=first_s,
        ended_s=time.perf_counter(),
    )
