"""`longtake demo` as a user meets it, on a walk of a few frames."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from done import Done
from PIL import Image

from longtake.exports.report.asked import ASKED_NAME, Asked
from longtake.exports.report.page import REPORT_NAME
from longtake.takes.take import read_take

pytestmark = pytest.mark.extra

FRAMES = 10


@pytest.fixture(scope="module")
def out(longtake: Callable[..., Done], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    folder = tmp_path_factory.mktemp("demo") / "new" / "out"
    return folder, longtake("demo", "--frames", str(FRAMES), "--seed", "19", "--out", str(folder))


def test_demo_ends_with_a_line_of_figures_for_each_walk(out: tuple[Path, Done]) -> None:
    _, done = out
    assert done.returncode == 0, done.stderr
    line, held_out = done.stdout.strip().splitlines()
    for words in ("10 frames of table 19", "constant velocity", "AbsRel", "a kind of world that no training has seen"):
        assert words in held_out
    for words in ("10 frames of house 19", "constant velocity", "AbsRel", "mean depth", "resumed bit-identical"):
        assert words in line
    figures = json.loads((out[0] / "demo.json").read_text())
    assert f"{figures['answers_right']} of {figures['answers_asked']} answers right" in line
    assert f"{figures['evidence_met']} of {figures['evidence_asked']} looked at the true moment, " in line
    assert "random" not in line


def test_demo_scores_the_map_and_checks_that_streaming_is_exact(out: tuple[Path, Done]) -> None:
    figures = json.loads((out[0] / "demo.json").read_text())
    assert (figures["seed"], figures["frames"]) == (19, FRAMES)
    assert figures["stream_to_clip_error"] < 2e-5
    assert figures["resumed_is_identical"] is True
    assert 0 < figures["ate_share"] < 1
    assert figures["depth_abs_rel"] < figures["mean_depth_abs_rel"]


def test_demo_walks_around_a_table_too_and_scores_that_apart(out: tuple[Path, Done]) -> None:
    house = json.loads((out[0] / "demo.json").read_text())
    table = house["held_out"]
    assert (house["family"], table["family"]) == ("house", "table")
    assert (table["seed"], table["frames"]) == (19, FRAMES)
    assert 0 < table["ate_share"] < 1
    assert table["path_m"] != house["path_m"]
    assert house["unlikeness"] < 1
    walk, mapped = read_take(out[0] / "demo-table-walk"), out[0] / "demo-table-map"
    assert walk.header.world is not None
    assert walk.header.world["family"] == "table"
    assert len(walk) == len(read_take(mapped)) == FRAMES
    assert (mapped / "cloud.ply").exists()
    page = (mapped / REPORT_NAME).read_text(encoding="utf-8")
    assert "around table 19, of a kind that no training has seen" in page
    assert "Asked on the way" not in page


def test_demo_asks_on_the_way_and_scores_the_answers(out: tuple[Path, Done]) -> None:
    figures = json.loads((out[0] / "demo.json").read_text())
    asked = Asked.parse((out[0] / "demo-map" / ASKED_NAME).read_bytes(), "demo")
    assert len(asked.questions) == figures["answers_asked"] > 1
    assert max(question.time_s for question in asked.questions) <= 0.8
    assert 0 <= figures["answers_right"] <= figures["answers_asked"]
    assert 0 <= figures["evidence_met"] <= figures["evidence_asked"] <= figures["answers_asked"]
    page = (out[0] / "demo-map" / REPORT_NAME).read_text(encoding="utf-8")
    assert "Asked on the way" in page
    assert asked.questions[0].question.replace(" ?", "?") in page.replace(", the", " , the")


def test_demo_writes_every_file_and_a_picture(out: tuple[Path, Done]) -> None:
    walk, mapped = out[0] / "demo-walk", out[0] / "demo-map"
    assert len(read_take(walk)) == len(read_take(mapped)) == FRAMES
    files = ("cloud.ply", "poses.tum", "poses.kitti", "session.safetensors", "truth.json")
    exported = ("colmap", "nerfstudio", "scene.glb", "export.json")
    assert all((mapped / name).exists() for name in files)
    assert all((mapped / "export" / name).exists() for name in exported)
    page = (mapped / REPORT_NAME).read_text(encoding="utf-8")
    assert "Against the truth" in page
    assert 'class="true-way"' in page
    with Image.open(out[0] / "demo.png") as picture:
        assert picture.width > 2 * picture.height
        assert len(picture.getcolors(picture.width * picture.height)) > 1000


def test_demo_runs_again_over_what_it_left(out: tuple[Path, Done], longtake: Callable[..., Done]) -> None:
    done = longtake("demo", "--frames", "3", "--out", str(out[0]))
    assert done.returncode == 0, done.stderr
    assert len(read_take(out[0] / "demo-map")) == 3
    assert "nothing asked (the walk is too short)" in done.stdout
    assert not (out[0] / "demo-map" / ASKED_NAME).exists()
    assert "Asked on the way" not in (out[0] / "demo-map" / REPORT_NAME).read_text(encoding="utf-8")
    sky, depth = colours_of_true_depth(out[0] / "demo-table.png")  # table 9 stands under the sky
    assert sky > 100
    assert depth > 100


def colours_of_true_depth(path: Path) -> tuple[int, int]:
    """Of the first tile of a demo's picture: pixels without depth, and in how many colours the others are."""
    with Image.open(path) as picture:
        tile = picture.crop((6, 22 + 159, 6 + 168, 22 + 159 + 131))
    colours = {colour: count for count, colour in tile.getcolors(tile.width * tile.height) or ()}
    return colours.pop((128, 128, 128), 0), len(colours)


@pytest.mark.extra
def test_demo_is_computed_as_asked_for(longtake: Callable[..., Done], tmp_path: Path) -> None:
    options = ("--frames", "8", "--precision", "bf16", "--backend", "reference", "--out", str(tmp_path))
    done = longtake("demo", *options)
    assert done.returncode == 0, done.stderr
    assert "bf16 on cpu" in done.stdout
    figures = json.loads((tmp_path / "demo.json").read_text())
    assert (figures["device"], figures["precision"], figures["backend"]) == ("cpu", "bf16", "reference")
    assert 2e-5 < figures["stream_to_clip_error"] < 0.2
    assert figures["resumed_is_identical"] is True
    mapped = json.loads((tmp_path / "demo-map" / "summary.json").read_text())
    assert (mapped["execution"]["precision"], mapped["execution"]["backend"]) == ("bf16", "reference")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--precision", "fp16"), "Expected a GPU for precision fp16"),
        (("--backend", "slow"), "no attention backend 'slow'"),
    ],
)
def test_what_cannot_be_computed_here_is_refused(
    options: tuple[str, ...], sentence: str, longtake: Callable[..., Done], tmp_path: Path
) -> None:
    done = longtake("demo", *options, "--out", str(tmp_path))
    assert done.returncode == 2
    assert sentence in " ".join(done.stderr.split())
    assert not any(tmp_path.iterdir())


def test_house_of_a_training_is_refused(longtake: Callable[..., Done], tmp_path: Path) -> None:
    done = longtake("demo", "--seed", "7", "--out", str(tmp_path))
    assert done.returncode == 2
    assert "one that ends in 9, but got 7" in " ".join(done.stderr.split())
    assert not any(tmp_path.iterdir())
