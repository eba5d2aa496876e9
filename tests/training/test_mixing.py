"""Tests of models between two."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from longtake.errors import InputError, SettingError
from longtake.geometry.model import GeometryModel
from longtake.weights.load import load_geometry, save_geometry
from longtake.weights.presets import TINY
from training.mixing import mix

SIZES = ((42, 28),)


def written(path: Path, seed: int, **changes: object) -> Path:
    torch.manual_seed(seed)
    save_geometry(GeometryModel(replace(TINY, **changes)).half(), path)
    return path


def test_each_weight_lies_between_and_the_sizes_are_those_of_the_later(tmp_path: Path) -> None:
    before, after = written(tmp_path / "a.safetensors", 1), written(tmp_path / "b.safetensors", 2, sizes=SIZES)
    mix(before, after, 0.75, tmp_path / "c.safetensors")
    old, new, mixed = (load_geometry(tmp_path / f"{name}.safetensors") for name in "abc")
    assert mixed.config.sizes == SIZES
    for (name, value), earlier, later in zip(
        mixed.state_dict().items(), old.state_dict().values(), new.state_dict().values(), strict=True
    ):
        assert torch.allclose(value, 0.25 * earlier + 0.75 * later, rtol=2e-3, atol=1e-4), name


@pytest.mark.parametrize(("share", "same_as"), [(0.0, "a"), (1.0, "b")])
def test_at_the_ends_are_the_two_themselves(tmp_path: Path, share: float, same_as: str) -> None:
    before, after = written(tmp_path / "a.safetensors", 1), written(tmp_path / "b.safetensors", 2)
    mix(before, after, share, tmp_path / "c.safetensors")
    end, mixed = (load_geometry(tmp_path / f"{name}.safetensors").state_dict() for name in (same_as, "c"))
    assert all(torch.equal(mixed[name], end[name]) for name in end)


def test_two_networks_and_shares_beyond_the_ends_are_refused(tmp_path: Path) -> None:
    one = written(tmp_path / "a.safetensors", 1)
    other = written(tmp_path / "b.safetensors", 1, camera=replace(TINY.camera, iterations=TINY.camera.iterations + 1))
    with pytest.raises(InputError, match="are two networks, and nothing lies between them"):
        mix(one, other, 0.5, tmp_path / "c.safetensors")
    with pytest.raises(SettingError, match="a share from 0 to 1 of the later model"):
        mix(one, one, 1.5, tmp_path / "c.safetensors")
    assert not (tmp_path / "c.safetensors").exists()
