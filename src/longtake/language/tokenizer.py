"""Text to ids and back: what users write never becomes a special token, what they read never breaks a character."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longtake.errors import CheckpointError, InputError
from longtake.extras import import_from_extra

_BROKEN = "\N{REPLACEMENT CHARACTER}"
_PURPOSE = "Reading and writing a language model's words"


class Tokenizer:
    """A tokenizer, for plain text in both directions."""

    def __init__(self, tokenizer: Any) -> None:
        """From one of `tokenizers`, or one of `transformers` that is built on it; its own state is left as it is."""
        tokenizers = import_from_extra("tokenizers", "qwen", _PURPOSE)
        if not isinstance(tokenizer, tokenizers.Tokenizer):
            try:
                tokenizer = tokenizer.backend_tokenizer
            except AttributeError as error:
                raise InputError(
                    f"Expected a tokenizer of the package tokenizers or a fast one of transformers, got a "
                    f"{type(tokenizer).__name__}; pass the folder of the model instead."
                ) from error
        self._tokenizer = _for_plain_text(tokenizers, tokenizer.to_str())
        self._ids = {token.content: id_ for id_, token in self._tokenizer.get_added_tokens_decoder().items()}
        self.special_ids = frozenset(self._ids.values())
        is_of_words = isinstance(self._tokenizer.model, tokenizers.models.WordLevel)
        self._unknown_id = self._tokenizer.token_to_id(self._tokenizer.model.unk_token) if is_of_words else None

    @classmethod
    def from_folder(cls, folder: Path) -> "Tokenizer | None":
        """The tokenizer of a model's folder, or none if it has none."""
        if (path := folder / "tokenizer.json").is_file():
            return cls(_read(path))
        if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
            return cls(_build(folder))
        return None

    @property
    def size(self) -> int:
        """How many ids there are, special ones included."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def special_id(self, name: str) -> int | None:
        """The id of a special token such as `<|im_end|>`, if there is one."""
        return self._ids.get(name)

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of plain text; the name of a special token is text like any other."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"Expected text that can be written as UTF-8, got half a character at place {error.start}; remove it."
            ) from error
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, the special ones left out."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def pieces(self, ids: Sequence[int]) -> tuple[str, ...]:
        """What each id stands for by itself."""
        return tuple(str(self._tokenizer.id_to_token(id_)) for id_ in ids)

    def unknown_in(self, text: str) -> tuple[str, ...]:
        """The words, as they were written, that have no id of their own; none where any text can be spelled out."""
        if self._unknown_id is None:
            return ()
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        spans = [span for id_, span in zip(encoded.ids, encoded.offsets, strict=True) if id_ == self._unknown_id]
        return tuple(dict.fromkeys(text[start:stop] for start, stop in spans))

    @property
    def plain(self) -> tuple[str, ...]:
        """Every word that is not special, by its id."""
        ids = {id_: word for word, id_ in self._tokenizer.get_vocab(with_added_tokens=True).items()}
        return tuple(ids[id_] for id_ in sorted(ids) if id_ not in self.special_ids)


def _read(path: Path) -> Any:
    tokenizers = import_from_extra("tokenizers", "qwen", _PURPOSE)
    try:
        return tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the package raises nothing narrower
        raise _unreadable(path, error) from error


def _build(folder: Path) -> Any:
    """From the older files, which need the library to put them together."""
    transformers = import_from_extra("transformers", "qwen", _PURPOSE)
    try:
        return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # as above
        raise _unreadable(folder, error) from error


def _unreadable(path: Path, error: Exception) -> CheckpointError:
    reason = str(error).splitlines()[0].strip(" .:")
    return CheckpointError(f"Expected a tokenizer in {path}, but it cannot be read ({reason}); fetch it again.")


def _for_plain_text(tokenizers: Any, description: str) -> Any:
    """A copy where every added token counts as special, and none is looked for in text."""
    parts = json.loads(description)
    parts |= {"truncation": None, "padding": None}
    parts["added_tokens"] = [token | {"special": True} for token in parts["added_tokens"]]
    copy = tokenizers.Tokenizer.from_str(json.dumps(parts))
    copy.encode_special_tokens = True
    return copy


class TextStream:
    """Text from ids that come one by one: given out as soon as it is whole, and up to a stop text.

    ids      a   b   c   d   e
             ╰ context ╯ ╰ new ╯      decoded together and without the new ones, as some tokenizers join words by spaces
    text         given ▕ held: half a character, or what may become a stop text
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._context: list[int] = []
        self._new: list[int] = []
        self._num_given = 0
        self._held = ""
        self.stopped = False
        """Whether a stop text has come; nothing is given out from then on."""

    def add(self, token_id: int) -> str:
        """The text that this id makes whole; often a word, sometimes nothing."""
        if self.stopped or token_id in self._tokenizer.special_ids:
            return ""
        self._new.append(token_id)
        text = self._new_text()
        # up to three bytes of an unfinished character show as one sign at the very end
        unfinished = text.endswith(_BROKEN)
        piece = text[self._num_given : len(text) - unfinished]
        self._num_given += len(piece)
        if not unfinished:
            self._context, self._new, self._num_given = self._new, [], 0
        return self._give(piece)

    def finish(self) -> str:
        """What is left when no more ids come, an unfinished character included."""
        if self.stopped:
            return ""
        piece = self._new_text()[self._num_given :]
        self._context, self._new, self._num_given = [], [], 0
        text, self._held = self._give(piece) + self._held, ""
        return text

    def _new_text(self) -> str:
        before = self._tokenizer.decode(self._context)
        return self._tokenizer.decode(self._context + self._new)[len(before) :]

    def _give(self, piece: str) -> str:
        text = self._held + piece
        if found := [(text.find(stop) + len(stop), text.find(stop)) for stop in self._stop if stop in text]:
            self.stopped, self._held = True, ""
            _, start = min(found)
            return text[:start]
        held = max((_num_begun(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]


def _num_begun(text: str, stop: str) -> int:
    """How many characters at the end of the text are the beginning of a stop text."""
    return next(length for length in range(len(stop) - 1, -1, -1) if text.endswith(stop[:length]))
