"""`longtake models` as a user meets it, in a process of its own, without a network."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from done import Done
from safetensors.torch import save_file

from longtake.geometry.model import GeometryModel
from longtake.weights.load import save_geometry
from longtake.weights.presets import TINY

REVISION = "0" * 40


def online(*arguments: str, home: Path, blocked: str = "nothing") -> subprocess.CompletedProcess[str]:
    start = f"import sys; sys.modules[{blocked!r}] = None; from longtake.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", start, *arguments],
        env={key: value for key, value in os.environ.items() if not key.startswith("HF_")} | {"HF_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_list_names_sizes_sources_licences_and_what_is_here(tmp_path: Path) -> None:
    done = online("models", home=tmp_path, blocked="torch")
    assert done.returncode == 0, done.stderr
    for text in ("micro-map", "11.0 MB in float16", "Apache-2.0", "the package, micro-map.safetensors"):
        assert text in done.stdout
    for text in ("micro-vqa", "7.9 MB in float16", "micro-vqa/model.safetensors", "90 words"):
        assert text in done.stdout
    for text in ("lingbot-map-long", "1,157,943,540", "4.63 GB", "robbyant/lingbot-map", "no tag seen", "not on this"):
        assert text in done.stdout


def test_list_says_the_terms_of_the_vggt_family(tmp_path: Path) -> None:
    rows = {row["name"]: row for row in json.loads(online("models", "--json", home=tmp_path).stdout)}
    assert rows["stream3r"]["licence"].startswith("S-Lab License 1.0")
    assert rows["streamvggt"]["licence"].startswith("CC BY-NC-SA 4.0")
    assert rows["vggt"]["licence"].startswith("research only")
    assert (rows["streamvggt"]["repo"], rows["streamvggt"]["file"]) == ("lch01/StreamVGGT", "checkpoints.pth")


def test_list_as_json_says_where_a_preset_was_found(tmp_path: Path) -> None:
    folder = tmp_path / "hub" / "models--robbyant--lingbot-map"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(REVISION)
    (folder / "snapshots" / REVISION).mkdir(parents=True)
    (folder / "snapshots" / REVISION / "lingbot-map.pt").touch()
    done = online("models", "--json", home=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert rows["lingbot-map"]["found"] == str(folder / "snapshots" / REVISION / "lingbot-map.pt")
    assert rows["lingbot-map-long"]["found"] is None
    assert rows["lingbot-map-long"]["num_bytes"] == 4_631_774_160


def test_list_without_the_hub_package_still_lists_and_says_what_to_install(tmp_path: Path) -> None:
    done = online("models", "--json", home=tmp_path, blocked="huggingface_hub")
    assert done.returncode == 0, done.stderr
    *bundled, _, _, _, _, _ = rows = json.loads(done.stdout)
    assert [(row["name"], row["note"]) for row in bundled] == [("micro-map", ""), ("micro-vqa", "")]
    assert all(Path(row["found"]).is_file() for row in bundled)
    published = rows[len(bundled) :]
    assert all('pip install "longtake[hub]"' in row["note"] for row in published)


def test_check_says_what_a_file_is(tmp_path: Path, longtake: Callable[..., Done]) -> None:
    model = GeometryModel(TINY)
    save_geometry(model, tmp_path / "x[1].safetensors")
    done = online("models", "check", str(tmp_path), "--json", home=tmp_path, blocked="huggingface_hub")
    assert done.returncode == 0, done.stderr
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert json.loads(done.stdout) == {
        "path": str(tmp_path / "x[1].safetensors"),
        "model": "longtake's own model",
        "num_tensors": len(model.state_dict()),
        "num_parameters": parameters,
        "heads": ["camera", "depth"],
        "dtypes": ["float32"],
        "num_bytes": 4 * parameters,
    }
    done = longtake("models", "check", str(tmp_path / "x[1].safetensors"))
    assert done.returncode == 0, done.stderr
    for text in ("x[1].safetensors", "longtake's own model", f"{parameters:,}", "camera, depth", "shape is right"):
        assert text in done.stdout.replace("\n", "")


def test_check_knows_the_bundled_models(longtake: Callable[..., Done]) -> None:
    for name, model, heads in (("micro-map", "longtake's own model", "camera"), ("micro-vqa", "Qwen2.5-VL", "words")):
        held = json.loads(longtake("models", "check", name, "--json").stdout)
        assert (held["model"], held["heads"][0], held["dtypes"]) == (model, heads, ["float16"])


def test_check_refuses_in_one_sentence_and_no_traceback(tmp_path: Path, longtake: Callable[..., Done]) -> None:
    save_file({"model.layers.0.mlp.up_proj.weight": torch.zeros(1)}, tmp_path / "qwen.safetensors")
    (tmp_path / "cut.pt").write_bytes(b"PK\x03\x04")
    save_file({"aggregator.x": torch.zeros(1), "track_head.x": torch.zeros(1)}, tmp_path / "v.safetensors")
    for name, sentence in (
        ("qwen.safetensors", "looks like a Qwen model"),
        ("cut.pt", "damaged, cut short"),
        ("v.safetensors", "say which it is, as vggt:"),
        ("streamvggt:v.safetensors", "looks like StreamVGGT, but 1402 tensors are missing"),
    ):
        model, _, file = name.rpartition(":")
        done = longtake("models", "check", f"{model}:{tmp_path / file}" if model else str(tmp_path / file))
        assert done.returncode == 1
        assert sentence in " ".join(done.stderr.split())
        assert "Traceback" not in done.stderr


@pytest.mark.extra
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("lingbot-map", "lingbot-map is not in the hub's cache; download it first"),
        ("gone.pt", "Expected weights at gone.pt"),
    ],
)
def test_check_downloads_nothing(name: str, sentence: str, tmp_path: Path) -> None:
    done = online("models", "check", name, home=tmp_path)
    assert done.returncode == 1
    assert sentence in " ".join(done.stderr.split())
