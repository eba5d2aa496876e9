"""The published words of Qwen2.5 through the whole path, with a small network in the folder layout of the hub.

A random network hardly ever says a character of several tokens, so one is taught to: its last layer is fitted to what
the network knows before each token of an answer that was dictated to it. It gives that answer to that question about
that video, and to no other.
"""

import json
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from longtake.cli.main import main
from longtake.language.load import LanguageModel, load_language
from longtake.language.sampling import TextSampling
from longtake.runtime.answers import Answer, Ending
from longtake.runtime.dialogue import SYSTEM, DialogueSession
from longtake.video.source import open_source

pytestmark = pytest.mark.extra

LONGTAKE = str(Path(sys.executable).with_name("longtake"))
BROKEN = "\N{REPLACEMENT CHARACTER}"
SOURCE = "world:3?frames=6&size=84x56&fps=2"
BUDGET = 2_000_000
VOCABULARY = 151_936
NAMES = {"<|im_end|>": 151_645, "<|endoftext|>": 151_643, "<|box_start|>": 151_648, "<tool_call>": 151_657}
NO_WORD = 151_900
"""The network has more outputs than there are words."""
SIGNS, FAMILY, MARKS = "桌子上有什么。", "Who waves 👋🏽 — and under which flag?", "ใครพูด и\u0301?"
SPOKEN = {
    SIGNS: "猫在桌子上、龘𠮷。",
    FAMILY: "👩‍👩‍👧 🏳️‍🌈 👍🏽 🇳🇴",
    MARKS: "q\u0303 и\u0301 ก็ नमस्ते",
}
PREPARATION = {
    "min_pixels": 3136,
    "max_pixels": 12_845_056,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
}
CHAT = (
    "{% for turn in messages %}<|im_start|>{{ turn.role }}\n"
    "{% for part in turn.content %}"
    "{% if part.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}<|im_end|>\n{% endfor %}<|im_start|>assistant{{ '\n' }}"
)


def small_network(*, width: int, tied: bool) -> Any:
    """Random, and loud enough that all layers have a say."""
    text = {
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": 2,
        "num_attention_heads": width // 16,
        "num_key_value_heads": 1,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 128_000,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]},
        "initializer_range": 0.3,
        "bos_token_id": NAMES["<|endoftext|>"],
        "eos_token_id": NAMES["<|im_end|>"],
    }
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "out_hidden_size": width,
        "fullatt_block_indexes": [1],
        "tokens_per_second": 2,
        "window_size": 56,
    }
    config = Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=151_655,
        video_token_id=151_656,
        vision_start_token_id=151_652,
        vision_end_token_id=151_653,
        tie_word_embeddings=tied,
    )
    torch.manual_seed(0)
    model = Qwen2_5_VLForConditionalGeneration(config).eval()
    model.generation_config = transformers.GenerationConfig(
        eos_token_id=[NAMES["<|im_end|>"], NAMES["<|endoftext|>"]], pad_token_id=NAMES["<|endoftext|>"]
    )
    return model


def write_folder(model: Any, tokenizer: Path, folder: Path) -> Path:
    """As the hub has it, weights in parts."""
    model.save_pretrained(folder, max_shard_size="30MB")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer / name, folder / name)
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPARATION))
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": CHAT}))
    return folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Dictated(TextSampling):
    """Says these, whatever the network would."""

    ids: Iterator[int]

    def choose(self, logits: Tensor, generator: torch.Generator, suppressed: Sequence[int] = ()) -> int:
        return next(self.ids)


@contextmanager
def called(module: torch.nn.Module) -> Iterator[list[Tensor]]:
    """What a part of the network is given."""
    given: list[Tensor] = []
    hook = module.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    yield given
    hook.remove()


def said_ids(language: LanguageModel, question: str) -> list[int]:
    """The answer to dictate; one has tokens in it that are no text."""
    ids = list(language.required_tokenizer.encode(SPOKEN[question]))
    if question == SIGNS:
        ids[2:2] = [NAMES["<|box_start|>"], NAMES["<tool_call>"], NO_WORD]
    return [*ids, NAMES["<|im_end|>"]]


