"""Statistics of what a network knows: near for its own, far for others, and only for the weights they were made of."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from longtake.errors import CheckpointError
from longtake.hub.bundled import bundled_file
from longtake.weights.familiarity import SUFFIX, Familiarity, read_familiarity

CHANNELS = 24


def cloud(seed: int, shift: float = 0.0, num_frames: int = 400) -> torch.Tensor:
    """Descriptors that vary more in some directions than in others."""
    rng = torch.Generator().manual_seed(seed)
    spread = torch.linspace(0.1, 2.0, CHANNELS)
    return shift + torch.randn(num_frames, CHANNELS, generator=rng) * spread


def weights_in(folder: Path, content: bytes = b"weights") -> Path:
    path = folder / "model.safetensors"
    path.write_bytes(content)
    return path


def test_distance_is_about_one_for_frames_of_training_and_grows_outside() -> None:
    known = Familiarity.of([cloud(1)])
    assert float(known.distances(cloud(2)).mean()) == pytest.approx(1, abs=0.15)
    assert float(known.distances(cloud(2, shift=3.0)).mean()) > 2


def test_distance_is_that_of_the_slow_rule() -> None:
    known = Familiarity.of([cloud(1), cloud(3, shift=5.0)])
    frames = cloud(4, shift=1.0, num_frames=7)
    for frame, found in zip(frames, known.distances(frames).tolist(), strict=True):
        slow = []
        for mean, directions, variance, rest in zip(
            known.mean, known.directions, known.variance, known.rest, strict=True
        ):
            away = frame - mean
            total = (away.square().sum() - (directions @ away).square().sum()) / rest
            total += sum(((axis @ away) ** 2 / spread for axis, spread in zip(directions, variance, strict=True)))
            slow.append(float((total / CHANNELS).sqrt()))
        assert found == pytest.approx(min(slow), rel=1e-4)


def test_the_nearest_of_several_families_counts() -> None:
    both = Familiarity.of([cloud(1), cloud(3, shift=9.0)])
    assert float(both.distances(cloud(5, shift=9.0)).mean()) < 1.3
    assert float(Familiarity.of([cloud(1)]).distances(cloud(5, shift=9.0)).mean()) > 5


def test_it_comes_back_from_its_file_for_the_same_weights_alone(tmp_path: Path) -> None:
    weights = weights_in(tmp_path)
    known = replace(Familiarity.of([cloud(1)]), limit=1.25)
    path = known.save(weights)
    assert path == tmp_path / f"model{SUFFIX}"
    found = read_familiarity(weights)
    assert found is not None
    assert found.limit == 1.25
    assert torch.equal(found.distances(cloud(2)), known.distances(cloud(2)))
    weights_in(tmp_path, b"others")
    assert read_familiarity(weights) is None
    path.unlink()
    assert read_familiarity(weights) is None


def test_damaged_file_is_one_sentence(tmp_path: Path) -> None:
    weights = weights_in(tmp_path)
    path = replace(Familiarity.of([cloud(1)]), limit=1.0).save(weights)
    content = bytearray(path.read_bytes())
    content[-3] ^= 255
    path.write_bytes(bytes(content))
    with pytest.raises(CheckpointError, match="is damaged"):
        read_familiarity(weights)


def test_statistics_of_the_bundled_map_are_those_of_its_weights_and_small() -> None:
    path = bundled_file("micro-map")
    assert path is not None
    known = read_familiarity(path)
    command = "python -m benchmarks familiarity src/longtake/models/micro-map.safetensors --family house"
    assert known is not None, f"run: {command}"
    assert known.mean.shape == (1, 144)
    assert path.with_suffix(SUFFIX).stat().st_size < 30_000
