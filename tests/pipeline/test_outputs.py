"""What a run is asked for by the names of formats, and the sinks that come of it."""

from pathlib import Path

import pytest

from longtake.errors import SettingError
from longtake.exports.adjust import ExportAdjustments
from longtake.exports.cloud import CloudSettings
from longtake.exports.scale import KnownDistance
from longtake.exports.take import DepthKind, PixelGrid
from longtake.pipeline.outputs import MAP_FORMATS, Outputs, choose_outputs, open_sinks
from longtake.takes.images import ImageFiles

METRIC = ExportAdjustments(length=KnownDistance(first=0, second=9, metres=2.4))


def test_formats_go_where_their_kind_says() -> None:
    outputs = choose_outputs(("tum", "kitti", "glb", "ply", "session", "colmap"))
    assert outputs.formats == ("kitti", "ply")
    assert outputs.session
    assert outputs.export is not None
    assert outputs.export.formats == ("colmap", "glb")


def test_a_take_has_what_was_asked_for_and_what_an_export_needs() -> None:
    plain = choose_outputs(("tum",), pixels=PixelGrid.SOURCE, fps=10.0)
    assert (plain.take.images, plain.take.depth, plain.take.confidence, plain.export) == (None, None, False, None)
    assert (plain.take.pixels, plain.take.fps, plain.formats) == (PixelGrid.SOURCE, 10.0, ())
    glb = choose_outputs(("glb",)).take
    assert (glb.images, glb.depth, glb.confidence) == (ImageFiles.JPEG, DepthKind.PNG, True)
    exact = choose_outputs(("depth-npz", "depth", "images")).take
    assert (exact.images, exact.depth, exact.confidence) == (ImageFiles.JPEG, DepthKind.NPZ, False)


def test_what_is_adjusted_at_the_end_is_exported_again() -> None:
    outputs = choose_outputs(("ply", "kitti", "depth"), adjustments=METRIC)
    assert outputs.formats == ("ply", "kitti")
    assert outputs.export is not None
    assert outputs.export.formats == ("tum", "kitti", "ply")
    assert outputs.export.adjustments == METRIC


def test_an_unknown_format_is_told_which_there_are() -> None:
    with pytest.raises(SettingError, match=r"as tum, .*, session, or module:attribute, but got 'las'"):
        choose_outputs(("tum", "las"))
    assert "take" not in MAP_FORMATS
    with pytest.raises(SettingError, match="format glb is made of a whole take"):
        Outputs(formats=("glb",))


def test_sinks_are_those_of_the_formats(tmp_path: Path) -> None:
    outputs = choose_outputs(("ply", "kitti"), cloud=CloudSettings(voxel=0.1))
    with open_sinks(tmp_path / "out", outputs) as sinks:
        assert list(sinks.checkpoint().values) == ["take", "ply", "kitti"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["cloud.ply", "poses.kitti"]
