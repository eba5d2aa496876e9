"""Exports of a walk that was lost and never found: what lies apart is told, and left out where that is wished for."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from returning import EASY_RULE, easy_card, run, with_darkness

import longtake
from longtake.cli.export import export_lines
from longtake.errors import InputError
from longtake.exports.placed import places_of
from longtake.exports.record import RECORD_NAME, ExportRecord
from longtake.exports.reexport import ExportSettings, export_take
from longtake.geometry.model import GeometryModel
from longtake.pipeline.events import Ended
from longtake.places.loop_choice import LoopChoice
from longtake.takes.take import Take, read_take
from longtake.takes.tum import read_tum


@pytest.fixture(scope="module")
def apart(tiny_model: GeometryModel, tmp_path_factory: pytest.TempPathFactory) -> Take:
    """A walk before and after the dark; points of the two are never believed to be the same."""
    out = tmp_path_factory.mktemp("apart") / "out"
    nothing_agrees = LoopChoice(card=replace(easy_card(), least_agreeing=10**9), rule=EASY_RULE, why="for a test")
    events = list(run(tiny_model, out, loops=nothing_agrees, shown=with_darkness()[:30]))
    told = next(event.tracking for event in events if isinstance(event, Ended))
    assert told is not None
    assert told.apart == (1,)
    take = read_take(out)
    assert told.frames_apart == len(places_of(take).not_joined) > 5
    return take


def test_an_export_tells_how_many_frames_lie_apart(apart: Take, tmp_path: Path) -> None:
    places = places_of(apart)
    assert len(apart) == len(places.joined) + len(places.not_joined) + len(places.lost)
    record = export_take(apart, tmp_path, ExportSettings(formats=("tum",)))
    assert (record.frames_not_joined, record.frames_lost) == (len(places.not_joined), len(places.lost))
    assert (record.frames, record.joined_only, record.frames_left_out) == (len(apart), False, 0)
    assert ExportRecord.parse((tmp_path / RECORD_NAME).read_bytes(), RECORD_NAME) == record
    *notes, line = (text.plain for text in export_lines(record))
    assert f", {len(places.not_joined)} in parts that are not joined, {len(places.lost)} lost:" in line
    assert any("--joined-only (joined_only=True)" in note for note in notes)


def test_of_what_is_joined_only_that_is_exported(apart: Take, tmp_path: Path) -> None:
    joined = list(places_of(apart).joined)
    settings = ExportSettings(formats=("tum", "kitti", "ply", "take", "nerfstudio", "colmap", "glb"), joined_only=True)
    record = export_take(apart, tmp_path / "joined", settings)
    assert (record.frames, record.frames_left_out) == (len(joined), len(apart) - len(joined))
    assert (record.frames_not_joined, record.frames_lost) == (0, 0)
    (*_, line) = export_lines(record)
    assert f"{len(joined)} frames in model units" in line.plain
    assert f", {len(apart) - len(joined)} more left out (not joined or lost)" in line.plain
    poses = read_tum(tmp_path / "joined" / "poses.tum").world_from_camera
    torch.testing.assert_close(poses, apart.trajectory.world_from_camera[joined])
    taken = read_take(tmp_path / "joined" / "take")
    assert [one.index for one in taken.records] == [apart.records[place].index for place in joined]
    np.testing.assert_array_equal(taken.depth(len(joined) - 1), apart.depth(joined[-1]))
    scene = json.loads((tmp_path / "joined" / "nerfstudio" / "transforms.json").read_text())
    assert 0 < len(scene["frames"]) <= len(joined)
    export_take(apart, tmp_path / "all", ExportSettings(formats=("ply",)))
    sizes = [(tmp_path / name / "cloud.ply").stat().st_size for name in ("joined", "all")]
    assert sizes[0] < sizes[1]


def test_a_program_leaves_them_out_by_the_name_of_the_option(apart: Take, tmp_path: Path) -> None:
    record = longtake.export(apart.folder, tmp_path, format="tum", joined_only=True)
    assert record.frames_left_out == len(apart) - len(places_of(apart).joined)


def test_where_nothing_says_what_was_joined_that_is_one_sentence(apart: Take, tmp_path: Path) -> None:
    export_take(apart, tmp_path / "out", ExportSettings(formats=("take",)))
    again = read_take(tmp_path / "out" / "take")
    with pytest.raises(InputError, match="which of its 2 parts were joined"):
        export_take(again, tmp_path / "again", ExportSettings(formats=("tum",), joined_only=True))
    assert export_take(again, tmp_path / "plain", ExportSettings(formats=("tum",))).frames_not_joined == 0


def test_what_was_not_tracked_is_exported_whole(apart: Take, tmp_path: Path) -> None:
    plain = replace(apart, records=tuple(replace(one, tracking=None) for one in apart.records))
    record = export_take(plain, tmp_path, ExportSettings(formats=("tum",), joined_only=True))
    assert (record.frames, record.frames_left_out) == (len(apart), 0)
