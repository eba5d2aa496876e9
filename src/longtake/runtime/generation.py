"""From logits to an answer: tokens are chosen and fed back until something ends it, or given choices are scored."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from string import ascii_uppercase

import torch
from jaxtyping import Float
from torch import Tensor

from longtake.errors import InputError
from longtake.language.load import LanguageModel
from longtake.language.sampling import TextSampling
from longtake.language.tokenizer import TextStream
from longtake.runtime.answers import Choice, Ending, LetterChoice, Timing

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


class Writing:
    """An answer under way: tokens are chosen one after another, until something ends it."""

    def __init__(self, language: LanguageModel, sampling: TextSampling, device: torch.device) -> None:
        self._language, self._sampling = language, sampling
        self._stream = TextStream(language.required_tokenizer, sampling.stop)
        self.generator = sampling.new_generator(device)
        self._ids: list[int] = []
        self._pieces: list[str] = []
        self._ending: Ending | None = None
        self._num_fed, self._first_s, self._ended_s = 0, 0.0, 0.0

    @property
    def has_ended(self) -> bool:
        return self._ending is not None

    @property
    def num_left(self) -> int:
        """Tokens that may still be fed back."""
        return max(0, self._sampling.max_new_tokens - 1 - self._num_fed)

    def choose(self, logits: Logits) -> int:
        """A token by the logits of all."""
        return self._sampling.choose(logits, self.generator, self._language.suppressed_ids)

    def add(self, token: int) -> str:
        """Go on with this token; the text that is whole with it, if any."""
        self._first_s = self._first_s or time.perf_counter()
        self._ids.append(token)
        is_end = token in self._language.eos_ids
        piece = "" if is_end else self._add(self._stream.add(token))
        if is_end or self._stream.stopped:
            self._ending = Ending.STOP
        elif len(self._ids) == self._sampling.max_new_tokens:
            self._ending = Ending.LENGTH
        if self.has_ended:
            self._ended_s = time.perf_counter()
        return piece

    def next_fed(self) -> int:
        """The token to be fed back, whose logits are the next."""
        assert not self.has_ended
        self._num_fed += 1
        return self._ids[-1]

    def last_piece(self) -> str:
        """What was held back for characters that might have become whole."""
        return self._add(self._stream.finish())

    def told(self, steps: Iterator[None]) -> Iterator[str]:
        """Its text as it comes, to its end; each of the steps adds a token, to it and perhaps to others."""
        num_told = 0
        while True:
            text = "".join(self._pieces[num_told:])
            num_told = len(self._pieces)
            if text:
                yield text
            if self.has_ended:
                break
            next(steps)
        rest = self.last_piece()
        if rest:
            yield rest

    def written(self) -> Generated:
        """All of it, once it has ended."""
        assert self._ending is not None
        return Generated(
            text="".join(self._pieces),
            ids=tuple(self._ids),
            num_fed=self._num_fed,
            ending=self._ending,
            first_s=self._first_s,
            ended_s=self._ended_s,
        )

    def _add(self, piece: str) -> str:
        if piece:
            self._pieces.append(piece)
        return piece


def generate(writing: Writing, logits: Logits, feed: Callable[[int], Logits]) -> Iterator[str | Generated]:
    """Text as it comes, and last all of it.

    The first token is chosen by `logits`; `feed` reads a token and returns the logits of the next one.
    """
    while True:
        piece = writing.add(writing.choose(logits))
        if piece:
            yield piece
        if writing.has_ended:
            break
        logits = feed(writing.next_fed())
    rest = writing.last_piece()
    if rest:
        yield rest
    yield writing.written()


def require_choices(choices: Sequence[str]) -> None:
    """Two or more, all different."""
    if len(choices) < 2 or len(set(choices)) < len(choices):
        raise InputError(f"Expected two choices or more, all different, but got {list(choices)}; give others.")


def equally_long(choices: Sequence[Sequence[int]]) -> list[list[int]]:
    """The tokens of each, its last one repeated until all have as many."""
    longest = max(map(len, choices))
    return [[*choice, *[choice[-1]] * (longest - len(choice))] for choice in choices]


def by_likelihood(
    choices: Sequence[str],
    tokens: Sequence[Sequence[int]],
    first: Float[Tensor, " vocabulary"],
    later: Float[Tensor, "choices tokens vocabulary"],
) -> list[Choice]:
    """From log-likelihoods of what comes first, and in each choice after each of its tokens."""
    scored = []
    for entry, (text, ids) in enumerate(zip(choices, tokens, strict=True)):
        parts = [float(first[ids[0]])] + [float(later[entry, at, ids[at + 1]]) for at in range(len(ids) - 1)]
        scored.append(Choice(text=text, sum_log_likelihood=sum(parts), mean_log_likelihood=sum(parts) / len(parts)))
    return scored


def offered_by_letters(question: str, choices: Sequence[str]) -> str:
    """The question with a line for each choice: A., B. and so on."""
    if len(choices) > len(ascii_uppercase):
        raise InputError(f"Expected at most {len(ascii_uppercase)} choices by letters, but got {len(choices)}.")
    lines = [f"{letter}. {choice}" for letter, choice in zip(ascii_uppercase, choices, strict=False)]
    return "\n".join([question, *lines])


def by_letters(choices: Sequence[str], best: Float[Tensor, " choices"]) -> list[LetterChoice]:
    """From the best logit of each letter."""
    return [
        LetterChoice(text=text, letter=letter, share=share)
        for text, letter, share in zip(choices, ascii_uppercase, best.softmax(0).tolist(), strict=False)
    ]
