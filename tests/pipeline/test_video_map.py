"""A whole video through source, session and sinks: interrupted anywhere, the files are those of a run that was not."""

import json
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from longtake.errors import InputError, SettingError
from longtake.export.cloud import CloudSettings
from longtake.export.frame import FrameStatus, MappedFrame
from longtake.export.report.folder import EVENTS_NAME, PROGRESS_NAME, SUMMARY_NAME
from longtake.export.report.page import REPORT_NAME
from longtake.export.take import DepthKind, TakeSettings
from longtake.geometry.model import GeometryModel
from longtake.pipeline.ahead import WhenFull
from longtake.pipeline.checkpoint import FOLDER
from longtake.pipeline.run import Unreadable
from longtake.pipeline.video_map import MapSettings, Outputs, VideoMap, is_done
from longtake.runtime.build import SessionSettings
from longtake.runtime.keyframes import ByFlow, EveryNth
from longtake.runtime.retention import ContextRetention
from longtake.runtime.windows import Windows
from longtake.takes.take import read_take
from longtake.video.frame import PendingFrame
from longtake.video.reading import Source
from longtake.video.sampling import Extent
from longtake.world.tour import Tour

NUM_FRAMES = 30
SIZE = (42, 56)
SESSION = SessionSettings(
    image_size=56,
    num_scale_frames=2,
    retention=ContextRetention(anchors=2, window=3, history=12),
    keyframes=EveryNth(2),
    windows=Windows(size=8, overlap_frames=5),
)
SETTINGS = MapSettings(
    session=SESSION,
    outputs=Outputs(
        take=TakeSettings(images=None, depth=DepthKind.NPZ),
        cloud=CloudSettings(voxel=0.05, max_points=3000),
        kitti=True,
    ),
    checkpoint_every=7,
)


class Walk(Source):
    """Frames of a tour, of which some cannot be read."""

    def __init__(self, unreadable: frozenset[int] = frozenset(), *, is_live: bool = False) -> None:
        super().__init__("walk", is_live=is_live)
        self._unreadable = unreadable

    @property
    def extent(self) -> Extent:
        return Extent(num_frames=NUM_FRAMES)

    def all_frames(self) -> Generator[PendingFrame, None, None]:
        for index, picture in enumerate(pictures()):
            if index in self._unreadable:
                yield PendingFrame.unreadable(index / 10, f"Frame {index} is torn.")
            else:
                yield PendingFrame(index / 10, lambda picture=picture: picture)


