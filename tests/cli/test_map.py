"""`longtake map` as a user meets it, in a process of its own, killed and interrupted."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from longtake.export.report.folder import PROGRESS_NAME, SUMMARY_NAME
from longtake.export.report.page import REPORT_NAME
from longtake.pipeline.checkpoint import FOLDER
from longtake.takes.take import read_take

LONGTAKE = str(Path(sys.executable).with_name("longtake"))
SOURCE = "world:3?frames=90&size=56x42"
OPTIONS = ["--size", "56", "--windows", "24/6", "--format", "tum,ply,kitti,depth", "--checkpoint-every", "10"]


def longtake(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LONGTAKE, "map", *arguments], capture_output=True, text=True, check=False, timeout=200)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but those with times of the clock in them."""
    timed = (SUMMARY_NAME, PROGRESS_NAME, REPORT_NAME)
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in timed]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def begun(out: Path, is_far_enough: Callable[[], bool]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [LONGTAKE, "map", SOURCE, *OPTIONS, "--out", str(out)],
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
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("whole") / "out"
    done = longtake(SOURCE, *OPTIONS, "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "90 frames" in done.stdout
    assert "weights are random" in done.stdout
    return contents(out)


def test_killed_in_the_middle_and_resumed_the_files_are_identical(whole: dict[str, bytes], tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = begun(out, (out / FOLDER / "latest.json").exists)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert len(read_take(out)) < 90
    done = longtake(SOURCE, *OPTIONS, "--out", str(out), "--resume")
    assert done.returncode == 0, done.stderr
    assert contents(out) == whole


def test_interrupted_a_run_finishes_its_frames_and_says_how_to_go_on(whole: dict[str, bytes], tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = begun(out, (out / "take.json").exists)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    assert process.returncode == 130
    assert "go on with --resume" in said
    assert "Traceback" not in said
    assert 0 < len(read_take(out)) < 90
    assert json.loads((out / SUMMARY_NAME).read_text())["is_complete"] is False
    assert longtake(SOURCE, *OPTIONS, "--out", str(out), "--resume").returncode == 0
    assert contents(out) == whole


def test_many_sources_go_to_folders_of_their_own_and_done_ones_are_skipped(tmp_path: Path) -> None:
    sources = [f"world:{seed}?frames=6&size=42x28" for seed in (1, 2)]
    broken = tmp_path / "broken.mp4"
    broken.write_text("this is no video")
    options = ["--size", "42", "--format", "tum", "--out", str(tmp_path / "out"), "--json"]
    done = longtake(*sources, str(broken), *options)
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
    again = longtake(*sources, *options, "--skip-done")
    assert again.returncode == 0
    assert [json.loads(line)["event"] for line in again.stdout.splitlines()] == ["note", "skipped", "skipped"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere.mp4"], "there is no 'nowhere.mp4'"),
        (["world:1", "--keyframes", "often"], "every:6 or flow:12px"),
        (["world:1", "--windows", "many"], "128/16"),
        (["world:1", "--format", "obj"], "Expected --format as"),
        (["world:1", "--memory", "lots"], "such as 4GB"),
        (["world:1?frames=3", "--memory", "10kB"], "cannot hold"),
        (["world:1", "--start", "soon"], "Expected a time"),
        (["world:1", "--model", "/no/weights.pt"], "/no/weights.pt"),
        (["world:1?frames=3", "--out", "/proc/longtake"], "cannot be written"),
    ],
)
def test_bad_options_get_one_sentence(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    out = [] if "--out" in arguments else ["--out", str(tmp_path / "out")]
    done = longtake(*arguments, *out)
    assert done.returncode == 1
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell's limits")
def test_a_full_disk_ends_the_run_with_a_sentence_and_whole_files(tmp_path: Path) -> None:
    """No file may grow beyond 20 kB, which the cloud does."""
    out = tmp_path / "out"
    start = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000));"
        "from longtake.cli.main import main; main()"
    )
    command = [sys.executable, "-c", start, "map", SOURCE, *OPTIONS[:4], "--format", "tum,ply", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 1
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(read_take(out)) > 0
