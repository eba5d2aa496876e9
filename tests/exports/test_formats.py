"""Formats by name: ours, and one that somebody else adds."""

import sys
import types
from pathlib import Path

import pytest

from longtake.errors import MissingExtraError, SettingError
from longtake.exports.formats import FORMATS, Format, SinkOptions, format_named
from longtake.exports.frame import MappedFrame
from longtake.exports.reexport import ExportSettings, export_take
from longtake.exports.sink import AppendSink, Sink, SinkKind
from longtake.exports.take import TakeSettings, TakeSink
from longtake.takes.take import Take, read_take


class CentresSink(Sink):
    """Where the camera was, `x,y,z` for each frame."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def write(self, frame: MappedFrame) -> None:
        self._file.write(",".join(map(repr, frame.world_from_camera[:3, 3].tolist())) + "\n")

    def close(self) -> None:
        self._file.close()


CENTRES = Format(name="centres", file="centres.csv", open=lambda options: CentresSink(options.path))


@pytest.fixture
def take(tmp_path: Path, frames: list[MappedFrame]) -> Take:
    with TakeSink(tmp_path / "take", TakeSettings(images=None)) as sink:
        for frame in frames:
            sink.write(frame)
    return read_take(tmp_path / "take")


def test_a_format_of_ones_own_is_named_by_its_module(
    take: Take, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("my_formats")
    module.__dict__.update(CENTRES=CENTRES, number=7)
    monkeypatch.setitem(sys.modules, "my_formats", module)
    settings = ExportSettings(formats=("tum", "my_formats:CENTRES"))
    record = export_take(take, tmp_path / "out", settings)
    assert record.files["my_formats:CENTRES"] == str(tmp_path / "out" / "centres.csv")
    rows = [line.split(",") for line in (tmp_path / "out" / "centres.csv").read_text().splitlines()]
    assert [list(map(float, row)) for row in rows] == take.trajectory.world_from_camera[:, :3, 3].tolist()
    with pytest.raises(SettingError, match=r"Format at 'my_formats:number', but got int"):
        format_named("my_formats:number")


@pytest.mark.parametrize("name", ["no_such_module:CENTRES", "json:CENTRES", ":CENTRES", "json:", ":"])
def test_what_cannot_be_imported_is_one_sentence(name: str) -> None:
    with pytest.raises(SettingError, match=f"Expected a format at '{name}', but it cannot be imported"):
        format_named(name)


def test_an_unknown_format_is_told_which_there_are() -> None:
    with pytest.raises(SettingError, match=r"as tum, kitti, ply, take, colmap, .* or module:attribute, but got 'las'"):
        format_named("las")


def test_formats_of_kind_append_go_on_from_a_checkpoint(tmp_path: Path, frames: list[MappedFrame]) -> None:
    """And the others are nothing but one-shot: a registry that says otherwise is found here."""
    for known in FORMATS.values():
        if known.package is not None:
            continue
        with known.open(SinkOptions(path=tmp_path / known.file)) as sink:
            sink.write(frames[0])
            assert isinstance(sink, AppendSink) == (known.kind is SinkKind.APPEND)


def test_a_package_that_is_missing_is_told_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rerun", None)
    with pytest.raises(MissingExtraError, match=r'The format rrd needs rerun.*pip install "longtake\[rerun\]"'):
        FORMATS["rrd"].require_package()
