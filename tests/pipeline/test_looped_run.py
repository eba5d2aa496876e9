"""A walk that comes back, mapped into a folder: what is known in the end, the same however the run was broken off."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from forked import run_program
from returning import ADOPTED, EASY_RULE, NUM_FRAMES, TORN, easy_card, easy_loops, files, run
from told import known_poses

from longtake.errors import SettingError
from longtake.exports.poses import LivePoses
from longtake.exports.report.folder import RUN_NAME
from longtake.geometry.model import GeometryModel
from longtake.hub.load import load_model
from longtake.pipeline.events import Event, Frame, Moved
from longtake.pipeline.outputs import choose_outputs
from longtake.places.loop_choice import LoopChoice, choose_loops
from longtake.takes.header import CORRECTIONS_NAME, ONLINE_POSES_NAME, POSES_NAME
from longtake.takes.take import read_take

KILLED = """
import os, signal
from pathlib import Path
from longtake.hub.load import load_model
from longtake.pipeline.events import Frame, Saved
from returning import run

saved = 0
for event in run(load_model("tiny"), Path({out!r})):
    saved = event.num_frames if isinstance(event, Saved) else saved
    if isinstance(event, Frame) and saved >= {after}:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def model() -> GeometryModel:
    return load_model("tiny")


@pytest.fixture(scope="module")
def told(model: GeometryModel, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Event]]:
    """A whole run, and all that it told."""
    out = tmp_path_factory.mktemp("looped") / "out"
    return out, list(run(model, out))


