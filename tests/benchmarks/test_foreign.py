"""Scenes of others are mapped and compared as commands do it, made once, and named."""

import json
from pathlib import Path

import pytest

import longtake
from benchmarks.foreign import CASTLE, foreign, foreign_take, score_scenes
from longtake.api.progress import plain_console
from longtake.cli.world import WorldSettings, film
from longtake.errors import InputError, SettingError


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("foreign") / CASTLE
    film(WorldSettings(seed=9, frames=12, size="126x98", out=folder), plain_console(stderr=True))
    return folder


def test_figures_are_those_of_map_and_eval(walk: Path, tmp_path: Path) -> None:
    (score,) = score_scenes("micro-map", [walk])
    report = longtake.evaluate(longtake.map(walk, tmp_path, model="micro-map", format="depth-npz"), walk)
    assert report.trajectory is not None
    assert report.depth is not None
    assert (score.scene, score.num_frames) == (CASTLE, 12)
    assert (score.auc_5, score.auc_15, score.auc_30) == report.trajectory.auc.auc[1:]
    assert score.abs_rel == report.depth.errors.abs_rel
    assert score.abs_rel < 0.1
    assert score.ate_share == report.trajectory.absolute.share_of_path


def test_a_take_that_is_there_is_used_again_and_told_in_table_and_json(
    walk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert foreign_take(CASTLE, walk.parent, castle=Path("nowhere"), num_frames=9, size=(98, 126)) == walk
    foreign(model="tiny", scenes=CASTLE, folder=walk.parent)
    assert "tiny, scenes that others made" in capsys.readouterr().out
    foreign(model="tiny", scenes=CASTLE, folder=walk.parent, as_json=True)
    (scene,) = json.loads(capsys.readouterr().out)["scenes"]
    assert scene["scene"] == CASTLE
    assert 0 <= scene["auc_5"] <= scene["auc_15"] <= scene["auc_30"] <= 1


def test_a_scene_that_is_unknown_or_cannot_be_had_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no foreign scene 'moon'; choose some of castle, table"):
        foreign(scenes="moon", folder=tmp_path)
    with pytest.raises(InputError, match="run: make castle"):
        foreign(scenes=CASTLE, folder=tmp_path, castle=tmp_path / "nowhere")


@pytest.mark.extra
def test_a_rendered_scene_is_made_once_and_scored(tmp_path: Path) -> None:
    pytest.importorskip("pybullet")
    take = foreign_take("heap", tmp_path, castle=tmp_path, num_frames=6, size=(98, 126))
    written = (take / "take.json").stat().st_mtime_ns
    assert foreign_take("heap", tmp_path, castle=tmp_path, num_frames=6, size=(98, 126)) == take
    assert (take / "take.json").stat().st_mtime_ns == written
    (score,) = score_scenes("micro-map", [take])
    assert (score.scene, score.num_frames) == ("heap", 6)
