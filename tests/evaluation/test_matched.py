"""Both sides of a comparison: files and takes, with and without times, at rates that fit and that do not."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from longtake.errors import InputError, SettingError
from longtake.evaluation.matched import read_matched
from longtake.evaluation.settings import EvalSettings, Part
from longtake.takes.header import Unit
from longtake.takes.take import read_take

Film = Callable[..., Path]
DEFAULTS = EvalSettings()


def write_kitti(take: Path, path: Path) -> Path:
    np.savetxt(path, read_take(take).trajectory.world_from_camera[:, :3].flatten(1).numpy())
    return path


def test_file_without_times_is_matched_one_by_one(film_room: Film, tmp_path: Path) -> None:
    truth = film_room("truth")
    matched = read_matched(write_kitti(truth, tmp_path / "kitti.txt"), truth, DEFAULTS)
    assert not matched.is_timed
    assert matched.frames.result_index.tolist() == matched.frames.truth_index.tolist() == list(range(12))
    assert matched.poses.timestamp_s.tolist() == [step / 10 for step in range(12)]
    assert matched.warning is None


def test_times_and_frame_rate_go_to_the_side_that_has_none(film_room: Film, tmp_path: Path) -> None:
    truth, sparse = film_room("truth", steps=range(10), fps=10.0), film_room("sparse", steps=range(0, 10, 2), fps=10.0)
    kitti, times = write_kitti(sparse, tmp_path / "kitti.txt"), tmp_path / "times.txt"
    times.write_text("0\n0.2\n0.4\n0.6\n0.8\n")
    with pytest.raises(InputError, match=r"5 poses and the truth 10.*give a file of times or a frame rate"):
        read_matched(kitti, truth, DEFAULTS)
    for settings in (EvalSettings(fps=5.0), EvalSettings(times=times)):
        for pair in ((kitti, truth), (truth, kitti)):
            matched = read_matched(*pair, settings)
            assert matched.is_timed
            assert matched.poses.timestamp_s.tolist() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])
            assert float((matched.poses.result - matched.poses.truth).abs().max()) < 1e-12


def test_times_that_nobody_needs_are_refused(film_room: Film) -> None:
    truth = film_room("truth")
    with pytest.raises(SettingError, match="have timestamps of their own; leave out the file of times"):
        read_matched(truth, truth / "poses.tum", EvalSettings(fps=10.0))


def test_frame_rates_that_do_not_fit_are_told(film_room: Film) -> None:
    truth = film_room("truth", steps=range(30), fps=30.0)
    other = film_room("other", steps=range(25), fps=25.0)
    matched = read_matched(other, truth, EvalSettings(max_gap_s=0.005))
    # Every fifth of 1/25 s is a sixth of 1/30 s; their neighbours are 6.7 ms apart.
    assert matched.frames.result_index.tolist() == [0, 5, 10, 15, 20]
    assert matched.warning == (
        "Only 5 of the result's 25 poses were matched, at most 0.005 s apart; there are 25 a second in the result and "
        "30 a second in the truth."
    )
    assert read_matched(other, truth, DEFAULTS).warning is None


def test_path_and_unit_are_those_of_the_truth(film_room: Film) -> None:
    truth = film_room("truth", unit=Unit.MODEL)
    matched = read_matched(truth / "poses.tum", truth, DEFAULTS)
    centres = read_take(truth).trajectory.world_from_camera[:, :3, 3].tolist()
    length = sum(math.dist(centres[step], centres[step + 1]) for step in range(11))
    assert matched.path_length == pytest.approx(length)
    assert (matched.result.unit, matched.truth.unit) == (Unit.METRE, Unit.MODEL)


def test_paths_that_lead_nowhere_are_told(film_room: Film, tmp_path: Path) -> None:
    truth = film_room("truth")
    with pytest.raises(InputError, match=r"There is no file .*nowhere"):
        read_matched(tmp_path / "nowhere", truth, DEFAULTS)
    with pytest.raises(InputError, match=r"take\.json cannot be read"):
        read_matched(truth, tmp_path, DEFAULTS)


def test_settings_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    for threshold in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(SettingError, match="points count as met must be positive"):
            EvalSettings(threshold=threshold)
    with pytest.raises(SettingError, match="choose from trajectory, depth, points, answers"):
        EvalSettings(only=())
    with pytest.raises(SettingError, match="either a file of timestamps or a frame rate"):
        EvalSettings(times=tmp_path, fps=1.0)
    assert not EvalSettings(only=(Part.ANSWERS, Part.ANSWERS)).needs_poses
    assert EvalSettings(only=(Part.ANSWERS, Part.DEPTH)).needs_poses
