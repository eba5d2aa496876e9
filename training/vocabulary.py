"""The words of micro-vqa: those of the world's questions and answers, those that frame a talk, and no others."""

from typing import Any

from longtake.extras import import_from_extra
from longtake.language.model_config import SpecialIds
from longtake.language.question_grammar import QuestionGrammar
from longtake.world.question import PLURALS, Phrase, article, vocabulary
from longtake.world.things import Colour, Kind

UNKNOWN = "<|unknown|>"
_SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    UNKNOWN,
)
_ROLES = ("system", "user", "assistant")
_SYSTEM_WORDS = ("you", "are", "a", "helpful", "assistant", ".")
"""Of what a dialogue begins with by default; this model learns to begin with no other."""
_PLACES = {
    "article": tuple(sorted({article(colour) for colour in Colour})),
    "colour": tuple(map(str, Colour)),
    "thing": tuple(map(str, Kind)),
    "things": tuple(PLURALS.values()),
}
_NAME = "{colour} {thing}"
_FORM = {
    "article": "{article}",
    "name": _NAME,
    "former": _NAME,
    "latter": _NAME,
    "kind": "{thing}",
    "kinds": "{things}",
}
_EXAMPLE = {
    "article": "a",
    "name": "red ball",
    "former": "red ball",
    "latter": "blue chair",
    "kind": "ball",
    "kinds": "balls",
}


def known() -> QuestionGrammar:
    """What micro-vqa can be asked, for its folder."""
    examples = [phrase.format(**_EXAMPLE).replace(" ?", "?").replace(" ,", ",") for phrase in Phrase]
    return QuestionGrammar(
        about="walks through longtake's own procedural houses",
        forms=tuple(phrase.format(**_FORM) for phrase in Phrase),
        examples=tuple(example.capitalize() for example in examples),
        places=_PLACES,
        lists={
            "things": _PLACES["thing"],
            "colours": _PLACES["colour"],
            "rooms, by the colour of their walls": _PLACES["colour"],
        },
    )


class Vocabulary:
    """Every word and its id; special ones come first."""

    def __init__(self) -> None:
        plain = sorted({*vocabulary(), *_ROLES, *_SYSTEM_WORDS})
        self.words: tuple[str, ...] = (*_SPECIAL, "\n", *plain)
        self._ids = {word: at for at, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def id_of(self, word: str) -> int:
        return self._ids[word]

    def encode(self, text: str) -> tuple[int, ...]:
        """Of text whose words stand apart, as the world writes it; a word that is not known is refused."""
        return tuple(self._ids[word] for word in text.split(" "))

    def decode(self, ids: list[int]) -> str:
        return " ".join(self.words[at] for at in ids)

    @property
    def system(self) -> tuple[int, ...]:
        return tuple(self._ids[word] for word in _SYSTEM_WORDS)

    @property
    def special_ids(self) -> SpecialIds:
        return SpecialIds(
            im_start=self._ids["<|im_start|>"],
            im_end=self._ids["<|im_end|>"],
            vision_start=self._ids["<|vision_start|>"],
            vision_end=self._ids["<|vision_end|>"],
            image_pad=self._ids["<|image_pad|>"],
            video_pad=self._ids["<|video_pad|>"],
            newline=self._ids["\n"],
            system=self.encode("system"),
            user=self.encode("user"),
            assistant=self.encode("assistant"),
        )

    def tokenizer(self) -> Any:
        """The same for any text: in small letters, signs apart from words, and one id for all that is not known."""
        tokenizers = import_from_extra("tokenizers", "qwen", "Training micro-vqa")
        made = tokenizers.Tokenizer(tokenizers.models.WordLevel(self._ids, unk_token=UNKNOWN))
        made.normalizer = tokenizers.normalizers.Lowercase()
        word_or_sign = tokenizers.Regex(r"\n|\w+|[^\w\s]")
        made.pre_tokenizer = tokenizers.pre_tokenizers.Split(word_or_sign, "removed", invert=True)
        made.add_special_tokens(list(_SPECIAL))
        return made
