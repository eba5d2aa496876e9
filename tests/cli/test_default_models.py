from collections.abc import Callable
from inspect import signature
from pathlib import Path

import pytest
import torch
from done import Done

from longtake.cli.bench_policies import bench_policies
from longtake.cli.bench_quality import bench_quality
from longtake.cli.live import live
from longtake.cli.map import map_
from longtake.errors import CheckpointError
from longtake.hub.load import RANDOM, load_model


@pytest.mark.parametrize("command", [map_, live, bench_quality, bench_policies])
def test_default_is_the_trained_model_of_the_package(command: Callable[..., None]) -> None:
    assert signature(command).parameters["model"].default == "micro-map"


@pytest.mark.extra
def test_map_without_a_model_is_that_of_micro_map(longtake: Callable[..., Done], tmp_path: Path) -> None:
    poses = {}
    for name, options in (("default", ()), ("named", ("--model", "micro-map")), ("tiny", ("--model", "tiny"))):
        done = longtake("map", "world:9?frames=6&size=56x42", "--size", "56", *options, "--out", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
        assert ("weights are random" in done.stdout) == (name == "tiny")
        poses[name] = (tmp_path / name / "poses.tum").read_bytes()
    assert poses["default"] == poses["named"] != poses["tiny"]


@pytest.mark.parametrize("name", RANDOM)
def test_random_networks_are_the_same_each_time(name: str) -> None:
    first, second = (load_model(name).state_dict() for _ in range(2))
    assert all(torch.equal(tensor, second[key]) for key, tensor in first.items())


def test_other_names_are_refused() -> None:
    with pytest.raises(CheckpointError, match=r"Expected weights at gone\.pt"):
        load_model("gone.pt")
