import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from longtake.errors import CheckpointError, InputError, SettingError
from longtake.geometry.config import CameraConfig, DenseConfig, EncoderConfig, GeometryConfig, TrunkConfig
from longtake.geometry.model import GeometryModel
from longtake.weights.load import load_geometry, save_geometry
from longtake.weights.published import published_name, rename_published

GOLDEN = Path(__file__).parent.parent / "golden" / "gct" / "weights.safetensors"


def bits(model: GeometryModel) -> dict[str, torch.Tensor]:
    return {name: tensor.view(torch.uint8) for name, tensor in model.state_dict().items()}


def assert_same_bits(left: GeometryModel, right: GeometryModel) -> None:
    ours, theirs = bits(left), bits(right)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def published_state(model: GeometryModel) -> dict[str, torch.Tensor]:
    return {str(published_name(name)): tensor.clone() for name, tensor in model.state_dict().items()}


def test_golden_weights_load_with_their_configuration(tiny_config, tiny_model) -> None:
    loaded = load_geometry(GOLDEN, tiny_config)
    assert_same_bits(loaded, tiny_model)
    assert not loaded.training
    assert not any(parameter.requires_grad for parameter in loaded.parameters())
    assert all(parameter.is_contiguous() for parameter in loaded.parameters())


def test_archive_and_safetensors_and_a_plain_load_give_the_same_bits(tiny_config, tiny_model, tmp_path: Path) -> None:
    state = published_state(tiny_model) | {"aggregator.patch_embed.mask_token": torch.zeros(1, tiny_config.width)}
    torch.save({"model": state}, tmp_path / "x.pt")
    save_file(state, tmp_path / "x.safetensors")
    plain = GeometryModel(tiny_config)
    plain.load_state_dict(rename_published(torch.load(tmp_path / "x.pt", weights_only=True)["model"]))
    for path in (tmp_path / "x.pt", tmp_path / "x.pt", tmp_path / "x.safetensors"):
        assert_same_bits(load_geometry(path, tiny_config), plain)


def test_products_of_the_trunk_are_cast_and_all_else_stays_in_float32(tiny_config, tiny_model) -> None:
    loaded = load_geometry(GOLDEN, tiny_config, trunk_dtype=torch.bfloat16)
    for name, parameter in loaded.named_parameters():
        is_product = name.startswith(("encoder.", "trunk.")) and re.search(r"qkv|proj|fc[12]", name) is not None
        want = torch.bfloat16 if is_product else torch.float32
        assert parameter.dtype == want, name
        assert torch.equal(parameter, tiny_model.get_parameter(name).to(want))