@torch.no_grad()
def teach(language: LanguageModel) -> None:
    """Fit the last layer: score 20 for the token dictated, 0 for others that are dictated elsewhere, else noise."""
    model = language.model
    session = watched(language)
    plans = {question: said_ids(language, question) for question in SPOKEN}
    with called(model.lm_head) as before:
        for question, ids in plans.items():
            session.ask(question, Dictated(ids=iter(ids)))
    session.close()
    known, said = torch.cat(before).double(), [token for ids in plans.values() for token in ids]
    assert len(known) == len(said) < known.shape[1], "more tokens than the width can tell apart"
    taught = sorted(set(said))
    wanted = torch.tensor([[20.0 if token == one else 0.0 for one in taught] for token in said], dtype=torch.float64)
    model.lm_head.weight.normal_(std=0.02)
    model.lm_head.weight[taught] = (torch.linalg.pinv(known) @ wanted).T.float()


def watched(language: LanguageModel) -> DialogueSession:
    session = DialogueSession(language, budget_bytes=BUDGET)
    for frame in open_source(SOURCE).frames():
        assert frame.image is not None
        picture = torch.from_numpy(np.ascontiguousarray(frame.image.transpose(2, 0, 1)))
        session.see(picture[None], [frame.timestamp_s])
    return session