@pytest.fixture(scope="module")
def plain(model: GeometryModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same walk without loops."""
    out = tmp_path_factory.mktemp("plain") / "out"
    list(run(model, out, loops=LoopChoice()))
    return out


def test_loops_close_while_the_video_runs_and_at_its_end(told: tuple[Path, list[Event]]) -> None:
    out, events = told
    moves = [event for event in events if isinstance(event, Moved) and len(event.correction.spans) > 1]
    assert len(moves) >= 2
    assert [event.correction.version for event in events if isinstance(event, Moved)] == sorted(
        event.correction.version for event in events if isinstance(event, Moved)
    )
    loops = json.loads((out / "summary.json").read_text())["loops"]
    assert loops["are_closed"]
    assert loops["num_loops"] >= 2
    assert 0 < loops["num_bytes"] <= loops["most_bytes"]


def test_the_take_has_what_was_told_last_to_the_bit(told: tuple[Path, list[Event]]) -> None:
    out, events = told
    take = read_take(out)
    assert take.corrections is not None
    known = known_poses(events)
    assert sorted(known) == [record.index for record in take.records] == sorted(set(range(NUM_FRAMES)) - TORN)
    for record, pose in zip(take.records, take.trajectory.world_from_camera, strict=True):
        assert torch.equal(pose, known[record.index]), record.index


def test_poses_that_follow_what_is_told_are_the_file_of_the_take(
    told: tuple[Path, list[Event]], tmp_path: Path
) -> None:
    """As `live --out` keeps them; to the byte."""
    out, events = told
    with LivePoses(tmp_path / POSES_NAME) as live:
        for event in events:
            if isinstance(event, Frame) and event.mapped is not None:
                live.write(event.mapped)
            elif isinstance(event, Moved):
                live.correct(event.correction)
    assert (tmp_path / POSES_NAME).read_bytes() == (out / POSES_NAME).read_bytes()


def test_what_was_said_at_the_time_stays_and_without_loops_is_all_there_is(
    told: tuple[Path, list[Event]], plain: Path
) -> None:
    """Until the first loop moves the world, a run says what it says without loops."""
    said = (told[0] / ONLINE_POSES_NAME).read_bytes().splitlines()
    without = (plain / POSES_NAME).read_bytes().splitlines()
    assert said[: ADOPTED - 10] == without[: ADOPTED - 10]
    assert (told[0] / POSES_NAME).read_bytes().splitlines()[: ADOPTED - 10] != said[: ADOPTED - 10]
    assert not (plain / ONLINE_POSES_NAME).exists()
    assert not (plain / CORRECTIONS_NAME).exists()
    assert "loops" not in json.loads((plain / RUN_NAME).read_text())["settings"]
    assert json.loads((plain / "summary.json").read_text())["loops"] == LoopChoice().told


def test_runs_repeat_to_the_bit(model: GeometryModel, told: tuple[Path, list[Event]], tmp_path: Path) -> None:
    list(run(model, tmp_path / "out"))
    assert files(tmp_path / "out") == files(told[0])


@pytest.mark.parametrize(
    "stopped_after", [pytest.param(24, marks=pytest.mark.by_hand), 34, pytest.param(44, marks=pytest.mark.by_hand)]
)
def test_a_run_that_goes_on_ends_as_if_never_stopped(
    model: GeometryModel, told: tuple[Path, list[Event]], tmp_path: Path, stopped_after: int
) -> None:
    """Before a loop is adopted, while another is solved, and after."""
    first = run(model, tmp_path / "out")
    for number, _ in enumerate(first, start=1):
        if number == stopped_after:
            first.stop()
    list(run(model, tmp_path / "out", resume=True))
    assert files(tmp_path / "out") == files(told[0])


@pytest.mark.parametrize("after", [25, pytest.param(40, marks=pytest.mark.by_hand)])
def test_a_run_that_was_killed_ends_as_if_never_stopped(
    model: GeometryModel, told: tuple[Path, list[Event]], tmp_path: Path, after: int
) -> None:
    script = KILLED.format(out=str(tmp_path / "out"), after=after)
    path = str(Path(__file__).parents[1] / "support")
    killed = run_program(f"import sys; sys.path.insert(0, {path!r})\n{script}")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    list(run(model, tmp_path / "out", resume=True))
    assert files(tmp_path / "out") == files(told[0])


def test_a_run_goes_on_with_the_loops_that_it_was_begun_with(model: GeometryModel, tmp_path: Path) -> None:
    first = run(model, tmp_path / "out")
    for number, _ in enumerate(first, start=1):
        if number == 12:
            first.stop()
    with pytest.raises(SettingError, match=r"begun with other settings .*loops"):
        run(model, tmp_path / "out", loops=LoopChoice(), resume=True)


def test_a_cloud_is_made_of_a_take_that_has_what_it_takes_where_frames_may_move() -> None:
    still, moving = (choose_outputs(("tum", "ply"), may_move=may_move).take for may_move in (False, True))
    assert (still.images, still.depth, still.confidence) == (None, None, False)
    assert None not in (moving.images, moving.depth)
    assert moving.confidence
    assert choose_outputs(("tum", "kitti"), may_move=True) == choose_outputs(("tum", "kitti"))


def test_whether_loops_are_closed_is_told_with_the_reason() -> None:
    card = easy_card()
    assert str(choose_loops(card)) == "loops are closed"
    assert str(choose_loops(card, are_wanted=False)) == "no loops: as asked for"
    assert str(choose_loops(None)) == "no loops: the model has no card of loops"
    assert easy_loops().rule == EASY_RULE


@pytest.mark.by_hand
@pytest.mark.timeout(3600)
def test_a_walk_through_a_house_that_was_killed_ends_as_if_never_stopped(tmp_path: Path) -> None:
    """With the bundled model, its own card and the command itself; the loop of this walk closes near frame 220."""
    walk = ["world:8?frames=252&size=126x98", "--format", "tum,ply,kitti", "--checkpoint-every", "20"]
    program = [sys.executable, "-m", "longtake", "map", *walk, "--json", "--out"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    subprocess.run([*program, str(whole)], check=True, capture_output=True)
    with subprocess.Popen([*program, str(cut)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "saved" and event["num_frames"] >= 220:
                process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    subprocess.run([*program, str(cut), "--resume"], check=True, capture_output=True)
    assert read_take(whole).corrections is not None
    assert files(cut) == files(whole)
