"""What holds for every one-shot sink of a whole scene: a full disk leaves whole files, others' files are left alone."""

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from longtake.errors import InputError
from longtake.exports.cloud import CloudSettings
from longtake.exports.colmap import ColmapFiles, ColmapSink
from longtake.exports.frame import MappedFrame
from longtake.exports.glb import GlbSink
from longtake.exports.nerfstudio import NerfstudioSink
from longtake.exports.point_filter import PointFilter
from longtake.exports.sink import Sink
from longtake.takes.images import ImageFiles

SMALL = CloudSettings(max_points=300, points=PointFilter(every=2))
"""So small that voxels become wider again and again."""

Open = Callable[..., Sink]
FilesOf = Callable[[Path], dict[str, bytes]]


def open_colmap(folder: Path, *, overwrite: bool = False) -> Sink:
    return ColmapSink(folder / "colmap", CloudSettings(), overwrite=overwrite)


def open_text_colmap(folder: Path, *, overwrite: bool = False) -> Sink:
    chosen = ColmapFiles.TEXT, ImageFiles.PNG
    return ColmapSink(folder / "c", SMALL, files=chosen[0], images=chosen[1], overwrite=overwrite)


def open_nerfstudio(folder: Path, *, overwrite: bool = False) -> Sink:
    return NerfstudioSink(folder / "nerfstudio", CloudSettings(), overwrite=overwrite)


def open_glb(folder: Path, *, overwrite: bool = False) -> Sink:
    return GlbSink(folder / "map.glb", CloudSettings(), overwrite=overwrite)


def open_small_glb(folder: Path, *, overwrite: bool = False) -> Sink:
    return GlbSink(folder / "map.glb", SMALL, max_cameras=2, overwrite=overwrite)


SINKS = [open_colmap, open_text_colmap, open_nerfstudio, open_glb, open_small_glb]
FOLDERS = [open_colmap, open_text_colmap, open_nerfstudio]


@pytest.mark.parametrize("open_sink", SINKS)
def test_closing_twice_or_without_a_frame_is_fine(tmp_path: Path, open_sink: Open) -> None:
    sink = open_sink(tmp_path)
    sink.close()
    sink.close()


@pytest.mark.parametrize("open_sink", SINKS)
def test_what_is_there_already_is_overwritten_only_when_asked(
    tmp_path: Path, frames: list[MappedFrame], files_of: FilesOf, open_sink: Open, write_all: Callable[..., None]
) -> None:
    write_all(open_sink(tmp_path), frames[:5])
    before = files_of(tmp_path)
    with pytest.raises(InputError, match="already"):
        open_sink(tmp_path)
    assert files_of(tmp_path) == before
    write_all(open_sink(tmp_path / "other"), frames[:3])
    other = files_of(tmp_path / "other")
    shutil.rmtree(tmp_path / "other")
    write_all(open_sink(tmp_path, overwrite=True), frames[:3])
    assert files_of(tmp_path) == other


@pytest.mark.parametrize("open_sink", FOLDERS)
def test_folder_of_other_files_is_never_overwritten(tmp_path: Path, files_of: FilesOf, open_sink: Open) -> None:
    for name in ("colmap", "c", "nerfstudio"):
        (tmp_path / name / "images").mkdir(parents=True)
        (tmp_path / name / "images" / "000001.jpg").write_text("mine")
    before = files_of(tmp_path)
    with pytest.raises(InputError, match=r"Expected one of .* to overwrite; name another folder"):
        open_sink(tmp_path, overwrite=True)
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("open_sink", FOLDERS)
def test_files_of_others_beside_an_export_stay(
    tmp_path: Path, frames: list[MappedFrame], open_sink: Open, write_all: Callable[..., None]
) -> None:
    write_all(open_sink(tmp_path), frames[:2])
    (images,) = tmp_path.glob("*/images")
    (images / "notes.txt").write_text("mine")
    write_all(open_sink(tmp_path, overwrite=True), [])
    assert [path.name for path in images.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("open_sink", SINKS)
def test_folder_that_cannot_be_written_is_one_sentence_before_the_first_frame(tmp_path: Path, open_sink: Open) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=r"file.* cannot be written \((Not a directory|File exists)\); make room"):
        open_sink(tmp_path / "file")


@pytest.mark.parametrize("open_sink", SINKS)
def test_full_disk_leaves_the_files_before(
    tmp_path: Path,
    frames: list[MappedFrame],
    files_of: FilesOf,
    open_sink: Open,
    files_no_longer_than: Callable[[int], AbstractContextManager[None]],
) -> None:
    sink = open_sink(tmp_path)
    sink.write(frames[0])
    before = files_of(tmp_path)
    refusal = r"cannot be written \(File too large\); make room"
    with files_no_longer_than(100):
        if open_sink in FOLDERS:
            with pytest.raises(InputError, match=refusal):
                sink.write(frames[2])
        with pytest.raises(InputError, match=refusal):
            sink.close()
    assert files_of(tmp_path) == before
    sink.close()