@pytest.fixture(scope="module")
def random_folder(real_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(small_network(width=32, tied=True), real_tokenizer, tmp_path_factory.mktemp("random"))


@pytest.fixture(scope="module")
def random_language(random_folder: Path) -> LanguageModel:
    return load_language(random_folder)


@pytest.fixture(scope="module")
def taught_folder(real_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_folder(small_network(width=64, tied=False), real_tokenizer, tmp_path_factory.mktemp("taught"))
    language = load_language(folder)
    teach(language)
    return write_folder(language.model, real_tokenizer, folder)


@pytest.fixture(scope="module")
def taught_language(taught_folder: Path) -> LanguageModel:
    return load_language(taught_folder)


@pytest.fixture
def session(taught_language: LanguageModel) -> Iterator[DialogueSession]:
    session = watched(taught_language)
    yield session
    session.close()


@pytest.fixture(scope="module")
def library_words(real_tokenizer: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(real_tokenizer)


@pytest.fixture(scope="module")
def library_model(random_folder: Path) -> Any:
    """The random network without anything of ours."""
    return Qwen2_5_VLForConditionalGeneration.from_pretrained(random_folder, dtype=torch.float32).eval()


def turn(role: str, *parts: str) -> dict[str, Any]:
    """Of a conversation, in which `video` is one."""
    return {
        "role": role,
        "content": [{"type": "video"} if part == "video" else {"type": "text", "text": part} for part in parts],
    }


def prompt(library_words: Any, *turns: dict[str, Any]) -> list[int]:
    text = library_words.apply_chat_template([turn("system", SYSTEM), *turns], chat_template=CHAT, tokenize=False)
    return list(library_words.encode(text, add_special_tokens=False))


def spoken(session: DialogueSession, question: str, sampling: TextSampling | None = None) -> tuple[list[str], Answer]:
    *pieces, answer = session.ask_stream(question, sampling or TextSampling())
    assert isinstance(answer, Answer)
    assert all(isinstance(piece, str) and piece for piece in pieces)
    return pieces, answer


def test_folders_are_laid_out_as_on_the_hub(random_folder: Path, taught_folder: Path) -> None:
    files = ["config", "generation_config", "tokenizer", "tokenizer_config", "preprocessor_config", "chat_template"]
    for folder in (random_folder, taught_folder):
        assert all((folder / f"{name}.json").is_file() for name in files)
    assert (random_folder / "model.safetensors").is_file()
    index = json.loads((taught_folder / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 1


def test_facts_are_those_of_the_published_words(random_language: LanguageModel) -> None:
    assert random_language.eos_ids == (151_645, 151_643)
    assert set(random_language.suppressed_ids) == {151_644, 151_652, 151_653, 151_655, 151_656}
    assert random_language.required_tokenizer.size == 151_665 < random_language.text.vocabulary_size == VOCABULARY
    tied = random_language.model
    assert tied.lm_head.weight.data_ptr() == tied.get_input_embeddings().weight.data_ptr()


@pytest.mark.parametrize("question", SPOKEN)
def test_answer_about_words_alone_is_that_of_the_library(
    question: str, random_language: LanguageModel, library_model: Any, library_words: Any
) -> None:
    session = DialogueSession(random_language, budget_bytes=BUDGET)
    answer = session.ask(question, TextSampling(max_new_tokens=12))
    asked = torch.tensor([prompt(library_words, turn("user", question))])
    whole = library_model.generate(
        asked,
        attention_mask=torch.ones_like(asked),
        do_sample=False,
        max_new_tokens=12,
        suppress_tokens=list(random_language.suppressed_ids),
    )
    assert list(answer.ids) == whole[0, asked.shape[1] :].tolist()
    assert answer.text == library_words.decode(answer.ids, skip_special_tokens=True)
    assert len(set(answer.ids)) > 3
    assert answer.seen_until_s is None


def test_choices_and_letters_are_scored_as_by_the_library(
    random_language: LanguageModel, library_model: Any, library_words: Any
) -> None:
    choices = ["是的", "no", "👩‍👩‍👧 нет", "ก็ \U00020bb7"]
    session = DialogueSession(random_language, budget_bytes=BUDGET)

    @torch.no_grad()
    def scores(ids: list[int]) -> Tensor:
        return library_model(torch.tensor([ids])).logits[0].log_softmax(-1)

    asked = prompt(library_words, turn("user", FAMILY))
    for choice in session.ask_choice(FAMILY, choices):
        ids = library_words.encode(choice.text, add_special_tokens=False)
        found = scores([*asked, *ids])[len(asked) - 1 : -1]
        want = float(found[range(len(ids)), ids].sum())
        assert choice.sum_log_likelihood == pytest.approx(want, abs=1e-3)
        assert choice.mean_log_likelihood == pytest.approx(want / len(ids), abs=1e-3)
    lines = [FAMILY, *(f"{letter}. {choice}" for letter, choice in zip("ABCD", choices, strict=True))]
    last = scores(prompt(library_words, turn("user", "\n".join(lines))))[-1]
    forms = [[library_words.encode(form)[0] for form in (letter, f" {letter}")] for letter in "ABCD"]
    shares = torch.stack([last[ids].max() for ids in forms]).softmax(0)
    found_shares = [choice.share for choice in session.ask_letter(FAMILY, choices)]
    assert found_shares == pytest.approx(shares.tolist(), abs=1e-4)


@pytest.mark.parametrize("question", SPOKEN)
def test_characters_of_several_tokens_stream_whole(
    question: str, session: DialogueSession, taught_language: LanguageModel, library_words: Any
) -> None:
    pieces, answer = spoken(session, question)
    assert list(answer.ids) == said_ids(taught_language, question)
    assert answer.ending is Ending.STOP
    assert not any(BROKEN in piece for piece in pieces)
    text_ids = [token for token in answer.ids if token not in NAMES.values()]
    assert "".join(pieces) == answer.text == SPOKEN[question] == library_words.decode(text_ids)
    assert unicodedata.is_normalized("NFC", SPOKEN[question])
    assert 1 < len(pieces) < len(text_ids)  # some characters took several tokens
    assert sum(span.weight for span in answer.evidence) == pytest.approx(1)


@pytest.mark.parametrize(
    ("question", "stop"),
    [
        (SIGNS, ("龘",)),
        (SIGNS, ("上、龘𠮷", "no")),
        (FAMILY, ("🌈",)),
        (FAMILY, ("\N{ZERO WIDTH JOINER}👧",)),
        (FAMILY, ("\N{EMOJI MODIFIER FITZPATRICK TYPE-4}", "🇴")),
        (MARKS, ("\N{COMBINING ACUTE ACCENT}",)),
        (MARKS, ("स्ते",)),
    ],
)
def test_stop_text_within_characters_of_several_tokens_ends_the_answer(
    question: str, stop: tuple[str, ...], session: DialogueSession
) -> None:
    pieces, answer = spoken(session, question, TextSampling(stop=stop))
    assert "".join(pieces) == answer.text == SPOKEN[question].split(stop[0])[0]
    assert not any(BROKEN in piece for piece in pieces)
    assert answer.ending is Ending.STOP
    assert NAMES["<|im_end|>"] not in answer.ids


@pytest.mark.parametrize("question", SPOKEN)
def test_answer_cut_at_any_token_is_the_beginning_of_the_whole_one(question: str, session: DialogueSession) -> None:
    """Where the cut goes through a character, one sign at the very end says so."""
    for length in range(1, len(spoken(session, question)[1].ids), 4):
        pieces, answer = spoken(session, question, TextSampling(max_new_tokens=length))
        assert "".join(pieces) == answer.text
        assert answer.ending is Ending.LENGTH
        assert SPOKEN[question].startswith(answer.text.removesuffix(BROKEN))


def test_dictated_answer_is_the_likeliest_choice(session: DialogueSession) -> None:
    choices = ["是的", *SPOKEN.values()]
    for question in (FAMILY, MARKS):  # the other one has tokens in it that are no text
        scored = session.ask_choice(question, choices)
        assert max(scored, key=lambda choice: choice.mean_log_likelihood).text == SPOKEN[question]
    letters = session.ask_letter(FAMILY, choices)
    assert [choice.letter for choice in letters] == list("ABCD")
    assert sum(choice.share for choice in letters) == pytest.approx(1)


def test_what_the_network_reads_is_the_text_of_the_chat_template(
    taught_language: LanguageModel, library_words: Any
) -> None:
    """Of a clip and two questions, the first remembered with its answer; then of a second clip."""
    with called(taught_language.model.get_input_embeddings()) as read:
        session = watched(taught_language)
        assert session.ask(FAMILY, remember=True).text == SPOKEN[FAMILY]
        session.see(torch.zeros(2, 3, 56, 84, dtype=torch.uint8), [9.0, 9.5])
        session.ask(MARKS, TextSampling(max_new_tokens=1))
    conversation = [turn("user", "video", FAMILY), turn("assistant", SPOKEN[FAMILY]), turn("user", "video", MARKS)]
    pictures = library_words.convert_tokens_to_ids("<|video_pad|>")
    wanted = [token for token in prompt(library_words, *conversation) if token != pictures]
    assert torch.cat(read, dim=1)[0].tolist() == wanted


def test_resumed_dialogue_goes_on_with_what_was_remembered(
    session: DialogueSession, taught_folder: Path, tmp_path: Path
) -> None:
    session.ask(FAMILY, remember=True)
    session.save(tmp_path / "talk")
    again = DialogueSession.resume(tmp_path / "talk", load_language(taught_folder))
    assert again.info.num_tokens == session.info.num_tokens
    for question in (SIGNS, "还有呢。 🏳️‍🌈"):
        pieces, answer = spoken(session, question, TextSampling(max_new_tokens=6))
        assert spoken(again, question, TextSampling(max_new_tokens=6))[0] == pieces
        assert again.ask(question, TextSampling(max_new_tokens=6)).ids == answer.ids
    again.close()


def test_command_prints_the_words(taught_folder: Path) -> None:
    done = subprocess.run([LONGTAKE, *arguments(taught_folder)], capture_output=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode("utf-8") == "".join(f"[00:02.5] {asked} {said}\n" for asked, said in SPOKEN.items())


def test_command_prints_the_words_as_json(
    taught_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["longtake", *arguments(taught_folder), "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    answers = [event for event in events if event["event"] == "answer"]
    assert {answer["question"]: answer["text"] for answer in answers} == SPOKEN
    assert {answer["ending"] for answer in answers} == {"stop"}


def arguments(folder: Path) -> list[str]:
    return ["ask", SOURCE, *SPOKEN, "--model", str(folder), "--memory", "2MB", "--device", "cpu"]
