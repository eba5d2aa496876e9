"""`longtake export` as a user meets it."""

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from longtake.cli.main import main
from longtake.exports.formats import FORMATS
from longtake.exports.record import RECORD_NAME
from longtake.takes.header import Unit
from longtake.takes.take import read_take

Say = Callable[..., tuple[int, str, str]]

OF_OPTIONS = (
    "Expected format as tum",
    "Expected --up as auto, none",
    "fx,fy,cx,cy",
    "leave out intrinsics or fixed camera",
    "distance:0,57=2.4m",
    "less than 100",
)
"""What is told of wrong options, not of wrong data."""


@pytest.fixture
def longtake(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """Runs a command; gives its exit code, stdout and stderr."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["longtake", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mapped walk with exact depth and with images; the network is random."""
    out = tmp_path_factory.mktemp("mapped") / "run"
    source, options = "world:3?frames=12&size=56x42", ["--model", "tiny", "--size", "56", "--out", str(out)]
    formats = ["--format", "tum,ply,kitti,depth-npz,confidence,images"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["longtake", "map", source, *options, *formats])
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code
    return out


def vertices(path: Path) -> np.ndarray:
    _, _, body = path.read_bytes().partition(b"end_header\n")
    floats = [(name, "<f4") for name in ("x", "y", "z", "nx", "ny", "nz")]
    return np.frombuffer(body, np.dtype([*floats, *[(name, "u1") for name in "rgb"], ("confidence", "<f4")]))


def test_the_same_filters_give_the_files_of_the_run(longtake: Say, run: Path, tmp_path: Path) -> None:
    """Poses to the last byte, the cloud but for colours, which a JPEG does not keep.

    With exact images it is the same to the last byte too: tests/pipeline/test_mapper.py.
    """
    assert longtake("export", run, "--out", tmp_path, "--format", "tum,kitti,ply")[0] == 0
    again, first = vertices(tmp_path / "cloud.ply"), vertices(run / "cloud.ply")
    assert len(again) == pytest.approx(len(first), rel=1e-3)
    assert len(first) > 1000
    points, true = (np.stack([cloud[name] for name in "xyz"], axis=1) for cloud in (again, first))
    distance, nearest = nearest_of(points, true)
    assert (distance < 1e-6).mean() > 0.995
    assert (np.abs(again["confidence"] - first["confidence"][nearest]) < 1e-6).mean() > 0.99
    assert np.mean([np.abs(again[name].astype(int) - first[name][nearest].astype(int)).mean() for name in "rgb"]) < 4
    assert (tmp_path / "poses.kitti").read_bytes() == (run / "poses.kitti").read_bytes()
    assert (tmp_path / "poses.tum").read_bytes().endswith((run / "poses.tum").read_bytes())


def nearest_of(points: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distance to the nearest of the others along any axis, and which it is."""
    distances = [np.abs(others - point).max(axis=1) for point in points]
    return np.array([each.min() for each in distances]), np.array([each.argmin() for each in distances])


def test_other_filters_give_other_points(longtake: Say, run: Path, tmp_path: Path) -> None:
    assert longtake("export", run, "--out", tmp_path / "all", "--drop-percent", "0", "--voxel", "0.001")[0] == 0
    assert longtake("export", run, "--out", tmp_path / "few", "--drop-percent", "0", "--max-points", "50")[0] == 0
    (tmp_path / "masks").mkdir()
    for index in range(12):
        Image.fromarray(np.full((42, 56), 255 if index == 5 else 0, np.uint8)).save(tmp_path / "masks" / f"{index}.png")
    assert longtake("export", run, "--out", tmp_path / "one", "--mask", tmp_path / "masks", "--voxel", "0.001")[0] == 0
    counts = [len(vertices(tmp_path / name / "cloud.ply")) for name in ("all", "few", "one")]
    assert 0 < counts[1] <= 50 < counts[2] < counts[0]


def test_every_format_is_written_and_told(longtake: Say, run: Path, tmp_path: Path) -> None:
    formats = [name for name in FORMATS if name != "rrd" or importlib.util.find_spec("rerun")]
    code, out, _ = longtake("export", run, "--out", tmp_path, "--format", ",".join(formats), "--json")
    assert code == 0
    report = json.loads(out)
    assert report == json.loads((tmp_path / RECORD_NAME).read_text())
    assert list(report["files"]) == formats
    assert all(Path(path).exists() for path in report["files"].values())
    assert (report["unit"], report["metres_per_unit"], report["frames"]) == ("model", None, 12)


def test_images_that_are_made_of_the_networks_are_told(longtake: Say, run: Path, tmp_path: Path) -> None:
    source, options = "world:3?frames=9&size=112x84", ("--model", "tiny", "--size", "56", "--format", "depth,images")
    for pixels, is_told in (("model", True), ("source", False)):
        mapped, out = tmp_path / pixels, tmp_path / f"{pixels}-out"
        assert longtake("map", source, *options, "--pixels", pixels, "--out", mapped)[0] == 0
        code, said, _ = longtake("export", mapped, "--out", out, "--format", "tum,colmap,nerfstudio")
        assert code == 0
        note = "Images of colmap and nerfstudio are made of the network's, 56x42 pixels; map with --pixels source"
        assert (note in said) == is_told
        assert any(note in each for each in json.loads((out / RECORD_NAME).read_text())["notes"]) == is_told
    assert "network's" not in longtake("export", run, "--out", tmp_path / "same", "--format", "colmap")[1]


def test_without_its_package_a_format_leaves_nothing(
    longtake: Say, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rerun", None)
    code, _, said = longtake("export", run, "--out", tmp_path / "out", "--format", "tum,rrd")
    assert code == 1
    assert 'pip install "longtake[rerun]"' in said
    assert not (tmp_path / "out").exists()


def test_a_known_distance_makes_everything_metric(longtake: Say, run: Path, tmp_path: Path) -> None:
    options = ("--scale-from", "distance:0,11=2.4m", "--format", "tum,ply,take", "--intrinsics", "40,41,28,21")
    code, out, _ = longtake("export", run, "--out", tmp_path, *options, "--json")
    assert code == 0
    take, saved = read_take(tmp_path / "take"), read_take(run)
    centres = take.trajectory.world_from_camera[:, :3, 3]
    assert float((centres[0] - centres[11]).norm()) == pytest.approx(2.4, rel=1e-6)
    assert take.header.unit is Unit.METRE
    assert b"comment unit m\n" in (tmp_path / "cloud.ply").read_bytes()
    report = json.loads(out)
    assert np.allclose(take.depth(4), saved.depth(4) * report["metres_per_unit"], rtol=1e-6)
    assert report["unit"] == "m"
    assert report["intrinsics"] == [40, 41, 28, 21]
    placed = saved.header.source
    assert placed is not None
    assert torch.allclose(
        placed.intrinsics_to_source(take.intrinsics[3]),
        torch.tensor([[40.0, 0, 28], [0, 41, 21], [0, 0, 1]], dtype=torch.float64),
    )


def test_the_summary_says_what_was_done_and_what_could_not_be(longtake: Say, run: Path, tmp_path: Path) -> None:
    code, out, _ = longtake("export", run, "--out", tmp_path, "--format", "tum", "--up", "auto", "--fixed-camera")
    assert code == 0
    assert "12 frames in model units" in out
    assert "model's own unit; --scale-from" in out
    assert ("No floor was found" in out) == (json.loads((tmp_path / RECORD_NAME).read_text())["floor_share"] is None)


def test_files_are_replaced_only_when_asked(longtake: Say, run: Path, tmp_path: Path) -> None:
    assert longtake("export", run, "--out", tmp_path, "--format", "tum,colmap")[0] == 0
    code, _, err = longtake("export", run, "--out", tmp_path, "--format", "tum,colmap")
    assert code == 1
    assert "exists already; name another, or replace it with --overwrite (overwrite=True)" in err
    assert longtake("export", run, "--out", tmp_path, "--format", "tum,colmap", "--overwrite")[0] == 0


def without(run: Path, folder: Path, **fields: Any) -> Path:
    """The run as if it had been mapped with less."""
    folder.mkdir()
    for name in ("frames.jsonl", "poses.tum"):
        (folder / name).write_bytes((run / name).read_bytes())
    (folder / "take.json").write_text(json.dumps(json.loads((run / "take.json").read_text()) | fields))
    return folder


@pytest.mark.parametrize(
    ("fields", "options", "said"),
    [
        ({"depth": None}, ["--format", "tum,ply"], "of which ply is made"),
        ({"images": None}, ["--format", "colmap"], "with the format images"),
        ({"images": None}, ["--format", "las"], "Expected format as tum"),
        ({}, ["--up", "left"], "Expected --up as auto, none"),
        ({}, ["--intrinsics", "1,2"], "fx,fy,cx,cy"),
        ({}, ["--intrinsics", "1,2,3,4", "--fixed-camera"], "leave out intrinsics or fixed camera"),
        ({}, ["--scale-from", "2.4m"], "distance:0,57=2.4m"),
        ({}, ["--scale-from", "distance:0,99=1m"], "frame with index 99"),
        ({"depth": None}, ["--format", "tum", "--scale-from", "height:1m"], "none was found"),
        ({"depth": None}, ["--format", "tum", "--scale-from", "depth:0=d.png@0.001"], "has no depth"),
        ({}, ["--drop-percent", "100"], "less than 100"),
        ({}, ["--mask", "nowhere"], "folder of masks"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    longtake: Say, run: Path, tmp_path: Path, fields: dict[str, Any], options: list[str], said: str
) -> None:
    result = without(run, tmp_path / "less", **fields)
    code, _, err = longtake("export", result, "--out", tmp_path / "out", *options)
    assert code == (2 if said in OF_OPTIONS else 1)
    assert said in " ".join(err.split())
    assert "Traceback" not in err
    assert not (tmp_path / "out").exists()


def test_a_take_is_not_written_over(longtake: Say, run: Path, tmp_path: Path) -> None:
    before = (run / "poses.tum").read_bytes()
    code, _, err = longtake("export", run, "--out", run, "--overwrite")
    assert code == 2
    assert "is a take" in err
    assert (run / "poses.tum").read_bytes() == before
    assert "cannot be read" in longtake("export", tmp_path / "nowhere", "--out", tmp_path / "out")[2]


def test_without_images_points_are_grey_and_a_note_says_so(longtake: Say, run: Path, tmp_path: Path) -> None:
    result = without(run, tmp_path / "less", images=None)
    (result / "depth").symlink_to(run / "depth")
    (result / "confidence").symlink_to(run / "confidence")
    code, out, _ = longtake("export", result, "--out", tmp_path / "out", "--format", "ply")
    assert code == 0
    assert "points are grey" in out
    assert set(vertices(tmp_path / "out" / "cloud.ply")["r"]) == {128}
