import json
import socket
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import huggingface_hub
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from longtake.errors import CheckpointError, LongtakeError, MissingExtraError
from longtake.language.load import load_language
from longtake.language.model_config import SpecialIds, TextConfig

GOLDEN = Path(__file__).parents[1] / "golden" / "vlm"
REVISION = "0123456789abcdef0123456789abcdef01234567"


def edit(path: Path, **changes: Any) -> None:
    """Set or, with None, remove settings of a file; two underscores lead into a part."""
    content = json.loads(path.read_text()) if path.exists() else {}
    for key, value in changes.items():
        *way, last = key.split("__")
        part = content
        for name in way:
            part = part[name]
        if value is None:
            del part[last]
        else:
            part[last] = value
    path.write_text(json.dumps(content))


@pytest.fixture
def cache(tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache with the tiny model in it as org/tiny; its folder is returned."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    repository = tmp_path / "hub" / "models--org--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(REVISION)
    (repository / "snapshots").mkdir()
    return tiny_folder.rename(repository / "snapshots" / REVISION)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every attempt to reach a machine fails and is noted here."""
    attempts: list[object] = []

    def refuse(*arguments: object, **_: object) -> NoReturn:
        attempts.append(arguments)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    return attempts


def test_facts_are_those_of_the_files(tiny_folder: Path, vlm_special: SpecialIds) -> None:
    language = load_language(tiny_folder)
    assert language.text == TextConfig(
        num_layers=4,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        vocabulary_size=256,
        max_positions=32768,
        rope_theta=1e6,
        mrope_section=(2, 3, 3),
        tokens_per_second=2.0,
    )
    shape = language.picture_format
    assert (shape.patch, shape.merge, shape.temporal_patch) == (14, 2, 2)
    assert (shape.min_pixels, shape.max_pixels) == (100_352, 602_112)
    assert language.special_ids == vlm_special
    assert language.tokens_per_second == 2.0
    assert language.eos_ids == (3,)
    assert language.suppressed_ids == (2, 4, 5, 6, 7)


def test_network_is_the_golden_one_and_holds_no_gradients(
    tiny_folder: Path, vlm_case: Callable[[str], dict[str, Tensor]], vlm_index: dict[str, Any]
) -> None:
    model = load_language(str(tiny_folder)).model
    assert not model.training
    assert not any(weight.requires_grad for weight in model.parameters())
    case = vlm_case("text_only")
    ids, positions = case["input_ids"].long()[None], case["position_ids"].long()[:, None]
    logits = model(input_ids=ids, position_ids=positions).logits[0]
    assert vlm_index["text_only"]["every_fourth_column"] == ["logits"]
    torch.testing.assert_close(logits[:, ::4], case["logits"], atol=1e-4, rtol=0)


def test_number_type_is_float32_on_the_cpu_unless_another_is_asked_for(tiny_folder: Path) -> None:
    edit(tiny_folder / "config.json", dtype="bfloat16")
    assert load_language(tiny_folder).model.dtype == torch.float32
    assert load_language(tiny_folder, dtype=torch.bfloat16).model.dtype == torch.bfloat16


def test_loading_prints_nothing_and_leaves_the_library_as_talkative_as_it_was(
    tiny_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = transformers.utils.logging
    before = (output.get_verbosity(), output.is_progress_bar_enabled())
    load_language(tiny_folder)
    assert capfd.readouterr() == ("", "")
    assert (output.get_verbosity(), output.is_progress_bar_enabled()) == before


def test_model_without_a_tokenizer_says_so_when_words_are_needed() -> None:
    language = load_language(GOLDEN)
    assert language.tokenizer is None
    assert language.special is None
    assert language.suppressed_ids == (4, 5, 6, 7)
    for ask in (lambda: language.required_tokenizer, lambda: language.special_ids):
        with pytest.raises(CheckpointError, match=r"Expected a tokenizer\.json, .* in .*vlm, but there is none; fetch"):
            ask()


def test_settings_in_the_layout_of_the_published_files_are_read(tiny_folder: Path) -> None:
    """Numbers of the text at the top, rotary ones apart, as releases before version 5 wrote them."""
    path = tiny_folder / "config.json"
    stated = json.loads(path.read_text())
    text = stated.pop("text_config")
    rope = text.pop("rope_parameters")
    text.pop("model_type")
    old = {"rope_theta": rope["rope_theta"], "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}
    expected = load_language(GOLDEN).text
    path.write_text(json.dumps(stated | text | old))
    assert load_language(tiny_folder).text == expected


@pytest.mark.parametrize(
    ("file", "stated", "limits"),
    [
        ("preprocessor_config.json", {"min_pixels": 3136, "max_pixels": 12_845_056}, (3136, 12_845_056)),
        ("preprocessor_config.json", {"size": {"shortest_edge": 4000, "longest_edge": 50_000}}, (4000, 50_000)),
        ("preprocessor_config.json", {"max_pixels": 200_000}, (100_352, 200_000)),
        ("video_preprocessor_config.json", {"min_pixels": 1000, "max_pixels": 2000}, (1000, 2000)),
        ("processor_config.json", {"video_processor": {"min_pixels": 1, "max_pixels": 900}}, (1, 900)),
        ("processor_config.json", {"image_processor": {"min_pixels": 1, "max_pixels": 900}}, (3136, 4000)),
    ],
)
def test_limits_of_a_frame_come_from_the_file_that_prepares_it(
    tiny_folder: Path, file: str, stated: dict[str, Any], limits: tuple[int, int]
) -> None:
    edit(tiny_folder / "preprocessor_config.json", min_pixels=3136, max_pixels=4000)
    (tiny_folder / file).write_text(json.dumps(stated))
    found = load_language(tiny_folder).picture_format
    assert (found.min_pixels, found.max_pixels) == limits


def test_colours_come_from_the_file_that_prepares_frames(tiny_folder: Path) -> None:
    edit(tiny_folder / "preprocessor_config.json", image_mean=[0.5, 0.5, 0.5], image_std=[0.25, 0.25, 0.25])
    found = load_language(tiny_folder).picture_format
    assert (found.mean, found.std) == ((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))


def test_answers_end_at_any_id_of_the_generation_settings(tiny_folder: Path) -> None:
    edit(tiny_folder / "generation_config.json", eos_token_id=[3, 0])
    assert load_language(tiny_folder).eos_ids == (3, 0)
    edit(tiny_folder / "generation_config.json", eos_token_id=None)
    assert load_language(tiny_folder).eos_ids == (3,)
    (tiny_folder / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match="Expected eos_token_id in"):
        load_language(tiny_folder)


def test_model_is_loaded_by_name_from_the_cache(cache: Path, no_network: list[object]) -> None:
    language = load_language("org/tiny")
    assert language.text.num_layers == 4
    assert language.tokenizer is not None
    assert no_network == []


@pytest.mark.parametrize("name", ["org/tiny", "org/other"])
def test_name_out_of_reach_says_so_in_a_sentence(cache: Path, no_network: list[object], name: str) -> None:
    """One is not in the cache at all, the other without its weights."""
    (cache / "model.safetensors").unlink()
    (cache / "model.safetensors.index.json").write_text('{"weight_map": {"a": "a.safetensors"}}')
    with pytest.raises(CheckpointError, match=rf"^{name} is neither a folder here .* pass the folder\.$"):
        load_language(name)
    assert no_network != []


@pytest.mark.parametrize("vision", [True, False])
def test_another_kind_of_model_is_refused_before_its_weights_are_fetched(
    cache: Path, monkeypatch: pytest.MonkeyPatch, vision: bool
) -> None:
    config = cache / "other.json"
    config.write_text(json.dumps({"model_type": "llama"} | ({"vision_config": {}} if vision else {})))
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", lambda url: None)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda repo, file, revision: str(config))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("weights were fetched"))
    reason = r"its config\.json says llama" if vision else r"text-only model \(llama\)"
    with pytest.raises(CheckpointError, match=f"Expected a Qwen2.5-VL model in org/other, but .*{reason}"):
        load_language("org/other")


def test_name_is_fetched_where_the_hub_can_be_reached(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", lambda url: None)
    revisions = []
    monkeypatch.setattr(
        huggingface_hub,
        "hf_hub_download",
        lambda repo, file, revision: revisions.append((repo, revision)) or str(cache / file),  # type: ignore[func-returns-value]
    )
    asked_for: dict[str, Any] = {}

    def fetched(repo: str, **options: Any) -> str:
        asked_for.update(options)
        return str(cache)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetched)
    assert load_language("org/other").text.num_layers == 4
    assert asked_for["revision"] == cache.name, "the commit of the configuration that was looked at"
    load_language("org/other@1a2b")
    assert revisions == [("org/other", None), ("org/other", "1a2b")]
    assert not any(".pt" in pattern or ".bin" in pattern or pattern == "*" for pattern in asked_for["allow_patterns"])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "sets quantization_config; remove it, or give"),
        ({"quantization_config": 7}, "sets quantization_config"),
        ({"attn_implementation": "flash_attention_2"}, "sets attn_implementation"),
        ({"_attn_implementation": "kernels-community/flash-attn"}, "sets _attn_implementation"),
        ({"num_hidden_layers": 100_000}, "1 to 1000 layers as num_hidden_layers .* but got 100000"),
        ({"num_hidden_layers": int("9" * 400)}, "1 to 1000 layers"),
        ({"text_config": 7}, "Expected settings by name"),
    ],
)
def test_settings_that_change_how_a_model_is_computed_are_refused_at_the_door(
    tiny_folder: Path, change: dict[str, Any], sentence: str
) -> None:
    edit(tiny_folder / "config.json", **change)
    with pytest.raises(CheckpointError, match=sentence) as error:
        load_language(tiny_folder)
    assert "\n" not in str(error.value)


def test_deep_json_is_one_sentence(tiny_folder: Path) -> None:
    (tiny_folder / "config.json").write_text("[" * 100_000)
    with pytest.raises(CheckpointError, match="Expected settings as JSON"):
        load_language(tiny_folder)


@pytest.mark.parametrize("name", ["n" * 5000, "~nobody-of-this-name/model"])
def test_a_name_that_can_be_no_path_is_one_sentence(name: str) -> None:
    with pytest.raises(CheckpointError, match="Expected the folder of a model, but"):
        load_language(name)


def without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def with_index(content: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "a.safetensors")
        (folder / "model.safetensors.index.json").write_text(content)

    return apply


def with_half_a_file(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def with_changed_weights(change: Callable[[dict[str, Tensor]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    return apply


def with_settings(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: edit(folder / "config.json", **changes)


def with_file(name: str, content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without_weights, r"cannot be read \(.*no file named model\.safetensors"),
        (with_index("{}"), "cannot be read .*weight_map"),
        (with_index("[]"), "cannot be read"),
        (with_index("{"), "cannot be read"),
        (with_index('{"metadata": {}, "weight_map": {"x": "b.safetensors"}}'), r"cannot be read .*b\.safetensors"),
        (with_half_a_file, "cannot be read .*; fetch its files again"),
        (with_changed_weights(lambda weights: weights.pop("lm_head.weight")), r"but lm_head\.weight is missing"),
        (
            with_changed_weights(lambda weights: weights.update({"lm_head.weight": torch.zeros(3, 64)})),
            r"but lm_head\.weight is missing or of another shape",
        ),
        (with_changed_weights(dict.clear), r"and \d+ more is missing"),
        (with_file("config.json", "{"), r"Expected settings as JSON in .*config\.json"),
        (with_file("config.json", "[]"), r"Expected settings by name in .*config\.json, but a list"),
        (with_file("config.json", "{}"), r"its config\.json says nothing of its kind"),
        (with_settings(model_type="qwen3_vl"), r"its config\.json says qwen3_vl"),
        (with_settings(model_type="qwen2", vision_config=None), r"text-only model \(qwen2\), which sees no frames"),
        (with_settings(text_config__hidden_size="wide"), "cannot be read .*hidden_size"),
        (with_settings(vision_config__tokens_per_second=None), "Expected tokens_per_second in .* not stated"),
        (with_settings(text_config__rope_parameters__rope_theta=None), "Expected rope_theta in .* not stated"),
        (with_settings(text_config__rope_parameters__mrope_section=None), "Expected mrope_section in .* not stated"),
        (
            with_settings(text_config__rope_parameters__mrope_section=[2, 3, 4]),
            r"three numbers that sum to 8.*\[2, 3, 4\]",
        ),
        (with_settings(video_token_id=8), r"has <\|video_pad\|> at 7, config\.json at 8; take both"),
        (with_file("tokenizer.json", "{}"), r"Expected a tokenizer in .*tokenizer\.json"),
        (with_file("preprocessor_config.json", '{"max_pixels": 5}'), r"preprocessor_config\.json cannot be used"),
        (
            with_file("preprocessor_config.json", '{"max_pixels": "big"}'),
            r"preprocessor_config\.json cannot be used \(expected a whole number as 'max_pixels', but got 'big'\)",
        ),
        (with_file("preprocessor_config.json", '{"size": 7}'), r"Expected settings by name in .* but a int is there"),
        (with_file("processor_config.json", '{"video_processor": 7}'), r"Expected settings by name in .* but a int"),
        (with_file("preprocessor_config.json", '{"image_std": null}'), r"a list of 3 as 'std', but got None"),
        (with_file("preprocessor_config.json", '{"image_std": 0.5}'), r"a list of 3 as 'std', but got 0\.5"),
        (with_file("preprocessor_config.json", '{"image_mean": "x"}'), r"a list of 3 as 'mean', but got 'x'"),
        (with_file("preprocessor_config.json", '{"image_mean": [0.5, 0.5]}'), r"a list of 3 as 'mean'"),
        (with_file("preprocessor_config.json", '{"image_mean": [0.5, 0.5, []]}'), r"a number as 'mean\[2\]'"),
        (with_file("preprocessor_config.json", '{"image_mean": [0.5, 0.5, NaN]}'), r"a number as 'mean\[2\]'"),
        (with_file("preprocessor_config.json", '{"image_std": [0, 0, 0]}'), r"a spread greater than 0, but got"),
        (with_file("preprocessor_config.json", '{"image_mean": [1e999, 0, 0]}'), r"Expected finite colours"),
        (with_settings(text_config__rope_parameters__mrope_section=8), r"config\.json cannot be (read|used)"),
        (with_settings(text_config__rope_parameters__mrope_section=[2, "3", 3]), r"config\.json cannot be used"),
        (with_settings(text_config__rope_parameters__mrope_section=[2, [3], 3]), r"config\.json cannot be used"),
        (with_settings(text_config__rope_parameters__mrope_section=[2, {}, 3]), r"config\.json cannot be used"),
        (with_settings(text_config__rope_parameters__rope_theta=float("inf")), r"greater than 0 and finite"),
        (with_settings(vision_config__window_size=10**18), r"a window_size from 28 to 4096 in .* but got 10000000"),
        (with_settings(vision_config__window_size=0), r"a window_size from 28 to 4096 in .* but got 0"),
        (with_file("preprocessor_config.json", "?"), r"Expected settings as JSON in .*preprocessor_config\.json"),
    ],
)
def test_damaged_folder_is_refused_in_a_sentence(
    tiny_folder: Path, damage: Callable[[Path], object], message: str
) -> None:
    damage(tiny_folder)
    with pytest.raises(LongtakeError, match=message) as caught:
        load_language(tiny_folder)
    assert isinstance(caught.value, CheckpointError)
    assert "\n" not in str(caught.value)


def test_tokenizer_of_another_family_is_refused(tiny_folder: Path) -> None:
    path = tiny_folder / "tokenizer.json"
    parts = json.loads(path.read_text())
    parts["added_tokens"] = [token for token in parts["added_tokens"] if token["content"] != "<|im_start|>"]
    path.write_text(json.dumps(parts))
    with pytest.raises(CheckpointError, match=r"has no <\|im_start\|>; take both"):
        load_language(tiny_folder)
    del parts["model"]["vocab"]["Ċ"]
    parts["added_tokens"] = json.loads(path.read_text())["added_tokens"] + [
        parts["added_tokens"][0] | {"id": 2, "content": "<|im_start|>"}
    ]
    path.write_text(json.dumps(parts))
    with pytest.raises(CheckpointError, match="one id for a new line, got 0"):
        load_language(tiny_folder)


@pytest.mark.parametrize("stated", ["x", [], ["7"], -1, {"a": 1}])
def test_end_of_an_answer_that_is_no_id_is_refused(tiny_folder: Path, stated: object) -> None:
    edit(tiny_folder / "generation_config.json", eos_token_id=stated)
    with pytest.raises(CheckpointError, match=r"generation_config\.json"):
        load_language(tiny_folder)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere/at/all", "Expected the folder of a model at nowhere/at/all, but nothing is there; check the path"),
        (Path("no/folder"), "Expected the folder of a model at no/folder, but nothing is there"),
        ("foo", "at foo, but nothing is there; check the path, or give micro-vqa, which comes with longtake, or"),
        (str(GOLDEN / "cases"), r"there is no config\.json in it"),
        (GOLDEN / "config.json", "it is a file; give the folder"),
    ],
)
def test_what_is_no_model_is_refused(name: Path | str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        load_language(name)


def test_missing_or_old_package_says_what_to_install(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("transformers"), "__version__", "4.57.3")
    with pytest.raises(MissingExtraError, match=r"needs transformers 5\.17 or newer, but 4\.57\.3 is installed; run"):
        load_language(tiny_folder)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r'needs transformers, .* run: pip install "longtake\[qwen\]"'):
        load_language(tiny_folder)
