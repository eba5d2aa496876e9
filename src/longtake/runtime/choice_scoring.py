"""Multiple choice: which choices may be offered, and how likely each is by the logits of its tokens."""

from collections.abc import Sequence
from string import ascii_uppercase

from jaxtyping import Float
from torch import Tensor

from longtake.errors import InputError
from longtake.runtime.answers import Choice, LetterChoice


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
