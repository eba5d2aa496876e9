import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch

from longtake.errors import CheckpointError
from longtake.hub.bundled import (
    BUNDLED,
    DEFAULT_LANGUAGE,
    DEFAULT_MODEL,
    MICRO_MAP,
    MICRO_VQA,
    RANDOM_NAMES,
    bundled_file,
    model_notes,
)
from longtake.hub.load import load_language_model, load_model
from longtake.hub.presets import PRESETS
from longtake.hub.resolve import find, resolve
from longtake.weights.checkpoint import open_checkpoint
from longtake.weights.presets import MICRO
from training.recipe import read_recipe, shipped_recipe
from training.vocabulary import Vocabulary, known
from training.vqa_model import PICTURE_FORMAT, build_vqa, save_vqa

ROOT = Path(__file__).parents[2]
LARGEST_BYTES = 12_000_000
BUILD = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"


def test_the_default_is_bundled_and_found_without_a_network(no_network: list[tuple[object, ...]]) -> None:
    assert DEFAULT_MODEL == "micro-map"
    assert resolve("micro-map") == find("micro-map") == MICRO_MAP.path
    assert DEFAULT_LANGUAGE == "micro-vqa"
    assert resolve("micro-vqa") == find("micro-vqa") == MICRO_VQA.path
    assert bundled_file("lingbot-map") is None
    assert no_network == []


def test_models_of_the_package_say_what_they_know_where_a_video_shows_something_else() -> None:
    (note,) = model_notes("micro-map", shows_world=False)
    assert note == (
        "micro-map was trained on procedural scenes and knows nothing else; for real video type --model "
        "lingbot-map-long."
    )
    assert MICRO_MAP.instead in [preset.name for preset in PRESETS]
    assert model_notes("micro-vqa", shows_world=False, naming="--language {}")[0].endswith(
        "type --language Qwen/Qwen2.5-VL-3B-Instruct."
    )
    assert model_notes("micro-map", shows_world=True) == model_notes("lingbot-map", shows_world=False) == ()
    assert "weights are random" in model_notes("tiny", shows_world=True)[0]


def test_a_name_that_is_none_is_answered_with_all_there_are() -> None:
    names = [MICRO_MAP.name, *(preset.name for preset in PRESETS), *RANDOM_NAMES]
    with pytest.raises(CheckpointError, match=f"one of the names {', '.join(names)}, or organisation"):
        load_model("foo")


def test_micro_vqa_is_loaded_without_a_network_in_float32(no_network: list[tuple[object, ...]]) -> None:
    language = load_language_model("micro-vqa")
    assert {parameter.dtype for parameter in language.model.parameters()} == {torch.float32}
    assert all(bool(parameter.isfinite().all()) for parameter in language.model.parameters())
    assert language.known == known()
    assert language.required_tokenizer.size == len(Vocabulary())
    assert language.picture_format == PICTURE_FORMAT
    assert no_network == []


def test_the_folder_of_micro_vqa_is_as_its_training_writes_it_and_small(tmp_path: Path) -> None:
    """But for the weights, and the versions of who wrote it."""
    save_vqa(build_vqa(), tmp_path)
    folder = MICRO_VQA.path.parent
    written = {file.name for file in tmp_path.iterdir()}
    assert {file.name for file in folder.iterdir()} == {*written, "model.familiarity"}  # computed after the training
    for name in ("known.json", "tokenizer.json", "preprocessor_config.json", "chat_template.jinja"):
        assert (folder / name).read_text() == (tmp_path / name).read_text()
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 10_000_000


def test_each_bundled_model_is_for_one_thing() -> None:
    with pytest.raises(CheckpointError, match="answers questions, but micro-map maps; name micro-vqa"):
        load_language_model("micro-map")
    with pytest.raises(CheckpointError, match="looks like a Qwen model"):
        load_model("micro-vqa")


def test_what_is_said_of_a_bundled_file_is_true() -> None:
    for bundled in BUNDLED:
        tensors = open_checkpoint(bundled.path).tensors.values()
        assert sum(stored.num_parameters for stored in tensors) == bundled.num_parameters
        assert sum(stored.num_bytes for stored in tensors) == bundled.num_bytes
        assert {stored.dtype for stored in tensors} == {torch.float16}
        assert bundled.path.stat().st_size <= LARGEST_BYTES


def test_micro_map_is_the_preset_of_its_name_in_float32_for_the_sizes_of_its_recipe() -> None:
    model = load_model("micro-map")
    assert model.config == MICRO
    assert model.config.sizes == tuple(dict.fromkeys(read_recipe(shipped_recipe("micro-map")).film.sizes))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())


def test_a_path_of_the_same_name_is_taken_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("micro-map", "micro-vqa"):
        Path(name).touch()
        assert resolve(name) == Path(name)
    with pytest.raises(CheckpointError, match="it is a file"):
        load_language_model("micro-vqa")


def test_missing_file_is_one_sentence_that_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtake.hub.bundled.FOLDER", tmp_path)
    with pytest.raises(CheckpointError, match=r"no .*micro-map\.safetensors; install longtake again, or name another"):
        load_model("micro-map")
    with pytest.raises(CheckpointError, match=r"no .*micro-vqa/model\.safetensors; install longtake again"):
        load_language_model("micro-vqa")


def test_wheel_holds_the_bundled_weights_as_they_are(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", BUILD, str(tmp_path)], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as files:
        for bundled in BUNDLED:
            assert files.read(f"longtake/models/{bundled.file}") == bundled.path.read_bytes()
        for file in MICRO_VQA.path.parent.iterdir():
            assert files.read(f"longtake/models/micro-vqa/{file.name}") == file.read_bytes()