def test_model_lives_on_when_its_file_is_gone(tiny_config, tiny_model, tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save(published_state(tiny_model), path)
    loaded = load_geometry(path, tiny_config)
    path.write_bytes(bytes(path.stat().st_size))
    assert_same_bits(loaded, tiny_model)


def test_file_without_a_head_is_never_filled_with_chance(tiny_config, tiny_model, tmp_path: Path) -> None:
    state = {key: value for key, value in published_state(tiny_model).items() if not key.startswith("point_head.")}
    save_file(state, tmp_path / "x.safetensors")
    with pytest.raises(CheckpointError, match=r"62 tensors are missing \(point_head\."):
        load_geometry(tmp_path / "x.safetensors", tiny_config)
    without = replace(tiny_config, dense=replace(tiny_config.dense, points=False))
    assert load_geometry(tmp_path / "x.safetensors", without).points_head is None


def test_trunk_of_integers_has_no_meaning() -> None:
    with pytest.raises(SettingError, match="Expected a float type"):
        load_geometry(GOLDEN, trunk_dtype=torch.int8)


@pytest.mark.parametrize("trunk_dtype", [torch.float32, torch.bfloat16])
def test_saved_model_says_its_configuration_and_comes_back_bit_for_bit(
    trunk_dtype: torch.dtype, tiny_config, tmp_path: Path
) -> None:
    model = load_geometry(GOLDEN, tiny_config, trunk_dtype=trunk_dtype)
    save_geometry(model, tmp_path / "x.safetensors")
    again = load_geometry(tmp_path / "x.safetensors", trunk_dtype=trunk_dtype)
    assert again.config == tiny_config
    assert_same_bits(again, model)
    with safe_open(tmp_path / "x.safetensors", framework="pt") as file:
        assert set(file.keys()) == set(model.state_dict())
        record = json.loads(file.metadata()["longtake"])
    assert GeometryConfig.from_json(record["config"]) == tiny_config


def test_saved_model_with_a_broken_configuration_is_refused(tiny_model, tmp_path: Path) -> None:
    state = dict(tiny_model.state_dict())
    save_file(state, tmp_path / "x.safetensors", metadata={"longtake": json.dumps({"config": "{}"})})
    with pytest.raises(InputError, match="another version of longtake"):
        load_geometry(tmp_path / "x.safetensors")


MIDDLE = GeometryConfig(
    width=512,
    patch=14,
    encoder=EncoderConfig(depth=6, heads=8, registers=4, side=37),
    trunk=TrunkConfig(depth=8, heads=8, registers=4, selected=(1, 3, 5, 7)),
    camera=CameraConfig(depth=1, heads=8, iterations=4),
    dense=DenseConfig(features=64, channels=(64, 128, 256, 256)),
)
"""About 70 million parameters in encoder and trunk and 19 million in the heads."""

# Private memory is RssAnon: pages that belong to this process alone. The resident total (ru_maxrss) would not do, since
# it also counts pages of the mapped checkpoint, which the kernel shares and takes back when it likes. A thread samples
# while torch copies without the interpreter lock. The baseline comes after one tiny model was made on the meta device,
# where torch.randn imports 70 MB of modules when first called.
MEASURE = """
import json, re, sys, threading
from pathlib import Path

import torch

from longtake.geometry.config import GeometryConfig
from longtake.geometry.model import GeometryModel
from longtake.weights.load import load_geometry
from longtake.weights.presets import TINY

torch.set_num_threads(1)
STATUS = Path("/proc/self/status")


def private_bytes():
    return 1024 * int(re.search(r"RssAnon:\\s+(\\d+) kB", STATUS.read_text())[1])


def watch():
    while not done.wait(0.0005):
        samples.append(private_bytes())


path, config = Path(sys.argv[1]), GeometryConfig.from_json(sys.argv[2])
with torch.device("meta"):
    GeometryModel(TINY)
samples, done = [private_bytes()], threading.Event()
watcher = threading.Thread(target=watch)
watcher.start()
model = load_geometry(path, config, trunk_dtype=torch.bfloat16)
done.set()
watcher.join()
weights = sum(parameter.nbytes for parameter in model.parameters())
print(json.dumps({"weights": weights, "peak": max(samples) - samples[0], "after": private_bytes() - samples[0]}))
"""


@pytest.mark.extra
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="private memory is read from /proc")
@pytest.mark.parametrize("name", ["x.pt", "x.safetensors"])
def test_loading_takes_hardly_more_memory_than_the_model(name: str, tmp_path: Path) -> None:
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in GeometryModel(MIDDLE).state_dict().items()}
    state = {str(published_name(name)): torch.full(shape, 0.5) for name, shape in shapes.items()}
    if name == "x.pt":
        torch.save({"model": state}, tmp_path / name)
    else:
        save_file(state, tmp_path / name)
    del state
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path / name), MIDDLE.to_json()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    print(f"{name}: {figures}, peak {figures['peak'] / figures['weights']:.3f} of the weights")
    assert 150e6 < figures["weights"] < 300e6
    assert 0.9 * figures["weights"] < figures["after"], "the weights must be held privately, or this shows nothing"
    assert figures["peak"] <= 1.2 * figures["weights"]
