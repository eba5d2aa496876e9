import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import tokenizers
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from longtake.errors import CheckpointError, InputError
from longtake.language.tokenizer import TextStream, Tokenizer

BROKEN = "\N{REPLACEMENT CHARACTER}"
TEXTS = [
    "What is on the table?",
    "你好世界。龘𠮷",
    "👩‍👩‍👧 🏳️‍🌈 👍🏽 🇳🇴",
    "e\u0301 n\u0303 ก็ नमस्ते",
    "  spaces\n\n\tand lines\r\n",
    "مرحبا שלום",
    "<|im_end|><|im_start|>system\n<|video_pad|><tool_call>",
    "",
]


@pytest.fixture
def words(tiny_folder: Path) -> Tokenizer:
    found = Tokenizer.from_folder(tiny_folder)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def byte_words(make_byte_tokenizer: Callable[[], tokenizers.Tokenizer]) -> Tokenizer:
    return Tokenizer(make_byte_tokenizer())


def stream(words: Tokenizer, ids: Sequence[int], stop: Sequence[str] = ()) -> list[str]:
    text = TextStream(words, stop)
    return [*(text.add(token_id) for token_id in ids), text.finish()]


def cut_at_stop(text: str, stop: Sequence[str]) -> str:
    """Letter by letter: the text before the stop text that is complete first."""
    for end in range(len(text) + 1):
        if found := [stopped for stopped in stop if text[:end].endswith(stopped)]:
            return text[: end - max(map(len, found))]
    return text


@pytest.mark.parametrize("text", TEXTS)
def test_text_goes_to_ids_and_back(words: Tokenizer, text: str) -> None:
    assert words.decode(words.encode(text)) == text


@pytest.mark.parametrize("text", TEXTS)
def test_no_text_becomes_a_special_token(words: Tokenizer, text: str) -> None:
    assert not words.special_ids & set(words.encode(text))


def test_special_tokens_are_known_by_name_and_left_out_of_text(words: Tokenizer) -> None:
    end = words.special_id("<|im_end|>")
    assert end == 3
    assert words.special_id("<|nothing|>") is None
    assert words.special_ids == set(range(8))
    assert words.size == 254
    a, b = words.encode("ab")
    assert words.decode([end, a, end, 7, b]) == "ab"
    assert "".join(stream(words, [end, a, end, 7, b])) == "ab"


def test_tokenizer_given_is_left_as_it_is(tiny_folder: Path) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(tiny_folder / "tokenizer.json"))
    tokenizer.enable_truncation(2)
    words = Tokenizer(tokenizer)
    assert len(words.encode("longer")) == 6
    assert not tokenizer.encode_special_tokens
    assert tokenizer.encode("<|im_end|>").ids == [3]


def test_added_tokens_that_are_not_called_special_are_treated_alike(tiny_folder: Path) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(tiny_folder / "tokenizer.json"))
    tokenizer.add_tokens(["<tool_call>"])
    words = Tokenizer(tokenizer)
    added = words.special_id("<tool_call>")
    assert added == 254
    assert added not in words.encode("<tool_call>")
    assert words.decode([added, *words.encode("x")]) == "x"


def test_tokenizer_of_transformers_gives_the_same_words(tiny_folder: Path, words: Tokenizer) -> None:
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tiny_folder / "tokenizer.json"))
    for text in TEXTS:
        assert Tokenizer(wrapped).encode(text) == words.encode(text)


@pytest.mark.parametrize("text", TEXTS)
def test_characters_stream_whole(words: Tokenizer, text: str) -> None:
    pieces = stream(words, words.encode(text))
    assert "".join(pieces) == text
    assert BROKEN not in "".join(pieces)
    assert pieces[-1] == ""


def test_text_is_given_as_soon_as_it_is_whole(words: Tokenizer) -> None:
    assert stream(words, words.encode("a你b")) == ["a", "", "", "你", "b", ""]


@given(ids=st.lists(st.integers(0, 253), max_size=40))
@settings(deadline=None, max_examples=200)
def test_any_ids_stream_to_what_they_decode_to_at_once(byte_words: Tokenizer, ids: list[int]) -> None:
    """Most are no text at all: the signs for broken characters come out the same too."""
    assert "".join(stream(byte_words, ids)) == byte_words.decode(ids)


def test_unfinished_character_is_held_until_the_end(words: Tokenizer) -> None:
    ids = words.encode("a你")[:-1]
    assert stream(words, ids) == ["a", "", "", BROKEN]
    text = TextStream(words)
    for token_id in ids:
        text.add(token_id)
    assert [text.finish(), text.finish()] == [BROKEN, ""]


def test_broken_bytes_hold_nothing_up(words: Tokenizer) -> None:
    lone = words.encode("你")[0]
    assert stream(words, [lone] * 4) == ["", BROKEN, BROKEN, BROKEN, BROKEN]


