"""`longtake map` as a user meets it, in a process of its own, killed and interrupted."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from html import escape
from pathlib import Path

import numpy as np
import pytest
from done import Done
from PIL import Image

import longtake.cli.progress as progress
import longtake.pipeline.run_folder as run_folder
import longtake.pipeline.video_map as video_map
from longtake.errors import InputError
from longtake.exports.record import EXPORT_FOLDER, RECORD_NAME
from longtake.exports.report.folder import PROGRESS_NAME, SUMMARY_NAME
from longtake.exports.report.page import REPORT_NAME
from longtake.pipeline.checkpoint import FOLDER
from longtake.pipeline.events import MapSummary
from longtake.pipeline.final_moves import NOT_MOVED
from longtake.pipeline.map_results import Prepared, Stepped
from longtake.pipeline.mapper import Mapper
from longtake.pipeline.outputs import SESSION_NAME
from longtake.pipeline.run import Run
from longtake.pipeline.run_folder import RunFolder
from longtake.takes.corrections import CorrectedSpan, Corrections
from longtake.takes.take import Take, read_take
from longtake.takes.tum import read_tum
from longtake.takes.video_file import VideoWriter

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


@pytest.mark.parametrize("num_lines", [0, 5])
def test_where_nobody_reads_what_is_printed_a_run_stops_and_goes_on_when_resumed(
    num_lines: int, tmp_path: Path, map_: Callable[..., Done]
) -> None:
    options = ("world:3?frames=40&size=28x28", "--size", "28", "--format", "tum", "--out", str(tmp_path / "out"))
    with subprocess.Popen(
        [LONGTAKE, "map", *MODEL, *options, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(num_lines):
            process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 1
    if num_lines:
        stopped = f"the run in {tmp_path / 'out'} was stopped; go on with --resume."
        assert said == f"longtake: Nobody reads what is printed any more; {stopped}\n"
        assert json.loads((tmp_path / "out" / SUMMARY_NAME).read_text())["is_complete"] is False
    assert map_(*options, "--resume").returncode == 0
    assert len(read_take(tmp_path / "out")) == 40


def test_videos_beside_pictures_are_told(tmp_path: Path, map_: Callable[..., Done]) -> None:
    film(tmp_path / "ride" / "ride.mp4", (48, 64))
    Image.new("RGB", (64, 48)).save(tmp_path / "ride" / "thumb.png")
    done = map_(str(tmp_path / "ride"), "--size", "56", "--format", "tum", "--out", str(tmp_path / "out"))
    assert done.returncode == 0
    assert "holds 1 picture and 1 video; only pictures are read" in done.stdout
    assert f"name a video itself, as {tmp_path / 'ride' / 'ride.mp4'}" in done.stdout
    [note] = json.loads((tmp_path / "out" / SUMMARY_NAME).read_text())["notes"][1:]
    assert note in done.stdout


def test_what_was_done_before_a_break_counts_in_the_progress(
    tmp_path: Path, run_here: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    options = ("world:3?frames=13&size=28x28", *MODEL, "--size", "28", "--format", "tum", "--out", str(tmp_path))
    step = Mapper.step

    def step_ten(mapper: Mapper, prepared: Prepared) -> Stepped:
        if prepared.frame.index == 10:
            raise InputError("That was enough.")
        return step(mapper, prepared)

    with monkeypatch.context() as patched:
        patched.setattr(Mapper, "step", step_ten)
        assert run_here("map", *options, "--checkpoint-every", "10").returncode == 1
    done = run_here("map", *options, "--checkpoint-every", "10", "--resume")
    assert done.returncode == 0
    told = [line.partition(",")[0] for line in done.stdout.splitlines() if line.startswith("world 3: ")]
    assert told == [f"world 3: {number} of 13" for number in range(11, 14)]


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
    resumed = map_(*sources, *options, "--resume")
    assert (resumed.returncode, resumed.stdout) == (0, again.stdout)


def film(path: Path, size: tuple[int, int]) -> None:
    path.parent.mkdir(exist_ok=True)
    writer = VideoWriter(path, size, 10.0)
    for index in range(3):
        writer.write(index, index / 10, np.random.default_rng(index).integers(0, 256, (*size, 3), dtype=np.uint8))
    writer.close()


def test_folders_of_videos_are_mapped_one_by_one_and_equal_names_told_apart(
    tmp_path: Path, map_: Callable[..., Done]
) -> None:
    film(tmp_path / "left" / "walk.mp4", (48, 64))
    film(tmp_path / "right" / "walk.mp4", (40, 80))
    film(tmp_path / "right" / "wide.mp4", (40, 180))
    shutil.copyfile(tmp_path / "right" / "wide.mp4", tmp_path / "right" / "wide.mov")
    sources = [str(tmp_path / "left"), str(tmp_path / "right")]
    done = map_(*sources, "--size", "56", "--format", "tum", "--out", str(tmp_path / "out"), "--json")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "left_walk",
        "right_walk",
        "wide_mov",
        "wide_mp4",
    ]
    notes = [event["text"] for event in map(json.loads, done.stdout.splitlines()) if event["event"] == "note"]
    cut = [note for note in notes if "cut off" in note]
    assert len(cut) == 2
    assert "of 180x40 pixels those left and right are cut off; --fit pad (fit='pad') shows all" in cut[0]
    summary = json.loads((tmp_path / "out" / "wide_mov" / SUMMARY_NAME).read_text())
    assert summary["notes"][1:] == cut[:1]
    assert escape(cut[0]) in (tmp_path / "out" / "wide_mov" / REPORT_NAME).read_text()
    twice = map_(sources[0], f"{sources[0]}/../left/walk.mp4", "--out", str(tmp_path / "twice"))
    assert (twice.returncode, twice.stderr) == (
        2,
        f"longtake: {tmp_path / 'left' / 'walk.mp4'} is named twice; name each source once.\n",
    )


def test_several_sources_that_are_no_paths_are_one_sentence(tmp_path: Path, run_here: Callable[..., Done]) -> None:
    done = run_here("map", "some\0where.mp4", "nothing.mp4", "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert done.stderr == "longtake: 2 of 2 sources could not be mapped; the others are done.\n"


def test_pictures_that_are_none_are_unreadable_frames_and_too_tall_ones_one_sentence(
    tmp_path: Path, map_: Callable[..., Done]
) -> None:
    mixed, tall = tmp_path / "mixed", tmp_path / "tall"
    mixed.mkdir()
    tall.mkdir()
    for index in (0, 3):
        Image.new("RGB", (64, 48), (0, 80 * index, 0)).save(mixed / f"{index}.png")
    (mixed / "1.avif").write_bytes(bytes.fromhex("0000001c66747970617669660000000061766966") + bytes(300))
    (mixed / "2.png").write_bytes(b"BLP2" + bytes(300))
    Image.new("1", (1, 40_000)).save(tall / "0.png")
    options = ["--size", "56", "--format", "tum", "--json", "--out", str(tmp_path / "out")]
    done = map_(str(mixed), *options)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["index"] for event in events if event["event"] == "unreadable"] == [1, 2]
    refused = map_(str(tall), "--size", "518", *options[2:], "--overwrite")
    assert refused.returncode == 1
    assert "at most 50 million pixels in a picture of 1x40000" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_many_frames_that_cannot_be_read_are_told_once_with_a_count(tmp_path: Path, map_: Callable[..., Done]) -> None:
    Image.new("RGB", (64, 48)).save(tmp_path / "00.png")
    for index in range(1, 9):
        (tmp_path / f"{index:02d}.png").write_bytes(b"no picture")
    done = map_(str(tmp_path), "--size", "56", "--format", "tum", "--out", str(tmp_path / "out"))
    lines = [
        line for line in (done.stdout + done.stderr).splitlines() if "frame 1 at" in line or "could not be" in line
    ]
    assert len(lines) == 2
    assert lines[1].startswith("7 more frames up to frame 8 at ")


def test_last_line_says_what_was_mapped_and_when_poses_are_final(tmp_path: Path, map_: Callable[..., Done]) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for index in range(16):
        Image.new("RGB", (64, 48) if index != 5 else (48, 36), (0, 15 * index, 0)).save(folder / f"{index}.png")
    options = ("--size", "56", "--format", "tum", "--windows", "9/2", "--fps", "2", "--out", str(tmp_path / "out"))
    done = map_(str(folder), *options)
    assert done.returncode == 0, done.stderr
    assert "picture '5' at 2.500 s" in done.stdout
    assert "is of another size (48x36; the first is 64x48) and is left out; make all one size" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert re.match(
        r"15 of 16 frames at .*, each pose final at most \d\.\d s of video after its frame.*, 1 unreadable;", last
    )


def test_what_is_made_after_the_last_frame_is_counted_and_its_time_told(
    tmp_path: Path, run_here: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    moved = CorrectedSpan(first_frame=0, last_frame=3, known_from_said=NOT_MOVED)
    monkeypatch.setattr(Run, "_corrections", Corrections((moved,)))
    correct_take = run_folder.correct_take

    def slowly(folder: Path, corrections: Corrections) -> Take:
        time.sleep(1.1)
        return correct_take(folder, corrections)

    monkeypatch.setattr(run_folder, "correct_take", slowly)
    out = tmp_path / "out"
    formats = ("--format", "tum,ply,depth,images,glb")
    done = run_here("map", "world:3?frames=6&size=42x28", *MODEL, "--size", "42", *formats, "--out", str(out))
    assert done.returncode == 0, done.stderr
    told = [line.partition(",")[0] for line in done.stdout.splitlines()]
    assert [line for line in told if line.startswith("Making")] == [
        f"Making cloud.ply anew: {number} of 6" for number in range(1, 7)
    ]
    assert re.search(r"^6 frames at .* frames/s, [12]\.\d s more after the last, 6 kept", done.stdout, re.MULTILINE)
    assert re.search(r"MB in all with the export, \d\.\d s after the last frame$", done.stdout, re.MULTILINE)
    summary = json.loads((out / SUMMARY_NAME).read_text())
    assert summary["finishing_s"] > 1.1
    assert summary["frames_per_s"] == pytest.approx(6 / summary["seconds"])


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
    assert not (tmp_path / "out").exists()


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
    peaks = [event["peak_resident_bytes"] for event in events[-2:]]
    assert peaks[1] >= peaks[0] > 50_000_000
    assert json.loads((out / SUMMARY_NAME).read_text())["peak_resident_bytes"] == peaks[1]
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


SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
SHORT = ["world:1?frames=6&size=42x28", *MODEL, "--size", "42", "--format", "tum,glb"]


@SIGNALS
def test_asked_to_end_while_it_exports_a_run_ends_at_once_and_exports_when_resumed(
    tmp_path: Path, run_here: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """The signal comes from within, as soon as the export has begun."""
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "read_take", lambda _: signal.raise_signal(number))
        done = run_here("map", *SHORT, "--out", str(out))
    assert done.returncode == 130, done.stderr
    assert "6 frames at" in done.stdout
    assert "The export was interrupted; go on with --resume." in done.stdout
    assert not (out / EXPORT_FOLDER / RECORD_NAME).exists()
    assert run_here("map", *SHORT, "--out", str(out), "--resume").returncode == 0
    assert (out / EXPORT_FOLDER / RECORD_NAME).exists()


def test_asked_to_end_after_its_last_frame_a_run_does_not_begin_to_export(
    tmp_path: Path, run_here: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, finish = tmp_path / "out", RunFolder.finish

    def ending_first(folder: RunFolder, summary: MapSummary, corrections: Corrections | None) -> None:
        signal.raise_signal(signal.SIGINT)
        finish(folder, summary, corrections)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "finish", ending_first)
        patch.setattr(run_folder, "read_take", lambda _: pytest.fail("an export was begun"))
        done = run_here("map", *SHORT, "--out", str(out))
    assert done.returncode == 130, done.stderr
    assert "6 frames at" in done.stdout
    assert "The export was interrupted; go on with --resume." in done.stdout
    assert run_here("map", *SHORT, "--out", str(out), "--resume").returncode == 0
    assert (out / EXPORT_FOLDER / RECORD_NAME).exists()


@SIGNALS
def test_asked_to_end_a_run_finishes_its_frames_and_goes_on_when_resumed(
    tmp_path: Path, run_here: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """The signal comes from within, with the first frame."""
    options = [
        "world:1?frames=24&size=42x28",
        *MODEL,
        "--size",
        "42",
        "--format",
        "tum",
        "--out",
        str(tmp_path / "out"),
    ]
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "write_progress", lambda *_: signal.raise_signal(number))
        done = run_here("map", *options)
    assert done.returncode == 130, done.stderr
    assert "go on with --resume" in done.stdout
    assert run_here("map", *options, "--resume").returncode == 0
    assert len(read_take(tmp_path / "out")) == 24


def test_asked_to_end_before_anything_is_mapped_a_command_leaves_nothing(
    tmp_path: Path, run_here: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(video_map, "Mapper", lambda *_: signal.raise_signal(signal.SIGTERM))
    assert run_here("map", *SHORT, "--out", str(tmp_path / "out")).returncode == 130
    assert not (tmp_path / "out").exists()


def test_the_folder_of_a_source_is_never_replaced(tmp_path: Path, map_: Callable[..., Done], walk: Path) -> None:
    """Not by a run in place of it, nor by one that would go on in it; nor are files that only look like a run's."""
    strange = tmp_path / "strange"
    strange.mkdir()
    for name in ("events.jsonl", "report.html", SESSION_NAME, "summary.json"):
        (strange / name).write_text("{}")
    before = contents(walk), contents(strange)
    for source, out in ((walk / "video.mp4", walk), (walk, walk), (walk, strange)):
        for option in ("--overwrite", "--resume"):
            done = map_(str(source), "--out", str(out), option)
            assert done.returncode == 1
            assert "name another folder, or delete this one" in done.stderr
    assert (contents(walk), contents(strange)) == before


