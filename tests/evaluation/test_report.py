"""Whole reports on takes of a room, whose result is the truth changed in a known way."""

import math
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from longtake.errors import InputError, MissingExtraError
from longtake.evaluation.alignment_mode import AlignmentMode
from longtake.evaluation.depth_alignment import AlignmentSpan, DepthAlignment
from longtake.evaluation.relative import Delta
from longtake.evaluation.report import EvalReport, evaluate
from longtake.evaluation.settings import EvalSettings, Part
from longtake.evaluation.steps import BeginSteps
from longtake.spatial.similarity import Similarity
from longtake.takes.header import Unit
from longtake.takes.take import read_take

Film = Callable[..., Path]
DEFAULTS = EvalSettings()


def ate(result: Path, truth: Path, align: AlignmentMode) -> float:
    report = evaluate(result, truth, EvalSettings(align=align, only=(Part.TRAJECTORY,)))
    assert report.trajectory is not None
    return report.trajectory.absolute.translation.rmse


def require_whole(report: EvalReport) -> None:
    assert report.trajectory is not None
    assert report.depth is not None
    assert report.points is not None


def test_truth_against_itself_has_no_error(film_room: Film) -> None:
    truth = film_room("truth")
    report = evaluate(truth, truth, DEFAULTS)
    assert report.trajectory is not None
    assert report.trajectory.absolute.translation.max < 1e-12
    assert report.trajectory.relative.rotation_deg.max < 1e-5
    assert report.trajectory.auc.auc == (1.0, 1.0, 1.0, 1.0)
    assert report.depth is not None
    assert max(errors.abs_rel for errors in report.depth.by_alignment.values()) < 1e-12
    assert report.points is not None
    assert report.points.errors.f1 == 1
    assert report.points.errors.normal_consistency == pytest.approx(1)
    assert report.not_measured.keys() == {Part.ANSWERS}
    assert report.notes == ()


def test_moved_copy_has_no_error_where_it_may_be_moved_back(film_room: Film, elsewhere: Similarity) -> None:
    truth = film_room("truth")
    moved = film_room("moved", moved=elsewhere, unit=Unit.MODEL)
    assert ate(moved, truth, AlignmentMode.SIM3) < 1e-12
    # Cameras on a circle of about 1 m become one of 0.4 m, which no rigid motion can grow.
    assert 0.4 < ate(moved, truth, AlignmentMode.SE3) < 0.8
    assert ate(moved, truth, AlignmentMode.NONE) > 3
    report = evaluate(moved, truth, DEFAULTS)
    require_whole(report)
    assert report.trajectory is not None
    assert report.trajectory.absolute.scale == pytest.approx(2.5)
    assert report.depth is not None
    assert report.depth.by_alignment.keys() == {DepthAlignment.SCALE, DepthAlignment.SCALE_AND_SHIFT}
    assert report.depth.errors.abs_rel < 2e-5
    assert report.points is not None
    assert report.points.errors.accuracy_mean < 1e-5


def test_unit_that_means_nothing_is_noted_where_scale_counts(film_room: Film, elsewhere: Similarity) -> None:
    truth, moved = film_room("truth"), film_room("moved", moved=elsewhere, unit=Unit.MODEL)
    [note] = evaluate(moved, truth, EvalSettings(align=AlignmentMode.SE3, only=(Part.TRAJECTORY,))).notes
    assert "in a unit of its own" in note
    assert evaluate(truth, truth, EvalSettings(align=AlignmentMode.SE3, only=(Part.TRAJECTORY,))).notes == ()


def test_steps_of_long_parts_are_told(film_room: Film) -> None:
    truth, told = film_room("truth"), Counter[tuple[Part, int]]()

    def progress(part: Part) -> BeginSteps:
        return lambda num_steps: lambda: told.update([(part, num_steps)])

    evaluate(truth, truth, DEFAULTS, progress=progress)
    assert [part for part, _ in told] == [Part.DEPTH, Part.POINTS]
    assert all(num_told == num_steps for (_, num_steps), num_told in told.items())
    told.clear()
    evaluate(truth, truth, EvalSettings(depth_span=AlignmentSpan.FRAME, only=(Part.DEPTH,)), progress=progress)
    assert all(num_told == num_steps for (_, num_steps), num_told in told.items())


def test_only_those_parts_that_are_wanted_are_there(film_room: Film) -> None:
    truth = film_room("truth")
    for part in (Part.TRAJECTORY, Part.DEPTH, Part.POINTS):
        report = evaluate(truth, truth, EvalSettings(only=(part,)))
        measured = {
            Part.TRAJECTORY: report.trajectory,
            Part.DEPTH: report.depth,
            Part.POINTS: report.points,
            Part.ANSWERS: report.answers,
        }
        assert {name for name, value in measured.items() if value is not None} == {part}
        assert report.not_measured == {}


