"""`longtake map` as a user meets it, in a process of its own, killed and interrupted."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from done import Done

from longtake.exports.record import EXPORT_FOLDER, RECORD_NAME
from longtake.exports.report.folder import PROGRESS_NAME, SUMMARY_NAME
from longtake.exports.report.page import REPORT_NAME
from longtake.pipeline.checkpoint import FOLDER
from longtake.pipeline.outputs import SESSION_NAME
from longtake.takes.take import read_take
from longtake.takes.tum import read_tum

LONGTAKE = str(Path(sys.executable).with_name("longtake"))
MODEL = ["--model", "tiny"]
SOURCE = "world:3?frames=90&size=56x42"
OPTIONS = ["--size", "56", "--windows", "24/6", "--format", "tum,ply,kitti,depth", "--checkpoint-every", "10"]


@pytest.fixture(scope="module")
def map_(longtake: Callable[..., Done]) -> Callable[..., Done]:
    return partial(longtake, "map", *MODEL)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but those with times of the clock in them."""
    timed = (SUMMARY_NAME, PROGRESS_NAME, REPORT_NAME)
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in timed]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def begun(out: Path, is_far_enough: Callable[[], bool]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [LONGTAKE, "map", *MODEL, SOURCE, *OPTIONS, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    until = time.monotonic() + 60
    while not is_far_enough() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    assert process.poll() is None, "the run was over before it could be broken off"
    return process


@pytest.fixture(scope="module")
def whole(map_: Callable[..., Done], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("whole") / "out"
    done = map_(SOURCE, *OPTIONS, "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "90 frames" in done.stdout
    assert "weights are random" in done.stdout
    return contents(out)


@pytest.mark.extra
def test_killed_in_the_middle_and_resumed_the_files_are_identical(
    whole: dict[str, bytes], tmp_path: Path, map_: Callable[..., Done]
) -> None:
    out = tmp_path / "out"
    process = begun(out, (out / FOLDER / "latest.json").exists)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert len(read_take(out)) < 90
    done = map_(SOURCE, *OPTIONS, "--out", str(out), "--resume")
    assert done.returncode == 0, done.stderr
    assert contents(out) == whole


@pytest.mark.extra
def test_interrupted_a_run_finishes_its_frames_and_says_how_to_go_on(
    whole: dict[str, bytes], tmp_path: Path, map_: Callable[..., Done]
) -> None:
    out = tmp_path / "out"
    process = begun(out, (out / "take.json").exists)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    assert process.returncode == 130
    assert "go on with --resume" in said
    assert "Traceback" not in said
    assert 0 < len(read_take(out)) < 90
    assert json.loads((out / SUMMARY_NAME).read_text())["is_complete"] is False
    assert map_(SOURCE, *OPTIONS, "--out", str(out), "--resume").returncode == 0
    assert contents(out) == whole


def test_many_sources_go_to_folders_of_their_own_and_done_ones_are_skipped(
    tmp_path: Path, map_: Callable[..., Done]
) -> None:
    sources = [f"world:{seed}?frames=6&size=42x28" for seed in (1, 2)]
    broken = tmp_path / "broken.mp4"
    broken.write_text("this is no video")
    options = ["--size", "42", "--format", "tum", "--out", str(tmp_path / "out"), "--json"]
    done = map_(*sources, str(broken), *options)
    assert done.returncode == 1
    assert "1 of 3 sources could not be mapped" in done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["event"] for event in events if event["event"] != "frame"] == [
        "note",
        "start",
        "done",
        "start",
        "done",
        "failed",
    ]
    assert sum(event["event"] == "frame" for event in events) == 12
    again = map_(*sources, *options, "--skip-done")
    assert again.returncode == 0
    assert [json.loads(line)["event"] for line in again.stdout.splitlines()] == ["skipped", "skipped"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere.mp4"], "there is no 'nowhere.mp4'"),
        (["world:1", "--keyframes", "often"], "every:6 or flow:12px"),
        (["world:1", "--windows", "many"], "128/16"),
        (["world:1", "--format", "obj"], "Expected format as"),
        (["world:1", "--memory", "lots"], "such as 4GB"),
        (["world:1?frames=3", "--memory", "10kB"], "cannot hold"),
        (["world:1", "--start", "soon"], "Expected a time"),
        (["world:1", "--model", "/no/weights.pt"], "/no/weights.pt"),
        (["world:1?frames=3", "--out", "/proc/longtake"], "cannot be written"),
        (["world:1", "--intrinsics", "1,2"], "fx,fy,cx,cy"),
        (["world:1", "--intrinsics", "no.json"], "no.json"),
        (["world:1", "--intrinsics", "9,9,4,4", "--fixed-camera"], "leave out intrinsics or fixed camera"),
        (["world:1", "--scale-from", "2.4m"], "distance:0,57=2.4m"),
        (["world:1", "--up", "left"], "Expected --up as auto, none"),
    ],
)
def test_bad_options_get_one_sentence_before_anything_is_mapped(
    arguments: list[str], sentence: str, tmp_path: Path, map_: Callable[..., Done]
) -> None:
    out = [] if "--out" in arguments else ["--out", str(tmp_path / "out")]
    done = map_(*arguments, *out)
    of_data = ("there is no 'nowhere.mp4'", "cannot hold", "/no/weights.pt", "cannot be written", "no.json")
    assert done.returncode == (1 if sentence in of_data else 2)
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out" / "poses.tum").exists()


def test_what_needs_the_whole_video_is_exported_when_it_has_ended(tmp_path: Path, map_: Callable[..., Done]) -> None:
    """Formats that need images or depth have the take hold them."""
    out = tmp_path / "out"
    options = ["--size", "42", "--format", "tum,colmap,glb,session", "--pixels", "source", "--out", str(out), "--json"]
    done = map_("world:1?frames=6&size=42x28", *options)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["event"] for event in events if event["event"] != "frame"] == [
        "note",
        "start",
        "saved",
        "done",
        "export",
    ]
    assert list(events[-1]["files"]) == ["colmap", "glb"]
    assert events[-1]["unit"] == "model"
    assert (out / SESSION_NAME).exists()
    header = read_take(out).header
    assert header.images is not None
    assert header.depth is not None
    assert header.confidence
    assert (out / EXPORT_FOLDER / "colmap/images/000003.jpg").samefile(out / "images/000003.jpg")
    again = map_("world:1?frames=6&size=42x28", *options, "--resume")
    assert "nothing to resume" in again.stderr
    (out / EXPORT_FOLDER / RECORD_NAME).unlink()
    again = map_("world:1?frames=6&size=42x28", *options, "--resume")
    assert again.returncode == 0, again.stderr
    assert [json.loads(line)["event"] for line in again.stdout.splitlines()] == ["note", "start", "done", "export"]


def test_wishes_are_met_in_the_export_and_the_rest_is_as_the_model_said_it(
    tmp_path: Path, map_: Callable[..., Done]
) -> None:
    source, options = "world:1?frames=6&size=42x28", ["--size", "42", "--out"]
    adjustments = ["--scale-from", "distance:0,5=3m", "--intrinsics", "40,41,20.5,13.5", "--up", "auto"]
    assert map_(source, *options, str(tmp_path / "plain")).returncode == 0
    done = map_(source, *options, str(tmp_path / "out"), *adjustments)
    assert done.returncode == 0, done.stderr
    assert "6 frames in m, " in done.stdout
    assert not (tmp_path / "plain" / EXPORT_FOLDER).exists()
    for name in ("poses.tum", "cloud.ply"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    assert b"comment unit m\n" in (tmp_path / "out" / EXPORT_FOLDER / "cloud.ply").read_bytes()
    moved = read_tum(tmp_path / "out" / EXPORT_FOLDER / "poses.tum").world_from_camera[:, :3, 3]
    assert float((moved[5] - moved[0]).norm()) == pytest.approx(3.0)
    page = (tmp_path / "out" / REPORT_NAME).read_text()
    assert "from distance:0,5=3m" in page
    assert "cy of 40, 41, 20.5, 13.5" in page


def test_an_export_that_cannot_be_made_leaves_a_mapped_video_and_a_sentence(
    tmp_path: Path, map_: Callable[..., Done]
) -> None:
    options = ["--size", "42", "--format", "nerfstudio", "--out", str(tmp_path / "out"), "--scale-from"]
    done = map_("world:1?frames=6&size=42x28", *options, "distance:0,99=3m")
    assert done.returncode == 1
    assert "frame with index 99" in done.stderr
    assert "6 frames at" in done.stdout
    assert "--pixels source keeps the video's" in done.stdout
    again = map_("world:1?frames=6&size=42x28", *options, "distance:0,5=3m", "--resume")
    assert again.returncode == 0, again.stderr
    assert "6 frames in m" in again.stdout


@pytest.mark.extra
def test_interrupted_while_it_exports_a_run_ends_at_once_and_exports_when_resumed(
    tmp_path: Path, map_: Callable[..., Done]
) -> None:
    """The signal comes from within, as soon as the export has begun."""
    options = ["world:1?frames=6&size=42x28", "--size", "42", "--format", "tum,glb", "--out", str(tmp_path / "out")]
    start = (
        "import os, signal, longtake.pipeline.run_folder as run_folder\n"
        "run_folder.read_result = lambda out: os.kill(os.getpid(), signal.SIGINT)\n"
        "from longtake.cli.main import main; main()"
    )
    command = [sys.executable, "-c", start, "map", *MODEL, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 130, done.stderr
    assert "6 frames at" in done.stdout
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out" / EXPORT_FOLDER / RECORD_NAME).exists()
    assert map_(*options, "--resume").returncode == 0
    assert (tmp_path / "out" / EXPORT_FOLDER / RECORD_NAME).exists()


@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell's limits")
def test_a_full_disk_ends_the_run_with_a_sentence_and_whole_files(tmp_path: Path) -> None:
    """No file may grow beyond 20 kB, which the cloud does."""
    out = tmp_path / "out"
    start = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000));"
        "from longtake.cli.main import main; main()"
    )
    options = [*MODEL, *OPTIONS[:4], "--format", "tum,ply", "--out", str(out)]
    command = [sys.executable, "-c", start, "map", SOURCE, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 1
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(read_take(out)) > 0
