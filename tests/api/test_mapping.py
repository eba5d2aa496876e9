"""`longtake.map`: the words of the command, a take at the end, and a bar on a terminal only."""

import inspect
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from walked import WALK

import longtake
from longtake.api.map_request import MapRequest
from longtake.errors import CheckpointError, InputError, SettingError
from longtake.geometry.model import GeometryModel

NOT_OF_A_PROGRAM = {"sources", "formats", "as_json", "server", "token", "certificate"}
"""Several videos, printing, and servers, for which a program has `longtake.Client`."""


def test_every_option_of_the_command_is_a_keyword_of_the_same_name() -> None:
    from longtake.cli.map import app

    (command,) = app.registered_commands
    assert command.callback is not None
    options = inspect.signature(command.callback).parameters.keys() - NOT_OF_A_PROGRAM
    assert inspect.signature(longtake.map).parameters.keys() - options == {"source", "format"}
    assert options <= inspect.signature(longtake.map).parameters.keys()


def test_a_request_has_every_keyword_that_is_not_of_the_folder() -> None:
    keywords = inspect.signature(longtake.map).parameters
    of_folder = {"source", "out", "resume", "skip_done", "overwrite"}
    known = {field.name: field.default for field in fields(MapRequest)}
    assert known == {name: keywords[name].default for name in keywords.keys() - of_folder}


def test_map_returns_what_it_wrote_and_says_nothing_off_a_terminal(
    model: GeometryModel, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    take = longtake.map(WALK, tmp_path / "mapped", model=model, end=1.2, format=["tum", "ply", "depth", "images"])
    assert capfd.readouterr() == ("", "")
    assert isinstance(take, longtake.Take)
    assert repr(take) == f"Take({tmp_path / 'mapped'}: 12 frames of 126x98 in 1.1 s; images, depth)"
    assert repr(take.trajectory).startswith("Trajectory(12 poses in 1.1 s, a way of 0.")
    assert take.trajectory.positions.shape == (12, 3)
    assert take.trajectory.rotations.shape == (12, 3, 3)
    assert take.depth(0).shape == (98, 126)
    assert take.image(11).shape == (98, 126, 3)
    assert take.intrinsics.shape == (12, 3, 3)
    assert take.summary is not None
    assert (take.summary["num_frames"], take.summary["is_complete"]) == (12, True)
    assert len(take.cloud(500)) == 500


def test_notes_on_the_video_and_the_model_are_logged_and_in_the_summary(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    frames = [np.zeros((90, 40, 3), dtype=np.uint8)]
    take = longtake.map(frames, tmp_path / "mapped", format="tum")
    assert take.summary is not None
    of_model, cut = take.summary["notes"]
    assert of_model.endswith('for real video type longtake.map(VIDEO, OUT, model="lingbot-map-long").')
    assert cut.endswith("of 40x90 pixels those above and below are cut off; --fit pad (fit='pad') shows all.")
    assert caplog.messages == [of_model, cut]


def test_frames_that_a_program_has_are_mapped_as_a_video_is(model: GeometryModel, tmp_path: Path) -> None:
    video = list(longtake.open_video(WALK, end="0.9"))
    want = longtake.map(WALK, tmp_path / "video", model=model, end="0.9", format="depth-npz")
    evenly = [np.asarray(frame.image) for frame in video]
    timed = zip(evenly, (frame.timestamp_s for frame in video), strict=True)
    for name, frames in (("evenly", evenly), ("timed", timed)):
        take = longtake.map(frames, tmp_path / name, model=model, picture_fps=10.0, format="depth-npz")
        assert torch.equal(take.trajectory.world_from_camera, want.trajectory.world_from_camera)
        assert np.array_equal(take.depth(8), want.depth(8))
    with pytest.raises(InputError, match=r"Expected a NumPy array as frame 0 of frames, but got str"):
        list(longtake.open_video(iter(["walk.mp4"])))


def test_a_folder_that_is_done_is_skipped_refused_or_replaced(model: GeometryModel, tmp_path: Path) -> None:
    first = longtake.map(WALK, tmp_path, model=model, end="0.9", format="depth-npz")
    again = longtake.map("nothing.mp4", tmp_path, model=model, skip_done=True, format="depth-npz")
    assert torch.equal(first.trajectory.world_from_camera, again.trajectory.world_from_camera)
    with pytest.raises(InputError, match=r"a run already; .* or replace it with .*\(overwrite=True\)"):
        longtake.map(WALK, tmp_path, model=model)
    with pytest.raises(SettingError, match=r"there is nothing to resume; --overwrite \(overwrite=True\) maps it again"):
        longtake.map(WALK, tmp_path, model=model, resume=True, end="0.9", format="depth-npz")
    other = longtake.map(WALK, tmp_path, model=model, end="0.9", overwrite=True, format="depth-npz", stride=2)
    assert len(other) == 5
    assert not np.array_equal(first.trajectory.timestamp_s, other.trajectory.timestamp_s)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"bugdet": "2GB"}, "map has no keyword 'bugdet'; choose one of source, out, model, memory"),
        ({"policy": "fifo"}, "no memory policy 'fifo' for a map; choose one of context"),
        ({"precision": "fp8"}, "no precision 'fp8'; choose one of fp32, bf16, fp16, auto"),
        ({"backend": "cudnn"}, "no attention backend 'cudnn'; choose one of"),
        ({"device": "tpu"}, "no device 'tpu'; choose one of"),
        ({"fit": "stretch"}, "Expected fit as crop, pad, square"),
        ({"format": "obj"}, "Expected format as tum, kitti, ply, .*, but got 'obj'"),
        ({"pixels": "both"}, "Expected pixels as model, source"),
        ({"when_full": "drop"}, "Expected when_full as "),
        ({"up": "z"}, "Expected up as auto, none"),
        ({"start": "soon"}, "Expected a time such as"),
        ({"start": 5.0, "end": 4.0}, "Expected an end after the start"),
        ({"stride": 0}, "Expected a stride from 1"),
        ({"checkpoint_every": 0}, "Expected a checkpoint every 1 frame"),
        ({"max_points": 0}, "Expected a cloud of 1 point or more"),
    ],
)
def test_a_bad_word_is_answered_with_what_there_is_and_nothing_is_written(
    tmp_path: Path, words: dict[str, object], sentence: str
) -> None:
    with pytest.raises(SettingError, match=sentence):
        longtake.map(WALK, tmp_path / "mapped", **words)
    assert not (tmp_path / "mapped").exists()


def test_an_unknown_model_or_source_is_one_sentence(model: GeometryModel, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="one of the names micro-map, "):
        longtake.map(WALK, tmp_path, model="nano-map")
    with pytest.raises(InputError, match=r"there is no 'walk\.mp4'"):
        longtake.map("walk.mp4", tmp_path, model=model)


@pytest.mark.extra
def test_command_and_program_write_the_same_bytes(tmp_path: Path) -> None:
    """Each as a user starts it, with as many threads as torch takes by itself."""
    source, environment = "world:9?frames=12&size=126x98", {**os.environ}
    environment.pop("OMP_NUM_THREADS", None)
    for program in (
        f"import sys; sys.argv[1:] = ['map', {source!r}, '--out', {str(tmp_path / 'command')!r}]; "
        "from longtake.cli.main import main; main()",
        f"import longtake; longtake.map({source!r}, out={str(tmp_path / 'program')!r})",
    ):
        subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True)
    for name in ("poses.tum", "frames.jsonl", "cloud.ply", "depth/000011.png", "confidence/000011.npz"):
        assert (tmp_path / "command" / name).read_bytes() == (tmp_path / "program" / name).read_bytes()
