"""Rerun recordings as Rerun itself reads them; `make test-extra` fetches it, without it most of this is skipped."""

import io
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from longtake.errors import InputError, MissingExtraError
from longtake.exports.cloud import CloudSettings
from longtake.exports.frame import MappedFrame
from longtake.exports.rerun import FRAMES_PER_FILE, RerunSink

LIMIT_PX = 0.05
SITE_PACKAGES = next((Path(__file__).parents[2] / ".venv-oracles" / "lib").glob("python3*/site-packages"), Path("none"))


@pytest.fixture(scope="module")
def rerun() -> Iterator[Any]:
    """Rerun from the environment of the oracles; whatever is installed here as well is taken from here."""
    if not (SITE_PACKAGES / "rerun").exists():
        pytest.skip("Rerun is not fetched; run: make test-extra")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(SITE_PACKAGES)])
        yield pytest.importorskip("rerun.chunk")


Rows = dict[int, dict[str, Any]]


def read_frames(rerun: Any, folder: Path) -> Rows:
    """What is said of each frame, by component."""
    rows: Rows = {}
    for path in sorted(folder.glob("frames-*.rrd")):
        for chunk in rerun.RrdReader(path).stream().to_chunks():
            table = chunk.to_record_batch().to_pydict()
            for place, index in enumerate(table["frame"]):
                row = rows.setdefault(index, {})
                row |= {name: values[place] for name, values in table.items() if ":" in name or name == "video"}
    return dict(sorted(rows.items()))


def read_points(rerun: Any, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    for chunk in rerun.RrdReader(folder / "points.rrd").stream().to_chunks():
        if chunk.entity_path == "/world/points":
            assert chunk.is_static
            table = chunk.to_record_batch().to_pydict()
            positions = np.array(table["Points3D:positions"][0]).reshape(-1, 3)
            packed = np.array(table["Points3D:colors"][0], dtype=np.uint32).reshape(-1, 1)
            return positions, packed >> np.array([24, 16, 8], dtype=np.uint32) & 255
    raise AssertionError("there are no points")


def seen_in(row: dict[str, Any], seen: Callable[..., Any]) -> Any:
    """Pose, the matrix to Rerun's pixels, whose first one reaches from 0 to 1, and depth."""
    x, y, z, w = row["Transform3D:quaternion"][0]
    axis = np.array([x, y, z])
    pose = np.eye(4)
    for place, v in enumerate(np.eye(3)):
        pose[:3, place] = v + 2 * w * np.cross(axis, v) + 2 * np.cross(axis, np.cross(axis, v))
    pose[:3, 3] = row["Transform3D:translation"][0]
    width, height = map(int, row["Pinhole:resolution"][0])
    depth = np.frombuffer(bytes(row["DepthImage:buffer"][0]), np.float32).reshape(height, width)
    return seen(pose, np.array(row["Pinhole:image_from_camera"][0]).reshape(3, 3).T, depth)


def write_rerun(folder: Path, frames: Sequence[MappedFrame]) -> RerunSink:
    sink = RerunSink(folder, CloudSettings())
    with sink:
        for frame in frames:
            sink.write(frame)
    return sink


def test_without_rerun_one_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rerun", None)
    with pytest.raises(MissingExtraError, match=r'Rerun files needs rerun.*pip install "longtake\[rerun\]"'):
        RerunSink(tmp_path / "rerun", CloudSettings())
    assert not (tmp_path / "rerun").exists()


@pytest.mark.extra
def test_pixels_land_where_they_belong(
    rerun: Any,
    tmp_path: Path,
    cut_frames: list[MappedFrame],
    seen: Callable[..., Any],
    truth: Callable[..., list[Any]],
    stray: Callable[..., float],
) -> None:
    write_rerun(tmp_path, cut_frames)
    as_read = [seen_in(row, seen) for row in read_frames(rerun, tmp_path).values()]
    half = np.array([[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]])
    found = [replace(one, intrinsics=one.intrinsics - half) for one in as_read]
    error = stray(found, truth(cut_frames))
    print(f"rerun: {error:.2e} px")
    assert error < LIMIT_PX
    assert stray(as_read, truth(cut_frames)) > LIMIT_PX, "half a pixel would be seen"


@pytest.mark.extra
def test_images_times_and_points_are_those_of_the_frames(
    rerun: Any, tmp_path: Path, cut_frames: list[MappedFrame]
) -> None:
    cloud = write_rerun(tmp_path, cut_frames).cloud.cloud()
    rows = read_frames(rerun, tmp_path)
    assert list(rows) == [frame.index for frame in cut_frames]
    for row, frame in zip(rows.values(), cut_frames, strict=True):
        assert row["video"].total_seconds() == pytest.approx(frame.timestamp_s, abs=1e-6)
        with Image.open(io.BytesIO(bytes(row["EncodedImage:blob"][0]))) as image:
            assert np.abs(np.asarray(image).astype(int) - frame.image).mean() < 10
    points, colours = read_points(rerun, tmp_path)
    assert len(points) > 1000
    np.testing.assert_allclose(points, cloud.points, atol=1e-5)
    assert np.array_equal(colours, cloud.colours)


@pytest.mark.extra
def test_long_videos_come_in_several_files(rerun: Any, tmp_path: Path, frames: list[MappedFrame]) -> None:
    long = [replace(frames[0], index=index, timestamp_s=0.1 * index) for index in range(FRAMES_PER_FILE + 3)]
    write_rerun(tmp_path, long)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["frames-000000.rrd", f"frames-{FRAMES_PER_FILE:06d}.rrd", "points.rrd"]
    assert list(read_frames(rerun, tmp_path)) == list(range(FRAMES_PER_FILE + 3))


@pytest.mark.extra
def test_what_is_there_already_is_overwritten_only_when_asked(
    rerun: Any, tmp_path: Path, frames: list[MappedFrame]
) -> None:
    write_rerun(tmp_path, frames[:2])
    with pytest.raises(InputError, match="already"):
        RerunSink(tmp_path, CloudSettings())
    RerunSink(tmp_path, CloudSettings(), overwrite=True).close()
    assert [path.name for path in tmp_path.iterdir()] == ["points.rrd"]
    points, _ = read_points(rerun, tmp_path)
    assert len(points) == 0
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    (tmp_path / "mine.rrd").write_text("mine")
    with pytest.raises(InputError, match=r"Expected one of points\.rrd"):
        RerunSink(tmp_path, CloudSettings(), overwrite=True)
