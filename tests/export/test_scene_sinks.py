"""What holds for every sink of a whole scene: broken off it leaves the same files, and others' files are left alone."""

import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longtake.errors import InputError
from longtake.export.cloud import CloudSettings
from longtake.export.colmap import ColmapFiles, ColmapSink
from longtake.export.frame import FrameStatus, MappedFrame
from longtake.export.glb import GlbSink
from longtake.export.nerfstudio import NerfstudioSink
from longtake.export.point_filter import PointFilter
from longtake.export.sink import Sink, SinkState
from longtake.takes.images import ImageFiles

SMALL = CloudSettings(max_points=300, points=PointFilter(every=2))
"""So small that voxels become wider again and again."""

Open = Callable[..., Sink]
FilesOf = Callable[[Path], dict[str, bytes]]


def open_colmap(folder: Path, state: SinkState | None = None, *, overwrite: bool = False) -> Sink:
    return ColmapSink(folder / "colmap", CloudSettings(), overwrite=overwrite, state=state)


def open_text_colmap(folder: Path, state: SinkState | None = None, *, overwrite: bool = False) -> Sink:
    chosen = ColmapFiles.TEXT, ImageFiles.PNG
    return ColmapSink(folder / "c", SMALL, files=chosen[0], images=chosen[1], overwrite=overwrite, state=state)


def open_nerfstudio(folder: Path, state: SinkState | None = None, *, overwrite: bool = False) -> Sink:
    return NerfstudioSink(folder / "nerfstudio", CloudSettings(), overwrite=overwrite, state=state)


def open_glb(folder: Path, state: SinkState | None = None, *, overwrite: bool = False) -> Sink:
    return GlbSink(folder / "map.glb", CloudSettings(), overwrite=overwrite, state=state)


def open_small_glb(folder: Path, state: SinkState | None = None, *, overwrite: bool = False) -> Sink:
    return GlbSink(folder / "map.glb", SMALL, max_cameras=2, overwrite=overwrite, state=state)


SINKS = [open_colmap, open_text_colmap, open_nerfstudio, open_glb, open_small_glb]
FOLDERS = [open_colmap, open_text_colmap, open_nerfstudio]


@pytest.fixture(scope="module")
def gappy(cut_frames: list[MappedFrame]) -> list[MappedFrame]:
    """The walk without some frames, one of them doubtful, one of another lens and one of another size."""
    walk = [frame for frame in cut_frames if frame.index not in (0, 4)]
    doubtful = replace(walk[2], status=FrameStatus.JUMP)
    zoomed = replace(walk[3], intrinsics=walk[3].intrinsics * walk[3].intrinsics.new_tensor([[1.1], [1.1], [1]]))
    placed = replace(walk[5].placement, source_width=96, source_height=72, scale_x=2 / 3, scale_y=2 / 3)
    small = replace(walk[5], source_image=walk[5].source_image[::2, ::2], placement=placed)
    return [*walk[:2], doubtful, zoomed, walk[4], small, *walk[6:]]


@pytest.mark.parametrize("open_sink", SINKS)
@settings(deadline=None, max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kept=st.integers(0, 8), lost=st.integers(0, 8), checkpoints=st.sets(st.integers(0, 8)))
def test_sink_killed_anywhere_and_resumed_leaves_the_same_files(
    gappy: list[MappedFrame],
    files_of: FilesOf,
    open_sink: Open,
    kept: int,
    lost: int,
    checkpoints: set[int],
    write_all: Callable[..., None],
    stored: Callable[[SinkState], SinkState],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_all(open_sink(folder / "whole"), gappy)
        state = SinkState()
        with open_sink(folder / "broken") as broken:
            for place, frame in enumerate([*gappy[: kept + lost], None]):
                if place == kept:
                    state = stored(broken.checkpoint())
                elif place in checkpoints:
                    broken.checkpoint()
                if frame is not None:
                    broken.write(frame)
            shutil.copytree(folder / "broken", folder / "killed")
        write_all(open_sink(folder / "killed", state), gappy[kept:])
        assert files_of(folder / "killed") == files_of(folder / "whole")


@pytest.mark.parametrize("open_sink", SINKS)
def test_closing_twice_or_without_a_frame_is_fine(tmp_path: Path, open_sink: Open) -> None:
    sink = open_sink(tmp_path)
    sink.checkpoint()
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


@pytest.mark.parametrize("open_sink", FOLDERS)
def test_image_lost_since_the_checkpoint_is_one_sentence(
    tmp_path: Path, frames: list[MappedFrame], open_sink: Open, stored: Callable[[SinkState], SinkState]
) -> None:
    with open_sink(tmp_path) as sink:
        sink.write(frames[0])
        state = stored(sink.checkpoint())
    shutil.rmtree(tmp_path)
    with pytest.raises(InputError, match=r"images/000000\..* is missing; start again"):
        open_sink(tmp_path, state)


@pytest.mark.parametrize("open_sink", SINKS)
def test_full_disk_leaves_the_files_of_the_last_checkpoint(
    tmp_path: Path,
    frames: list[MappedFrame],
    files_of: FilesOf,
    open_sink: Open,
    files_no_longer_than: Callable[[int], AbstractContextManager[None]],
) -> None:
    sink = open_sink(tmp_path)
    sink.write(frames[0])
    sink.checkpoint()
    before = files_of(tmp_path)
    refusal = r"cannot be written \(File too large\); make room"
    with files_no_longer_than(100):
        if open_sink in FOLDERS:
            with pytest.raises(InputError, match=refusal):
                sink.write(frames[2])
        with pytest.raises(InputError, match=refusal):
            sink.checkpoint()
        with pytest.raises(InputError, match=refusal):
            sink.close()
    assert files_of(tmp_path) == before
    sink.close()