@pytest.fixture(scope="module")
def walk(longtake: Callable[..., Done], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `longtake world` films it, but short and small."""
    out = tmp_path_factory.mktemp("world") / "walk"
    done = longtake("world", "--out", str(out), "--frames", "6", "--size", "112x84", "--questions", "0")
    assert done.returncode == 0, done.stderr
    return out


def test_commands_chain_by_default(tmp_path: Path, longtake: Callable[..., Done], walk: Path) -> None:
    """A world filmed, mapped and scored, and both exported, with what each command keeps by itself."""
    mapped = tmp_path / "mapped"
    assert longtake("map", str(walk), "--out", str(mapped)).returncode == 0
    scored = longtake("eval", str(mapped), str(walk), "--json")
    assert scored.returncode == 0, scored.stderr
    assert json.loads(scored.stdout)["depth"]["resampled_from"] == {"width": 126, "height": 98}
    for take in (mapped, walk):
        out = tmp_path / f"{take.name}-export"
        done = longtake("export", str(take), "--format", "colmap,nerfstudio", "--out", str(out))
        assert done.returncode == 0, done.stderr
        record = json.loads((out / RECORD_NAME).read_text())
        assert record["frames_with_points"] == 6
        assert record["unit"] == ("m" if take is walk else "model")
        assert len(list((out / "colmap" / "images").iterdir())) == 6
        assert len(json.loads((out / "nerfstudio" / "transforms.json").read_text())["frames"]) == 6


@pytest.mark.extra
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
