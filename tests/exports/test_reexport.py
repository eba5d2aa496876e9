"""An export as a program makes it; the command is tested in tests/cli/test_export.py."""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from longtake.cli.export import export_lines
from longtake.errors import InputError, MissingExtraError, SettingError
from longtake.exports.adjust import ExportAdjustments
from longtake.exports.cameras import KnownCamera
from longtake.exports.cloud import CloudSettings
from longtake.exports.formats import FORMATS
from longtake.exports.frame import FrameStatus, MappedFrame
from longtake.exports.point_filter import PointFilter
from longtake.exports.record import RECORD_NAME, ExportRecord
from longtake.exports.reexport import ExportSettings, export_take
from longtake.exports.scale import KnownDepth, KnownDistance, KnownHeight
from longtake.exports.take import DepthKind, TakeSettings, TakeSink
from longtake.takes.folder_lock import locked
from longtake.takes.images import ImageFiles
from longtake.takes.take import Take, read_take

CAMERA = KnownCamera(focal_x=40.0, focal_y=41.0, center_x=31.5, center_y=23.5)
METRIC = ExportAdjustments(camera=CAMERA, length=KnownDistance(first=0, second=9, metres=2.4))


def saved(folder: Path, frames: Sequence[MappedFrame], settings: TakeSettings | None = None) -> Take:
    with TakeSink(folder, settings or TakeSettings(depth=DepthKind.NPZ)) as sink:
        for frame in frames:
            sink.write(frame)
    return read_take(folder)


def test_the_record_says_what_was_wished_for_and_what_came_of_it(frames: list[MappedFrame], tmp_path: Path) -> None:
    take = saved(tmp_path / "take", frames)
    record = export_take(take, tmp_path / "out", ExportSettings(formats=("tum", "ply"), adjustments=METRIC))
    centres = take.trajectory.world_from_camera[:, :3, 3]
    assert record.metres_per_unit == pytest.approx(2.4 / float((centres[0] - centres[9]).norm()))
    assert (record.unit, record.scale_from, record.up) == ("m", "distance:0,9=2.4m", "none")
    assert record.intrinsics == (40.0, 41.0, 31.5, 23.5)
    assert record.files == {name: str(tmp_path / "out" / FORMATS[name].file) for name in ("tum", "ply")}
    assert record.notes == ()


def test_frames_without_points_are_not_counted_as_written(frames: list[MappedFrame], tmp_path: Path) -> None:
    doubtful = {3: FrameStatus.JUMP, 4: FrameStatus.REPEATED}
    take = saved(tmp_path / "take", [replace(each, status=doubtful.get(each.index, each.status)) for each in frames])
    poses = export_take(take, tmp_path / "poses", ExportSettings(formats=("tum",)))
    assert (poses.frames, poses.frames_with_points) == (len(frames), None)
    scene = export_take(take, tmp_path / "scene", ExportSettings(formats=("tum", "colmap")))
    assert (scene.frames, scene.frames_with_points) == (len(frames), len(frames) - 2)
    assert len(list((tmp_path / "scene" / "colmap" / "images").iterdir())) == len(frames) - 2
    (*_, line) = export_lines(scene)
    assert f"{len(frames)} frames in model units, {len(frames) - 2} of them with points" in line.plain


def test_why_points_differ_from_those_of_the_run_is_said(frames: list[MappedFrame], tmp_path: Path) -> None:
    coarse = saved(tmp_path / "coarse", frames[:3], TakeSettings(depth=DepthKind.PNG))
    exact = saved(tmp_path / "exact", frames[:3])
    said = [export_take(take, tmp_path / f"{take.folder.name}-out", ExportSettings()).notes for take in (coarse, exact)]
    assert [sum("depth-npz" in note for note in notes) for notes in said] == [1, 0]


def test_two_exports_to_one_folder_at_once_are_refused(frames: list[MappedFrame], tmp_path: Path) -> None:
    take, settings = saved(tmp_path / "take", frames[:2]), ExportSettings(formats=("tum",), overwrite=True)
    with locked(tmp_path / "out"), pytest.raises(InputError, match="Another run is writing to"):
        export_take(take, tmp_path / "out", settings)
    export_take(take, tmp_path / "out", settings)


def test_a_record_reads_back_as_it_was(frames: list[MappedFrame], tmp_path: Path) -> None:
    take = saved(tmp_path / "take", frames)
    for name, adjustments in {"plain": ExportAdjustments(), "all": replace(METRIC, upright=True)}.items():
        record = export_take(take, tmp_path / name, ExportSettings(formats=("tum",), adjustments=adjustments))
        path = tmp_path / name / RECORD_NAME
        assert ExportRecord.parse(path.read_bytes(), str(path)) == record


def test_a_record_that_is_none_is_refused_in_a_sentence(frames: list[MappedFrame], tmp_path: Path) -> None:
    export_take(saved(tmp_path / "take", frames[:2]), tmp_path / "out", ExportSettings(formats=("tum",)))
    said = json.loads((tmp_path / "out" / RECORD_NAME).read_text())
    for changed in ({"unit": "feet"}, {"metres_per_unit": -1}, {"intrinsics": [1, 2]}, {"files": 3}, {"notes": None}):
        with pytest.raises(InputError, match=rf"'{next(iter(changed))}' in export.json"):
            ExportRecord.parse(json.dumps(said | changed).encode(), "export.json")