def test_trajectory_file_against_a_take_tells_why_the_rest_is_not_there(film_room: Film) -> None:
    truth = film_room("truth")
    report = evaluate(truth / "poses.tum", truth, DEFAULTS)
    assert report.trajectory is not None
    assert report.trajectory.absolute.translation.max < 1e-12
    for part in (Part.DEPTH, Part.POINTS):
        assert "poses.tum is a trajectory alone" in report.not_measured[part]
        with pytest.raises(InputError, match="is a trajectory alone; name a take's folder"):
            evaluate(truth / "poses.tum", truth, EvalSettings(only=(part,)))
    assert "has no questions" in report.not_measured[Part.ANSWERS]


def test_take_without_depth_says_so(film_room: Film) -> None:
    truth, bare = film_room("truth"), film_room("bare", change_depth=None)
    for result, other in ((bare, truth), (truth, bare)):
        report = evaluate(result, other, DEFAULTS)
        assert report.trajectory is not None
        assert "bare has no depth" in report.not_measured[Part.DEPTH]
        assert "bare has no depth" in report.not_measured[Part.POINTS]


def test_empty_depth_says_so_and_is_an_error_where_depth_was_asked_for(film_room: Film) -> None:
    truth, empty = film_room("truth"), film_room("empty", change_depth=lambda depth: 0 * depth)
    report = evaluate(empty, truth, DEFAULTS)
    assert report.trajectory is not None
    assert "none of 12 frames has one" in report.not_measured[Part.DEPTH]
    assert "Expected 3 or more predicted points, but 0 came" in report.not_measured[Part.POINTS]
    for part in (Part.DEPTH, Part.POINTS):
        with pytest.raises(InputError):
            evaluate(empty, truth, EvalSettings(only=(part,)))


def test_damaged_depth_fails_its_parts_alone(film_room: Film) -> None:
    truth, damaged = film_room("truth"), film_room("damaged")
    (damaged / "depth" / "000003.npz").write_bytes(b"torn")
    report = evaluate(damaged, truth, DEFAULTS)
    assert report.trajectory is not None
    assert "000003.npz" in report.not_measured[Part.DEPTH]


def test_missing_scipy_is_the_reason_that_points_are_not_measured(
    film_room: Film, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = film_room("truth")
    monkeypatch.setitem(sys.modules, "scipy.spatial", None)
    report = evaluate(truth, truth, DEFAULTS)
    assert report.depth is not None
    assert 'pip install "longtake[eval]"' in report.not_measured[Part.POINTS]
    with pytest.raises(MissingExtraError):
        evaluate(truth, truth, EvalSettings(only=(Part.POINTS,)))


def test_trajectories_that_cannot_be_compared_end_it_all(film_room: Film) -> None:
    truth = film_room("truth")
    late = film_room("late", steps=range(100, 110))
    single = film_room("single", steps=[3])
    with pytest.raises(InputError, match=r"runs from 10\.0.* no pair of poses is"):
        evaluate(late, truth, DEFAULTS)
    with pytest.raises(InputError, match="only 1 pair of poses"):
        evaluate(single, truth, DEFAULTS)
    with pytest.raises(InputError, match=r"No two of 12 matched poses .* are 20 frames apart"):
        evaluate(truth, truth, EvalSettings(delta=Delta(length=20.0)))
    assert evaluate(late, truth, EvalSettings(offset_s=-10.0)).matched is not None


def test_camera_that_stands_still_has_no_drift_and_no_direction(film_room: Film) -> None:
    truth = film_room("truth")
    nowhere = Similarity(torch.tensor(1e-300).double(), torch.eye(3).double(), torch.zeros(3).double())
    still = film_room("still", moved=nowhere, change_depth=None)
    report = evaluate(still, truth, DEFAULTS)
    assert report.trajectory is not None
    assert report.trajectory.drift is None
    assert math.isfinite(report.trajectory.absolute.translation.rmse)


def test_every_third_frame_is_compared_with_its_own(film_room: Film) -> None:
    truth, sparse = film_room("truth", steps=range(30), fps=30.0), film_room("sparse", steps=range(0, 30, 3), fps=30.0)
    for result, other in ((sparse, truth), (truth, sparse)):
        report = evaluate(result, other, DEFAULTS)
        require_whole(report)
        assert report.depth is not None
        assert report.depth.errors.num_frames == 10
        assert report.depth.by_alignment[DepthAlignment.METRIC].abs_rel < 1e-12
        assert report.points is not None
        assert report.points.errors.f1 == 1
        assert report.notes == ()


def test_settings_are_those_of_the_report(film_room: Film) -> None:
    truth = film_room("truth")
    settings = replace(DEFAULTS, threshold=0.2, depth_align=DepthAlignment.METRIC)
    report = evaluate(truth, truth, settings)
    assert report.settings == settings
    assert report.depth is not None
    assert report.depth.chosen is DepthAlignment.METRIC
    assert report.points is not None
    assert report.points.errors.threshold == 0.2
    assert len(read_take(truth)) == 12
