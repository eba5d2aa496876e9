"""A take as programs read it; what its folder lacks is None or one sentence."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import longtake
from longtake import Take
from longtake.errors import InputError, SettingError
from longtake.geometry.model import GeometryModel


@pytest.fixture(scope="module")
def mapped(model: GeometryModel, tmp_path_factory: pytest.TempPathFactory) -> Take:
    folder = tmp_path_factory.mktemp("mapped")
    return longtake.map("world:9?frames=10&size=126x98", folder, model=model, format="depth,confidence,images")


def test_the_cloud_is_that_of_the_file_or_made_of_depth(mapped: Take, tmp_path: Path) -> None:
    made = mapped.cloud()
    longtake.export(mapped, tmp_path / "points", format="ply")
    (mapped.folder / "cloud.ply").write_bytes((tmp_path / "points" / "cloud.ply").read_bytes())
    written = mapped.cloud()
    (mapped.folder / "cloud.ply").unlink()
    assert len(made) == len(written) > 1000
    assert np.allclose(made.points, written.points, atol=1e-5)
    assert np.array_equal(made.colours, written.colours)
    assert repr(written) == f"PointCloud({len(written)} points)"


def test_what_a_folder_does_not_have_is_none_or_one_sentence(mapped: Take, tmp_path: Path) -> None:
    assert (mapped.truth, mapped.questions) == (None, None)
    longtake.export(mapped, tmp_path, format="take")
    copied = longtake.open_take(tmp_path / "take")
    assert copied.summary is None
    poses = longtake.map("world:9?frames=9&size=126x98", tmp_path / "poses", format="tum")
    assert repr(poses).endswith("poses alone)")
    for read in (poses.cloud, lambda: poses.depth(0), lambda: poses.image(0), lambda: poses.confidence(0)):
        with pytest.raises(InputError, match=r"The take .* has (no|neither)"):
            read()


def test_truth_and_questions_are_read_where_they_are(mapped: Take) -> None:
    questions = [{"kind": "seen", "text": "Is it?", "frame": 3, "answer": "yes"}]
    truth = {"about": "Moved.", "figures": [], "way": [{"centre": [1.0, 2.0, 3.0]}]}
    paths = {"questions.json": questions, "truth.json": truth}
    for name, content in paths.items():
        (mapped.folder / name).write_text(json.dumps(content))
    assert mapped.questions == questions
    assert mapped.truth is not None
    assert mapped.truth.centres.tolist() == [[1.0, 2.0, 3.0]]
    for name in paths:
        (mapped.folder / name).write_text("{torn")
    for read in (lambda: mapped.questions, lambda: mapped.truth):
        with pytest.raises(InputError, match=r"(questions|truth)\.json"):
            read()
    for name in paths:
        (mapped.folder / name).unlink()


def test_missing_and_newer_takes_are_one_sentence(mapped: Take, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Expected a take in .*, but its take\.json cannot be read"):
        longtake.open_take(tmp_path)
    header = json.loads((mapped.folder / "take.json").read_text())
    (tmp_path / "take.json").write_text(json.dumps(header | {"version": 99, "made_by": "longtake 9.0"}))
    with pytest.raises(InputError, match=r"but got version 99; read it with what made it, longtake 9\.0"):
        longtake.open_take(tmp_path)


def test_exports_are_records_that_can_be_read(mapped: Take, tmp_path: Path) -> None:
    record = mapped.export(tmp_path / "one", format="kitti")
    assert repr(record) == (
        f"ExportRecord(10 frames of {mapped.folder}, lengths in model units: "
        f"kitti in {tmp_path / 'one' / 'poses.kitti'})"
    )
    assert longtake.export(str(mapped.folder), tmp_path / "two", ["kitti", "tum"], up="auto").files.keys() == {
        "kitti",
        "tum",
    }
    assert (tmp_path / "two" / "poses.kitti").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"format": "obj"}, "Expected format as tum, kitti, ply, take, colmap"),
        ({"up": "z"}, "Expected up as auto, none"),
        ({"scale_from": "far"}, "far"),
        ({"format": []}, "Expected format as tum, kitti, .*, but got none"),
        ({"intrinsics": "100,100,63,49", "fixed_camera": True}, "leave out intrinsics or fixed camera"),
        (
            {"formats": "ply"},
            "export has no keyword 'formats'; perhaps you mean 'format'; choose one of result, out",
        ),
    ],
)
def test_a_bad_word_of_an_export_is_one_sentence(
    mapped: Take, tmp_path: Path, words: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SettingError, match=sentence):
        mapped.export(tmp_path / "out", **words)
    assert not (tmp_path / "out").exists()


def test_reports_are_records_that_can_be_read(mapped: Take) -> None:
    report = longtake.evaluate(mapped, mapped.folder, only="trajectory,depth")
    assert report.trajectory is not None
    assert report.trajectory.absolute.translation.rmse < 1e-6
    assert repr(report).startswith(f"EvalReport({mapped.folder} against {mapped.folder}: ATE ")
    assert "depth off by 0.0%" in repr(report)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"align": "icp"}, "There is no alignment 'icp'; choose one of sim3, se3, none"),
        ({"only": "pose"}, "There is no part 'pose'; choose one of trajectory, depth, points, answers"),
        ({"delta": "ten"}, "Expected a delta such as 10f"),
        ({"depth_align": "none"}, "There is no depth alignment 'none'; choose one of metric"),
        ({"metric": "ate"}, "evaluate has no keyword 'metric'; choose one of result, truth, align"),
    ],
)
def test_a_bad_word_of_an_evaluation_is_one_sentence(mapped: Take, words: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        longtake.evaluate(mapped, mapped, **words)
