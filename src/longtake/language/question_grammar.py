"""Which questions a model of few words was trained on; others are refused in a sentence that lists these.

A folder may say so in `known.json`: which forms of questions there are, an example of each, which words stand in the
places of a form, and lists for people. Without it, a tokenizer that has one id for all unknown words still finds these.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from longtake.errors import CheckpointError, UnknownWordsError
from longtake.language.model_config import read_json
from longtake.language.tokenizer import Tokenizer

KNOWN_NAME = "known.json"
_MOST_LISTED = 100
_FEW = 3
"""Examples, where there is room for no more."""
_ANOTHER = (
    "for anything else name another model (DialogueSession.from_pretrained(...) or ask=... of LiveSession in Python, "
    "--model of longtake ask, --language of longtake live)"
)
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

    def nearest(self, question: str) -> str | None:
        """The example of the form that is most like a question; None where none is much like it."""
        names = {word: f"{{{place}}}" for place, words in self.places.items() for word in words}
        words = re.findall(r"\w+|[^\w\s]", question.lower())
        near = get_close_matches(" ".join(names.get(word, word) for word in words), self.forms, n=1)
        return self.examples[self.forms.index(near[0])] if near else None

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
    ids, why = tokenizer.encode(question), _why_strange(question, tokenizer)
    if why is None and known is not None and not known.has(tokenizer.pieces(ids)):
        why = f"'{question[:-2]}' is no question that I was taught"
    if why is None:
        return ids
    near = None if known is None else known.nearest(question)
    raise _refusal(tokenizer, known, why if near is None else f"{why} (did you mean '{near}')")


def known_ids(text: str, tokenizer: Tokenizer, known: QuestionGrammar | None) -> tuple[int, ...]:
    """Ids of a text such as a choice, refused where the model knows a word no more than any other unknown one."""
    ids, why = tokenizer.encode(text), _why_strange(text, tokenizer)
    if why is not None:
        raise _refusal(tokenizer, known, why)
    return ids


def _why_strange(text: str, tokenizer: Tokenizer) -> str | None:
    """Which words are unknown, or None where all are known."""
    strange = [f"'{word}'" for word in tokenizer.unknown_in(text)]
    if not strange:
        return None
    return f"{', '.join(strange)} {'is no word' if len(strange) == 1 else 'are no words'} of mine"


def _refusal(tokenizer: Tokenizer, known: QuestionGrammar | None, why: str) -> UnknownWordsError:
    if known is None:
        about, listed = "what can be said in words of mine", f"they are: {_plain_words(tokenizer)}"
    else:
        about, listed = known.about, known.in_words
    start, end = f"I only know about {about}", f"{listed}; {_ANOTHER}."
    brief = f"{start}, and {why}" + ("." if known is None else f"; ask as in: {' '.join(known.examples[:_FEW])}")
    return UnknownWordsError(f"{start}, and {why}; {end}", why=f"{why}.", known=f"{start}; {end}", brief=brief)


def _plain_words(tokenizer: Tokenizer) -> str:
    words = [word for word in tokenizer.plain if re.search(r"\S", word)]
    more = f" and {len(words) - _MOST_LISTED} more" if len(words) > _MOST_LISTED else ""
    return f"{', '.join(words[:_MOST_LISTED])}{more}"