@lru_cache
def pictures() -> list[np.ndarray]:
    views = islice(Tour(seed=2, width=SIZE[1], height=SIZE[0]).views(), NUM_FRAMES)
    return [(view.image.movedim(0, -1) * 255).byte().numpy() for view in views]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but those with times of the clock in them."""
    timed = (SUMMARY_NAME, PROGRESS_NAME, REPORT_NAME)
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in timed]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, load_tiny: Callable[..., GeometryModel]) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole") / "out"
    list(VideoMap(Walk(frozenset({0, 11, 12})), load_tiny(), folder, SETTINGS))
    return contents(folder)


def test_a_run_writes_every_frame_with_its_status(tiny_model: GeometryModel, tmp_path: Path) -> None:
    video = VideoMap(Walk(), tiny_model, tmp_path / "out", SETTINGS)
    items = list(video)
    take = read_take(tmp_path / "out")
    assert [item.index for item in items] == list(range(NUM_FRAMES))
    assert len(take) == NUM_FRAMES
    assert take.trajectory.timestamp_s.tolist() == [index / 10 for index in range(NUM_FRAMES)]
    assert [record.status for record in take.records] == [item.status for item in items]
    for index in (0, 13, 29):
        assert np.array_equal(take.depth(index), items[index].depth)
        assert take.trajectory.world_from_camera[index].allclose(items[index].world_from_camera, atol=1e-6)
        assert np.array_equal(items[index].source_image, pictures()[index])
    assert video.summary is not None
    assert video.summary.num_frames == NUM_FRAMES
    assert video.summary.num_windows > 2
    assert is_done(tmp_path / "out")
    assert not (tmp_path / "out" / FOLDER).exists()


def test_unreadable_frames_are_events_and_leave_the_rest_alone(tiny_model: GeometryModel, tmp_path: Path) -> None:
    out = tmp_path / "out"
    items = list(VideoMap(Walk(frozenset({0, 11, 12})), tiny_model, out, SETTINGS))
    assert sorted(item.index for item in items) == list(range(NUM_FRAMES))
    assert [item.index for item in items if isinstance(item, Unreadable)] == [0, 11, 12]
    events = [json.loads(line) for line in (out / EVENTS_NAME).read_text().splitlines()]
    assert [(event["index"], event["status"]) for event in events] == [(index, "unreadable") for index in (0, 11, 12)]
    assert events[1]["problem"] == "Frame 11 is torn."
    assert [record.index for record in read_take(out).records] == [i for i in range(NUM_FRAMES) if i not in (0, 11, 12)]


@pytest.mark.parametrize("stop_after", [1, 7, 16, 27])
def test_a_stopped_run_resumes_to_identical_files(
    tiny_model: GeometryModel, tmp_path: Path, whole: dict[str, bytes], stop_after: int
) -> None:
    out = tmp_path / "out"
    source = Walk(frozenset({0, 11, 12}))
    first = VideoMap(source, tiny_model, out, SETTINGS)
    for count, _ in enumerate(first, 1):
        if count == stop_after:
            first.stop()
    assert first.summary is not None
    if not first.summary.is_complete:
        second = VideoMap(Walk(frozenset({0, 11, 12})), tiny_model, out, SETTINGS, resume=True)
        list(second)
        assert second.summary is not None
        assert second.summary.is_complete
        assert second.summary.num_frames == NUM_FRAMES
    assert contents(out) == whole


@pytest.mark.parametrize("abandoned_after", [1, 9, 24])
def test_an_abandoned_run_resumes_from_its_last_checkpoint(
    tiny_model: GeometryModel, tmp_path: Path, whole: dict[str, bytes], abandoned_after: int
) -> None:
    """Left without a word in the middle, as an error would; what was written after the checkpoint is written anew."""
    out = tmp_path / "out"
    items = iter(VideoMap(Walk(frozenset({0, 11, 12})), tiny_model, out, SETTINGS))
    for _ in range(abandoned_after):
        next(items)
    items.close()
    list(VideoMap(Walk(frozenset({0, 11, 12})), tiny_model, out, SETTINGS, resume=True))
    assert contents(out) == whole


@pytest.mark.parametrize(
    "session",
    [replace(SESSION, windows=None), replace(SESSION, keyframes=ByFlow(2.0, max_gap=4))],
    ids=["one sequence", "flow"],
)
def test_other_sessions_resume_too(tiny_model: GeometryModel, tmp_path: Path, session: SessionSettings) -> None:
    settings = replace(SETTINGS, session=session)
    list(VideoMap(Walk(), tiny_model, tmp_path / "whole", settings))
    items = iter(VideoMap(Walk(), tiny_model, tmp_path / "cut", settings))
    for _ in range(20):
        next(items)
    items.close()
    list(VideoMap(Walk(), tiny_model, tmp_path / "cut", settings, resume=True))
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


def test_only_the_same_run_can_be_resumed(tiny_model: GeometryModel, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = VideoMap(Walk(), tiny_model, out, SETTINGS)
    for _ in first:
        first.stop()
    other = replace(SETTINGS, session=replace(SESSION, keyframes=EveryNth(3)))
    with pytest.raises(SettingError, match=r"other settings \(session\)"):
        VideoMap(Walk(), tiny_model, out, other, resume=True)
    with pytest.raises(SettingError, match="is live"):
        VideoMap(Walk(is_live=True), tiny_model, out, SETTINGS, resume=True)
    list(VideoMap(Walk(), tiny_model, out, SETTINGS, resume=True))
    with pytest.raises(SettingError, match="is complete"):
        VideoMap(Walk(), tiny_model, out, SETTINGS, resume=True)
    with pytest.raises(InputError, match="holds a take already"):
        VideoMap(Walk(), tiny_model, out, SETTINGS)


def test_a_damaged_checkpoint_is_refused_in_a_sentence(tiny_model: GeometryModel, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = VideoMap(Walk(), tiny_model, out, SETTINGS)
    for _ in first:
        first.stop()
    (out / FOLDER / "latest.json").write_text("{")
    with pytest.raises(InputError, match=r"checkpoint .* is damaged"):
        VideoMap(Walk(), tiny_model, out, SETTINGS, resume=True)


def test_a_live_source_drops_what_comes_too_fast_and_counts_it(tiny_model: GeometryModel, tmp_path: Path) -> None:
    settings = replace(SETTINGS, when_full=WhenFull.NEWEST_WINS)
    video = VideoMap(Walk(is_live=True), tiny_model, tmp_path / "out", settings)
    items = list(video)
    assert video.summary is not None
    assert video.summary.num_dropped > 0
    assert len(items) + video.summary.num_dropped == NUM_FRAMES
    assert not (tmp_path / "out" / FOLDER).exists()


def test_an_error_in_a_sink_reaches_the_caller_and_leaves_whole_files(
    tiny_model: GeometryModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    video = VideoMap(Walk(), tiny_model, tmp_path / "out", SETTINGS)
    written: list[MappedFrame] = []

    def fail(self: object, frame: MappedFrame) -> None:
        written.append(frame)
        if len(written) == 15:
            raise InputError("The disk is full.")

    monkeypatch.setattr("longtake.export.kitti.KittiSink.write", fail)
    with pytest.raises(InputError, match="The disk is full"):
        list(video)
    assert len(read_take(tmp_path / "out")) == 15
    assert not is_done(tmp_path / "out")


def test_statuses_are_counted(tiny_model: GeometryModel, tmp_path: Path) -> None:
    video = VideoMap(Walk(frozenset({5})), tiny_model, tmp_path / "out", SETTINGS)
    list(video)
    assert video.counts[FrameStatus.UNREADABLE] == 1
    assert sum(video.counts[status] for status in FrameStatus) == NUM_FRAMES


def test_time_and_memory_are_written_as_the_video_runs_and_after_a_break(
    tiny_model: GeometryModel, tmp_path: Path
) -> None:
    first = VideoMap(Walk(), tiny_model, tmp_path / "out", SETTINGS)
    for _ in first:
        first.stop()
    list(VideoMap(Walk(), tiny_model, tmp_path / "out", SETTINGS, resume=True))
    lines = [json.loads(line) for line in (tmp_path / "out" / PROGRESS_NAME).read_text().splitlines()]
    assert len(lines) == 2
    assert lines[0]["index"] == 0 < lines[1]["index"]
    assert all(line["seconds"] >= 0 and line["resident_bytes"] > 0 for line in lines)


def test_a_log_of_progress_that_cannot_be_written_is_a_sentence(tiny_model: GeometryModel, tmp_path: Path) -> None:
    video = VideoMap(Walk(), tiny_model, tmp_path / "out", SETTINGS)
    (tmp_path / "out" / PROGRESS_NAME).mkdir()
    with pytest.raises(InputError, match=r"progress.jsonl cannot be written"):
        list(video)
