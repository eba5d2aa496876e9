import json
from collections.abc import Callable
from inspect import signature
from pathlib import Path

import pytest
import torch
from done import Done
from PIL import Image

from longtake.cli.bench_policies import bench_policies
from longtake.cli.bench_quality import bench_quality
from longtake.cli.live import live
from longtake.errors import CheckpointError
from longtake.hub.load import RANDOM, load_model


@pytest.mark.parametrize("command", [live, bench_quality, bench_policies])
def test_default_is_the_trained_model_of_the_package(command: Callable[..., None]) -> None:
    assert signature(command).parameters["model"].default == "micro-map"


@pytest.mark.parametrize(("command", "model"), [("map", "micro-map"), ("ask", "micro-vqa")])
def test_commands_that_may_leave_it_to_a_server_have_the_same_default_here(
    longtake: Callable[..., Done], command: str, model: str
) -> None:
    said = " ".join(longtake(command, "--help").stdout.replace("│", " ").split())
    assert f"[default: ({model})]" in said


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


@pytest.mark.extra
def test_model_of_our_own_worlds_says_so_wherever_a_result_of_something_else_is_seen(
    longtake: Callable[..., Done], tmp_path: Path
) -> None:
    (tmp_path / "pictures").mkdir()
    Image.new("RGB", (56, 42)).save(tmp_path / "pictures" / "0.png")
    out = tmp_path / "out"
    options = ["--size", "56", "--format", "tum", "--out", str(out)]
    note = "micro-map was trained on procedural scenes and knows nothing else; for real video type --model lingbot-map"
    done = longtake("map", str(tmp_path / "pictures"), *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(note) == 1
    assert "\nmicro-map, fp32 on cpu, attention by sdpa, loops are closed\n" in done.stdout
    summary, page = json.loads((out / "summary.json").read_text()), (out / "report.html").read_text()
    assert summary["model"] == "micro-map"
    assert summary["notes"][0].startswith(note)
    assert f'<p class="note">{note}' in page
    assert "complete, but mind the note" in page
    assert "Depth and poses by micro-map of 56x42 pixels" in page
    world = longtake("map", "world:9?frames=1&size=56x42", *options, "--overwrite")
    assert "procedural" not in world.stdout + (out / "report.html").read_text() + (out / "summary.json").read_text()


def test_help_of_map_says_what_the_default_knows_and_what_to_type(longtake: Callable[..., Done]) -> None:
    said = " ".join(longtake("map", "--help").stdout.replace("│", " ").split())
    assert "micro-map knows procedural scenes only; for real video type --model lingbot-map-long." in said