def test_whoever_is_told_sees_every_frame_and_may_end_it(frames: list[MappedFrame], tmp_path: Path) -> None:
    take = saved(tmp_path / "take", frames)
    seen: list[int] = []

    def told(exported: Iterable[MappedFrame], num_frames: int) -> Iterable[MappedFrame]:
        for frame in exported:
            seen.append(frame.index)
            yield frame
            if len(seen) == num_frames + 3:
                raise InputError("Enough.")

    export_take(take, tmp_path / "whole", ExportSettings(formats=("tum",)), told)
    assert seen == list(range(10))
    with pytest.raises(InputError, match="Enough"):
        export_take(take, tmp_path / "cut", ExportSettings(formats=("tum",)), told)
    _, *poses = (tmp_path / "cut" / FORMATS["tum"].file).read_text().splitlines()
    assert len(poses) == 3
    assert not (tmp_path / "cut" / RECORD_NAME).exists()


def test_an_export_in_place_of_another_has_no_record_until_it_is_whole(
    frames: list[MappedFrame], tmp_path: Path
) -> None:
    take, out, settings = saved(tmp_path / "take", frames), tmp_path / "out", ExportSettings(formats=("tum",))
    export_take(take, out, settings)

    def told(exported: Iterable[MappedFrame], num_frames: int) -> Iterable[MappedFrame]:
        assert not (out / RECORD_NAME).exists()
        yield from exported
        raise InputError("Enough.")

    with pytest.raises(InputError, match="Enough"):
        export_take(take, out, replace(settings, overwrite=True), told)
    assert not (out / RECORD_NAME).exists()
    export_take(take, out, replace(settings, overwrite=True))
    assert (out / RECORD_NAME).exists()


def test_the_record_of_an_export_is_written_before_others_may_write_there(
    frames: list[MappedFrame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, out = saved(tmp_path / "take", frames[:2]), tmp_path / "out"

    def write(record: ExportRecord, path: Path) -> None:
        with pytest.raises(InputError, match="Another run is writing to"), locked(path.parent):
            pass

    monkeypatch.setattr(ExportRecord, "write", write)
    export_take(take, out, ExportSettings(formats=("tum",)))


def test_what_a_take_lacks_is_told_before_anything_is_written(frames: list[MappedFrame], tmp_path: Path) -> None:
    bare = saved(tmp_path / "take", frames, TakeSettings(images=None, depth=None, confidence=False))
    for name in ("ply", "glb", "rrd", "colmap", "nerfstudio"):
        with pytest.raises(InputError, match=f"of which {name} is made"):
            export_take(bare, tmp_path / "out", ExportSettings(formats=(name,)))
    with pytest.raises(SettingError, match="is a take"):
        export_take(bare, tmp_path / "take", ExportSettings(formats=("tum",)))
    assert not (tmp_path / "out").exists()


def test_points_that_are_made_without_confidence_are_told_of(frames: list[MappedFrame], tmp_path: Path) -> None:
    """They are more than those of the run's own cloud, which left the least confident out."""
    take = saved(
        tmp_path / "take", frames[:2], TakeSettings(images=ImageFiles.PNG, depth=DepthKind.NPZ, confidence=False)
    )
    points = export_take(take, tmp_path / "points", ExportSettings(formats=("ply",))).notes
    assert points[0].startswith("The result has no confidence, so no pixels are left out as unsure")
    poses = export_take(take, tmp_path / "poses", ExportSettings(formats=("tum",))).notes
    every = CloudSettings(points=PointFilter(drop_percent=0.0))
    all_points = export_take(take, tmp_path / "all", ExportSettings(formats=("ply",), cloud=every)).notes
    assert poses == all_points == points[1:]


def test_settings_say_what_they_need() -> None:
    poses = ExportSettings(formats=("tum", "kitti"))
    assert not poses.needs_depth
    assert not poses.needs_images
    assert not replace(poses, adjustments=METRIC).needs_depth
    lengths = [KnownHeight(metres=1.5), KnownDepth(index=0, path=Path("depth.png"), step=0.001)]
    assert all(replace(poses, adjustments=ExportAdjustments(length=length)).needs_depth for length in lengths)
    assert replace(poses, adjustments=ExportAdjustments(upright=True)).needs_depth
    assert ExportSettings(formats=("glb",)).needs_depth
    assert not ExportSettings(formats=("glb",)).needs_images
    assert ExportSettings(formats=("nerfstudio",)).needs_images


@pytest.mark.parametrize("formats", [(), ("las",), ("tum", "las")])
def test_formats_that_are_none_are_refused(formats: tuple[str, ...]) -> None:
    with pytest.raises(SettingError, match="Expected format as tum"):
        ExportSettings(formats=formats)


def test_a_package_that_is_missing_is_told_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rerun", None)
    ExportSettings(formats=("tum",)).require_packages()
    with pytest.raises(MissingExtraError, match=r"longtake\[rerun\]"):
        ExportSettings(formats=("tum", "rrd")).require_packages()