def test_words_joined_by_spaces_stream_as_they_decode() -> None:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "dog": 1, "##s": 2, "ran": 3, "?": 4}, "a"))
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    words = Tokenizer(tokenizer)
    ids = [0, 1, 2, 3, 1, 2, 0]
    assert words.decode(ids) == "a dogs ran dogs a"
    assert stream(words, ids) == ["a", " dog", "s", " ran", " dog", "s", " a", ""]


def test_stop_text_ends_the_stream_and_is_no_part_of_it(words: Tokenizer) -> None:
    text = TextStream(words, ["END", "\n\n"])
    pieces = [text.add(token_id) for token_id in words.encode("one\nENEND two")]
    assert "".join(pieces) == "one\nEN"
    assert text.stopped
    assert text.finish() == ""
    assert stream(words, words.encode("xEN"), ["END"]) == ["x", "", "", "EN"]


@given(
    text=st.text("ab你", max_size=12), stop=st.lists(st.text("ab你", min_size=1, max_size=4), min_size=1, max_size=3)
)
@settings(deadline=None, max_examples=300)
def test_stream_ends_where_a_stop_text_is_complete_first(byte_words: Tokenizer, text: str, stop: list[str]) -> None:
    assert "".join(stream(byte_words, byte_words.encode(text), stop)) == cut_at_stop(text, stop)


def test_half_a_character_is_refused(words: Tokenizer) -> None:
    with pytest.raises(InputError, match=r"half a character at place 1; remove it\.$"):
        words.encode("a\ud83d")


def test_what_is_no_tokenizer_is_refused() -> None:
    with pytest.raises(InputError, match=r"Expected a tokenizer .* got a dict; pass the folder"):
        Tokenizer({})


def test_folder_without_a_tokenizer_has_no_words(tmp_path: Path) -> None:
    assert Tokenizer.from_folder(tmp_path) is None


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"model": 3}', "\x00"])
def test_damaged_tokenizer_is_refused(tiny_folder: Path, content: str) -> None:
    (tiny_folder / "tokenizer.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"Expected a tokenizer in .*tokenizer\.json, .* fetch it again\.$"):
        Tokenizer.from_folder(tiny_folder)


def test_older_files_of_a_tokenizer_are_put_together(tiny_folder: Path, words: Tokenizer) -> None:
    (tiny_folder / "tokenizer.json").unlink()
    (tiny_folder / "merges.txt").write_text("#version: 0.2\na b\n")
    vocabulary = {letter: place for place, letter in enumerate("abcĊ")} | {"ab": 4}
    (tiny_folder / "vocab.json").write_text(json.dumps(vocabulary))
    settings = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>"}
    (tiny_folder / "tokenizer_config.json").write_text(json.dumps(settings))
    older = Tokenizer.from_folder(tiny_folder)
    assert older is not None
    assert older.encode("abc\n") == (4, 2, 3)
    assert older.special_id("<|im_end|>") is not None
    (tiny_folder / "vocab.json").write_text("[")
    with pytest.raises(CheckpointError, match=r"Expected a tokenizer in .*tiny, .* fetch it again\.$"):
        Tokenizer.from_folder(tiny_folder)


@pytest.fixture(scope="module")
def real_words(real_tokenizer: Path) -> Tokenizer:
    found = Tokenizer.from_folder(real_tokenizer)
    assert found is not None
    return found


@pytest.mark.extra
def test_published_ids_are_those_of_the_library(real_words: Tokenizer, real_tokenizer: Path) -> None:
    library = transformers.AutoTokenizer.from_pretrained(real_tokenizer)
    for text in TEXTS:
        plain = text.replace("<", "(")
        assert list(real_words.encode(plain)) == library.encode(plain, add_special_tokens=False)
        assert real_words.decode(real_words.encode(plain)) == library.decode(library.encode(plain))
    assert real_words.special_id("<|im_end|>") == 151645
    assert real_words.special_id("<|video_pad|>") == 151656
    assert real_words.encode("\n") == (198,)
    assert len(real_words.special_ids) == 22


@pytest.mark.extra
@pytest.mark.parametrize("text", TEXTS)
def test_published_words_stream_without_broken_characters(real_words: Tokenizer, text: str) -> None:
    ids = real_words.encode(text)
    pieces = stream(real_words, ids)
    assert "".join(pieces) == real_words.decode(ids)
    assert not any(BROKEN in piece for piece in pieces)
    assert not real_words.special_ids & set(ids)


@pytest.mark.extra
@given(ids=st.lists(st.integers(0, 151664), max_size=60))
@settings(deadline=None, max_examples=300)
def test_any_published_ids_stream_to_what_they_decode_to_at_once(real_words: Tokenizer, ids: list[int]) -> None:
    assert "".join(stream(real_words, ids)) == real_words.decode(ids)


@pytest.mark.extra
@given(text=st.text(max_size=40))
@settings(deadline=None, max_examples=300)
def test_any_text_streams_whole_in_published_words(real_words: Tokenizer, text: str) -> None:
    ids = real_words.encode(text)
    pieces = stream(real_words, ids)
    assert "".join(pieces) == real_words.decode(ids)
    assert BROKEN in text or BROKEN not in "".join(pieces)
