from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from longtake.errors import CheckpointError
from longtake.geometry.model import GeometryModel
from longtake.hub.load import load_model, skeleton_of, told_config
from longtake.weights.load import save_geometry
from longtake.weights.presets import LINGBOT_MAP, STREAM3R, STREAMVGGT, VGGT


def test_model_is_loaded_by_name_from_the_cache(
    put_in_cache: Callable[[str, str, bytes], Path],
    tiny_model: GeometryModel,
    tmp_path: Path,
    no_network: list[tuple[object, ...]],
) -> None:
    save_geometry(tiny_model, tmp_path / "x.safetensors")
    put_in_cache("org/repo", "model.safetensors", (tmp_path / "x.safetensors").read_bytes())
    for name in ("org/repo", tmp_path / "x.safetensors"):
        model = load_model(name, trunk_dtype=torch.bfloat16)
        assert model.config == tiny_model.config
        assert model.trunk.frame_blocks[0].mlp.fc1.weight.dtype == torch.bfloat16
    assert no_network == []


def test_shapes_are_known_without_weights_or_a_download(
    cache: Path, tiny_model: GeometryModel, tmp_path: Path, no_network: list[tuple[object, ...]]
) -> None:
    save_geometry(tiny_model, tmp_path / "x.safetensors")
    for name in (tmp_path / "x.safetensors", "tiny", "micro-map"):
        skeleton, model = skeleton_of(name), load_model(name)
        assert skeleton is not None
        assert skeleton.config == model.config
        assert {name: weight.shape for name, weight in skeleton.named_parameters()} == {
            name: weight.shape for name, weight in model.named_parameters()
        }
        assert all(weight.is_meta for weight in skeleton.parameters())
    for name, config in {"stream3r": STREAM3R, "lingbot-map-long": LINGBOT_MAP}.items():
        published = skeleton_of(name)
        assert published is not None
        assert published.config == config
    assert skeleton_of("org/repo") is None
    assert no_network == []
    assert not cache.exists()


def test_name_in_front_of_a_path_tells_which_network_it_is(
    vggt_weights: Callable[[str], dict[str, torch.Tensor]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, vggt_config
) -> None:
    """With tiny networks in place of the published ones, whose files would not fit into a test."""
    monkeypatch.setattr("longtake.hub.load.BY_NAME", vggt_config)
    path = tmp_path / "checkpoints.pth"
    torch.save(vggt_weights("vggt") | {"track_head.norm.bias": torch.zeros(1)}, path)
    for name in ("vggt", "streamvggt"):
        assert load_model(f"{name}:{path}").config == vggt_config[name]
    with pytest.raises(CheckpointError, match="say which it is"):
        load_model(path)


def test_names_of_the_vggt_family_tell_their_configuration() -> None:
    assert told_config("facebook/VGGT-1B") == VGGT
    assert told_config("streamvggt") == told_config("streamvggt:x.pt") == STREAMVGGT
    assert told_config("yslan/STream3R/model.safetensors") == STREAM3R
    assert told_config("lingbot-map") is None
