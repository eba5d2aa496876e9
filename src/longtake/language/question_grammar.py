"""Which questions a model of few words was trained on; others are refused in a sentence that lists these.

A folder may say so in `known.json`: which forms of questions there are, an example of each, which words stand in the
places of a form, and lists for people. Without it, a tokenizer that has one id for all unknown words still finds these.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longtake.errors import CheckpointError, UnknownWordsError
from longtake.language.model_config import read_json
from longtake.language.tokenizer import Tokenizer

KNOWN_NAME = "known.json"
_MOST_LISTED = 100
_ANOTHER = "for anything else name another model (--model of longtake ask, --language of longtake live)"
_END_SIGNS = "?.! \t\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionGrammar:
    """The forms of questions a model was trained on, the words in them, and lists of them for people."""

    about: str
    forms: tuple[str, ...]
    """Words and signs apart, such as `where is the {colour} {thing} now ?`."""
    examples: tuple[str, ...]
    """One for each form, as people write it."""
    places: Mapping[str, tuple[str, ...]]
    """Which words may stand in each place of a form."""
    lists: Mapping[str, tuple[str, ...]]
    """What people want to know, by its name."""

    @classmethod
    def from_folder(cls, folder: Path) -> "QuestionGrammar | None":
        """From a model's folder, or none if it has no such file."""
        path = folder / KNOWN_NAME
        return cls.parse(read_json(path), path) if path.is_file() else None

    @classmethod
    def parse(cls, stated: Mapping[str, Any], where: Path) -> "QuestionGrammar":
        try:
            known = cls(
                about=str(stated["about"]),
                forms=tuple(str(question["form"]) for question in stated["questions"]),
                examples=tuple(str(question["example"]) for question in stated["questions"]),
                places=_word_lists(stated["places"]),
                lists=_word_lists(stated["lists"]),
            )
            for form in known.forms:  # a place without words is found here and not by a question
                form.format_map(known.places)
            return known
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise CheckpointError(
                f"Expected what the model can be asked in {where}, with about, questions, places and lists, but it "
                f"cannot be read ({error}); fetch it again, or remove it."
            ) from error

    def to_json(self) -> dict[str, Any]:
        """What `parse` reads."""
        questions = [
            {"form": form, "example": example} for form, example in zip(self.forms, self.examples, strict=True)
        ]
        return {
            "about": self.about,
            "questions": questions,
            "places": {name: list(words) for name, words in self.places.items()},
            "lists": {name: list(words) for name, words in self.lists.items()},
        }

    def has(self, words: Sequence[str]) -> bool:
        """Whether these words and signs have one of the forms."""
        return any(self._fits(form.split(), words) for form in self.forms)

    def _fits(self, form: Sequence[str], words: Sequence[str]) -> bool:
        return len(form) == len(words) and all(map(self._allows, form, words))

    def _allows(self, part: str, word: str) -> bool:
        return word in self.places[part[1:-1]] if part.startswith("{") else word == part

    @property
    def in_words(self) -> str:
        lists = [f"{name}: {', '.join(words)}" for name, words in self.lists.items()]
        return "; ".join([f"ask as in: {' '.join(self.examples)}", *lists])


def _word_lists(stated: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {str(name): tuple(map(str, words)) for name, words in stated.items()}


def question_ids(question: str, tokenizer: Tokenizer, known: QuestionGrammar | None) -> tuple[int, ...]:
    """Ids of a question that the model can be asked; refused in a sentence where it cannot.

    Where the forms are known, how many spaces there are and whether the question has its sign makes no difference.
    """
    if known is not None:
        question = " ".join(question.rstrip(_END_SIGNS).split()) + " ?"
    ids = known_ids(question, tokenizer, known)
    if known is not None and not known.has(tokenizer.pieces(ids)):
        raise UnknownWordsError(_refusal(tokenizer, known, f"'{question[:-2]}' is no question that I was taught"))
    return ids


def known_ids(text: str, tokenizer: Tokenizer, known: QuestionGrammar | None) -> tuple[int, ...]:
    """Ids of a text such as a choice, refused where the model knows a word no more than any other unknown one."""
    ids = tokenizer.encode(text)
    if strange := tokenizer.unknown_in(text):
        are = "is no word" if len(strange) == 1 else "are no words"
        named = ", ".join(f"'{word}'" for word in strange)
        raise UnknownWordsError(_refusal(tokenizer, known, f"{named} {are} of mine"))
    return ids


def _refusal(tokenizer: Tokenizer, known: QuestionGrammar | None, why: str) -> str:
    if known is not None:
        return f"I only know about {known.about}, and {why}; {known.in_words}; {_ANOTHER}."
    listed = [word for word in tokenizer.plain if re.search(r"\S", word)]
    more = f" and {len(listed) - _MOST_LISTED} more" if len(listed) > _MOST_LISTED else ""
    return f"I only know about what can be said in words of mine, and {why}; they are: " + (
        f"{', '.join(listed[:_MOST_LISTED])}{more}; {_ANOTHER}."
    )
