from collections.abc import Callable
from pathlib import Path

import torch

from longtake.geometry.model import GeometryModel
from longtake.hub.load import load_model
from longtake.weights.load import save_geometry


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
