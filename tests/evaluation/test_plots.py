"""Plots: which are drawn, of what, and where they cannot be."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from longtake.errors import InputError, MissingExtraError, SettingError
from longtake.evaluation.figures import require_plots
from longtake.evaluation.plots import draw_report
from longtake.evaluation.report import evaluate
from longtake.evaluation.settings import EvalSettings, Part
from longtake.spatial.similarity import Similarity

Film = Callable[..., Path]


def height_of(path: Path) -> int:
    with Image.open(path) as image:
        assert np.asarray(image.convert("L")).std() > 5  # not a blank page
        return image.height


@pytest.mark.extra
def test_both_pictures_are_drawn_with_a_panel_for_each_error(
    film_room: Film, elsewhere: Similarity, tmp_path: Path
) -> None:
    truth = film_room("truth")
    result = film_room("result", moved=elsewhere)
    whole = draw_report(evaluate(result, truth, EvalSettings()), tmp_path / "new" / "whole")
    assert [path.name for path in whole] == ["trajectory.png", "error.png"]
    only = EvalSettings(only=(Part.TRAJECTORY,))
    poses = draw_report(evaluate(truth / "poses.tum", truth / "poses.tum", only), tmp_path / "poses")
    assert [path.name for path in poses] == ["trajectory.png", "error.png"]
    depth = draw_report(evaluate(result, truth, EvalSettings(only=(Part.DEPTH,))), tmp_path / "depth")
    assert [path.name for path in depth] == ["error.png"]
    assert height_of(whole[1]) > height_of(poses[1]) > height_of(depth[0])
    assert height_of(whole[0]) > 300


def test_frame_without_depth_leaves_a_gap(film_room: Film, tmp_path: Path) -> None:
    truth, left = film_room("truth"), iter(range(12))
    result = film_room("result", change_depth=lambda depth: depth * (next(left) != 5))
    [path] = draw_report(evaluate(result, truth, EvalSettings(only=(Part.DEPTH,))), tmp_path / "plots")
    assert height_of(path) > 200


def test_nothing_to_draw_and_nowhere_to_draw_it_are_told(film_room: Film, tmp_path: Path) -> None:
    truth = film_room("truth")
    points = evaluate(truth, truth, EvalSettings(only=(Part.POINTS,)))
    with pytest.raises(SettingError, match="pictures of trajectories and of depth"):
        draw_report(points, tmp_path / "plots")
    way = evaluate(truth, truth, EvalSettings(only=(Part.TRAJECTORY,)))
    with pytest.raises(InputError, match=r"Plots cannot be written to .*take\.json"):
        draw_report(way, truth / "take.json")


def test_missing_matplotlib_is_told_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install \"longtake\[plot\]\""):
        require_plots()
