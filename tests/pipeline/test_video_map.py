"""A whole video through source, session and sinks: interrupted anywhere, the files are those of a run that was not."""

import json
import shutil
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from selected import rest_in_extra
from told import last_versions

from longtake.errors import InputError, MissingExtraError, SettingError
from longtake.exports.adjust import ExportAdjustments
from longtake.exports.cloud import CloudSettings
from longtake.exports.frame import FrameStatus, MappedFrame
from longtake.exports.poses import KittiSink
from longtake.exports.record import EXPORT_FOLDER, RECORD_NAME
from longtake.exports.reexport import ExportSettings
from longtake.exports.report.folder import EVENTS_NAME, PROGRESS_NAME, RUN_NAME, SUMMARY_NAME
from longtake.exports.report.page import REPORT_NAME
from longtake.exports.scale import KnownDistance, KnownHeight
from longtake.exports.take import DepthKind, TakeSettings
from longtake.geometry.model import GeometryModel
from longtake.memory.policies.lockstep import ContextRetention
from longtake.pipeline.checkpoint import FOLDER, CheckpointRule
from longtake.pipeline.events import Event, Exported, Frame, Saved, Unreadable
from longtake.pipeline.outputs import SESSION_NAME, Outputs
from longtake.pipeline.prefetch import WhenFull
from longtake.pipeline.run import Run
from longtake.pipeline.run_folder import is_done
from longtake.pipeline.video_map import MapSettings, map_video
from longtake.runtime.build import SessionSettings, open_session
from longtake.runtime.keyframes import ByFlow, EveryNth
from longtake.runtime.steps import VideoSession
from longtake.runtime.windowed import resume_session
from longtake.runtime.windows import Windows
from longtake.takes.images import ImageFiles
from longtake.takes.take import read_take
from longtake.types import Geometry
from longtake.video.frame import PendingFrame
from longtake.video.reading import Source
from longtake.video.resize import Preprocessor
from longtake.video.sampling import Extent
from longtake.video.source import open_source
from longtake.world.tour import Tour

NUM_FRAMES = 20
SIZE = (42, 56)
SESSION = SessionSettings(
    image_size=56,
    num_scale_frames=2,
    retention=ContextRetention(anchors=2, window=3, history=12),
    keyframes=EveryNth(2),
    windows=Windows(size=6, overlap_frames=5),
)
SETTINGS = MapSettings(
    session=SESSION,
    outputs=Outputs(
        take=TakeSettings(images=None, depth=DepthKind.NPZ),
        cloud=CloudSettings(voxel=0.05, max_points=3000),
        formats=("ply", "kitti"),
    ),
    checkpoints=CheckpointRule(7),
)


class Walk(Source):
    """Frames of a tour, of which some cannot be read."""

    def __init__(
        self, unreadable: frozenset[int] = frozenset(), *, is_live: bool = False, num_frames: int = NUM_FRAMES
    ) -> None:
        super().__init__("walk", is_live=is_live)
        self._unreadable, self._num_frames = unreadable, num_frames

    @property
    def extent(self) -> Extent:
        return Extent(num_frames=self._num_frames)

    def all_frames(self) -> Generator[PendingFrame, None, None]:
        for index, picture in enumerate(pictures()[: self._num_frames]):
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


def told(events: Iterable[Event]) -> Iterator[Frame | Unreadable]:
    """Frames as they come."""
    return (event for event in events if isinstance(event, Frame | Unreadable))


def frames_of(events: Iterable[Event]) -> Iterator[MappedFrame | Unreadable]:
    """What became of each frame in the end."""
    events = list(events)
    unreadable = {event.index: event for event in events if isinstance(event, Unreadable)}
    return iter(frame for _, frame in sorted({**last_versions(events), **unreadable}.items()))


def exported(events: Iterable[Event]) -> list[Exported]:
    return [event for event in events if isinstance(event, Exported)]


def stopped_at_once(run: Run) -> Run:
    """Stopped at its first event."""
    for count, _ in enumerate(run):
        if count == 0:
            run.stop()
    return run


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, load_tiny: Callable[..., GeometryModel]) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole") / "out"
    list(map_video(Walk(frozenset({0, 11, 12})), load_tiny(), folder, SETTINGS))
    return contents(folder)


def test_a_run_writes_every_frame_with_its_status(tiny_model: GeometryModel, tmp_path: Path) -> None:
    video = map_video(Walk(), tiny_model, tmp_path / "out", SETTINGS)
    items = list(frames_of(video))
    take = read_take(tmp_path / "out")
    assert [item.index for item in items] == list(range(NUM_FRAMES))
    assert len(take) == NUM_FRAMES
    assert take.trajectory.timestamp_s.tolist() == [index / 10 for index in range(NUM_FRAMES)]
    assert [record.status for record in take.records] == [item.status for item in items]
    for index in (0, 13, 19):
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
    items = list(frames_of(map_video(Walk(frozenset({0, 11, 12})), tiny_model, out, SETTINGS)))
    assert sorted(item.index for item in items) == list(range(NUM_FRAMES))
    assert [item.index for item in items if isinstance(item, Unreadable)] == [0, 11, 12]
    events = [json.loads(line) for line in (out / EVENTS_NAME).read_text().splitlines()]
    assert [(event["index"], event["status"]) for event in events] == [(index, "unreadable") for index in (0, 11, 12)]
    assert events[1]["problem"] == "Frame 11 is torn."
    assert [record.index for record in read_take(out).records] == [i for i in range(NUM_FRAMES) if i not in (0, 11, 12)]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["frames_per_s"] * summary["seconds"] == pytest.approx(NUM_FRAMES - 3)  # only what was mapped counts


@pytest.mark.parametrize("stop_after", rest_in_extra([17, 7, 1, 12], keep=1))
def test_a_stopped_run_resumes_to_identical_files(
    tiny_model: GeometryModel, tmp_path: Path, whole: dict[str, bytes], stop_after: int
) -> None:
    out = tmp_path / "out"
    source = Walk(frozenset({0, 11, 12}))
    first = map_video(source, tiny_model, out, SETTINGS)
    for count, _ in enumerate(told(first), 1):
        if count == stop_after:
            first.stop()
    assert first.summary is not None
    if not first.summary.is_complete:
        second = map_video(Walk(frozenset({0, 11, 12})), tiny_model, out, SETTINGS, resume=True)
        list(second)
        assert second.summary is not None
        assert second.summary.is_complete
        assert second.summary.num_frames == NUM_FRAMES
    assert contents(out) == whole


@pytest.mark.parametrize("abandoned_after", rest_in_extra([9, 1, 16], keep=1))
def test_an_abandoned_run_resumes_from_its_last_checkpoint(
    tiny_model: GeometryModel, tmp_path: Path, whole: dict[str, bytes], abandoned_after: int
) -> None:
    """Left without a word in the middle, as an error would; what was written after the checkpoint is written anew."""
    out = tmp_path / "out"
    items = iter(map_video(Walk(frozenset({0, 11, 12})), tiny_model, out, SETTINGS))
    deque(islice(told(items), abandoned_after), maxlen=0)
    items.close()
    list(map_video(Walk(frozenset({0, 11, 12})), tiny_model, out, SETTINGS, resume=True))
    assert contents(out) == whole


@pytest.mark.parametrize(
    "session",
    rest_in_extra([replace(SESSION, windows=None), replace(SESSION, keyframes=ByFlow(2.0, max_gap=4))], keep=1),
    ids=["one sequence", "flow"],
)
def test_other_sessions_resume_too(tiny_model: GeometryModel, tmp_path: Path, session: SessionSettings) -> None:
    settings = replace(SETTINGS, session=session)
    list(map_video(Walk(), tiny_model, tmp_path / "whole", settings))
    items = iter(map_video(Walk(), tiny_model, tmp_path / "cut", settings))
    deque(islice(told(items), 13), maxlen=0)
    items.close()
    list(map_video(Walk(), tiny_model, tmp_path / "cut", settings, resume=True))
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


def test_a_run_that_is_closed_before_its_first_event_leaves_nothing_and_lets_others_in(
    tiny_model: GeometryModel, tmp_path: Path
) -> None:
    with map_video(Walk(), tiny_model, tmp_path / "out", SETTINGS):
        assert (tmp_path / "out" / RUN_NAME).exists()
    assert not (tmp_path / "out").exists()
    run = map_video(Walk(), tiny_model, tmp_path / "out", SETTINGS)
    run.close()
    run.close()
    assert list(run) == []
    with map_video(Walk(), tiny_model, tmp_path / "out", SETTINGS) as again:
        next(again)


def test_a_run_happens_once_however_often_it_is_iterated(tiny_model: GeometryModel, tmp_path: Path) -> None:
    run = map_video(Walk(num_frames=6), tiny_model, tmp_path / "out", SETTINGS)
    first, second = iter(run), iter(run)
    indices = [event.index for events in (islice(first, 2), second, first) for event in told(events)]
    assert indices == list(range(6))


def test_a_live_source_that_is_stopped_has_ended_for_it_cannot_be_gone_on_with(
    tiny_model: GeometryModel, tmp_path: Path
) -> None:
    """Its last results and exports come; a run of another source does not go on with it, and removes nothing of it."""
    settings = replace(SETTINGS, outputs=replace(EXPORTING.outputs, export=ExportSettings(formats=("kitti",))))
    run = map_video(Walk(is_live=True), tiny_model, tmp_path / "out", settings)
    indices: list[int] = []
    for event in run:
        if isinstance(event, Frame):
            indices.append(event.index)
            run.stop()
    assert run.summary is not None
    assert run.summary.is_complete
    assert [record.index for record in read_take(tmp_path / "out").records] == sorted(set(indices))
    assert (tmp_path / "out" / EXPORT_FOLDER / RECORD_NAME).exists()
    before = contents(tmp_path / "out")
    with pytest.raises(SettingError, match=r"source\.num_frames 20, now 3"):
        map_video(Walk(num_frames=3), tiny_model, tmp_path / "out", settings, resume=True)
    with pytest.raises(InputError, match=r"holds a run already; name another folder, or replace it with --overwrite"):
        map_video(Walk(num_frames=3), tiny_model, tmp_path / "out", settings)
    assert contents(tmp_path / "out") == before


def test_a_run_that_fails_before_its_first_result_keeps_its_checkpoint(
    tiny_model: GeometryModel, tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results of a window wait for the next one; what was looked at by then is not lost."""
    source, settings = Walk(frozenset({0, 11, 12})), replace(SETTINGS, checkpoints=CheckpointRule(2))
    run = map_video(source, tiny_model, tmp_path / "out", settings)
    monkeypatch.setattr(KittiSink, "write", lambda *_: pytest.fail("a result came"))
    for event in run:
        if isinstance(event, Saved):
            break
    run.close()
    monkeypatch.undo()
    assert (tmp_path / "out" / FOLDER / "latest.json").exists()
    list(map_video(Walk(frozenset({0, 11, 12})), tiny_model, tmp_path / "out", settings, resume=True))
    assert contents(tmp_path / "out") == whole


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ("world:1?frames=6&size=42x28&fps=5", r"source\.fps 10\.0, now 5\.0"),
        ("world:1?frames=6&size=56x42", r"source\.width 42, now 56; source\.height 28, now 42"),
        ("world:2?frames=6&size=42x28", r'source\.name "world 1", now "world 2"'),
    ],
)
def test_another_world_is_not_gone_on_with(
    tiny_model: GeometryModel, tmp_path: Path, other: str, difference: str
) -> None:
    settings = replace(SETTINGS, checkpoints=CheckpointRule(100))
    stopped_at_once(map_video(open_source("world:1?frames=6&size=42x28"), tiny_model, tmp_path / "out", settings))
    shutil.rmtree(tmp_path / "out" / FOLDER)
    with pytest.raises(SettingError, match=rf"other settings \({difference}\)"):
        map_video(open_source(other), tiny_model, tmp_path / "out", settings, resume=True)


def test_only_the_same_run_can_be_resumed(tiny_model: GeometryModel, tmp_path: Path) -> None:
    out = tmp_path / "out"
    stopped_at_once(map_video(Walk(num_frames=10), tiny_model, out, SETTINGS))
    other = replace(SETTINGS, session=replace(SESSION, keyframes=EveryNth(3)))
    with pytest.raises(SettingError, match=r"other settings \(session\.keyframes\.interval 2, now 3\)"):
        map_video(Walk(num_frames=10), tiny_model, out, other, resume=True)
    with pytest.raises(SettingError, match="is live"):
        map_video(Walk(is_live=True, num_frames=10), tiny_model, out, SETTINGS, resume=True)
    list(map_video(Walk(num_frames=10), tiny_model, out, SETTINGS, resume=True))
    with pytest.raises(SettingError, match="is complete"):
        map_video(Walk(num_frames=10), tiny_model, out, SETTINGS, resume=True)
    with pytest.raises(InputError, match="holds a run already"):
        map_video(Walk(num_frames=10), tiny_model, out, SETTINGS)


def test_a_damaged_checkpoint_is_refused_in_a_sentence(tiny_model: GeometryModel, tmp_path: Path) -> None:
    out = tmp_path / "out"
    stopped_at_once(map_video(Walk(), tiny_model, out, SETTINGS))
    (out / FOLDER / "latest.json").write_text("{")
    with pytest.raises(InputError, match=r"checkpoint .* is damaged"):
        map_video(Walk(), tiny_model, out, SETTINGS, resume=True)


def test_a_live_source_drops_what_comes_too_fast_and_counts_it(tiny_model: GeometryModel, tmp_path: Path) -> None:
    settings = replace(SETTINGS, when_full=WhenFull.NEWEST_WINS)
    video = map_video(Walk(is_live=True), tiny_model, tmp_path / "out", settings)
    items = list(frames_of(video))
    assert video.summary is not None
    assert video.summary.num_dropped > 0
    assert len(items) + video.summary.num_dropped == NUM_FRAMES
    assert not (tmp_path / "out" / FOLDER).exists()


def test_an_error_in_a_sink_reaches_the_caller_and_leaves_whole_files(
    tiny_model: GeometryModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    video = map_video(Walk(), tiny_model, tmp_path / "out", SETTINGS)
    written: list[MappedFrame] = []

    def fail(self: object, frame: MappedFrame) -> None:
        written.append(frame)
        if len(written) == 15:
            raise InputError("The disk is full.")

    monkeypatch.setattr(KittiSink, "write", fail)
    with pytest.raises(InputError, match="The disk is full"):
        list(video)
    assert len(read_take(tmp_path / "out")) == 15
    assert not is_done(tmp_path / "out")


def test_statuses_are_counted(tiny_model: GeometryModel, tmp_path: Path) -> None:
    video = map_video(Walk(frozenset({5}), num_frames=12), tiny_model, tmp_path / "out", SETTINGS)
    list(video)
    assert video.counts[FrameStatus.UNREADABLE] == 1
    assert sum(video.counts[status] for status in FrameStatus) == 12


def test_time_and_memory_are_written_as_the_video_runs_and_after_a_break(
    tiny_model: GeometryModel, tmp_path: Path
) -> None:
    stopped_at_once(map_video(Walk(), tiny_model, tmp_path / "out", SETTINGS))
    list(map_video(Walk(), tiny_model, tmp_path / "out", SETTINGS, resume=True))
    lines = [json.loads(line) for line in (tmp_path / "out" / PROGRESS_NAME).read_text().splitlines()]
    assert len(lines) == 2
    assert lines[0]["index"] == 0 < lines[1]["index"]
    assert all(line["seconds"] >= 0 and line["resident_bytes"] > 0 for line in lines)


def test_a_log_of_progress_that_cannot_be_written_is_a_sentence(tiny_model: GeometryModel, tmp_path: Path) -> None:
    video = map_video(Walk(), tiny_model, tmp_path / "out", SETTINGS)
    (tmp_path / "out" / PROGRESS_NAME).mkdir()
    with pytest.raises(InputError, match=r"progress.jsonl cannot be written"):
        list(video)


METRIC = ExportAdjustments(length=KnownDistance(first=0, second=19, metres=2.4))
EXPORTING = replace(
    SETTINGS,
    outputs=Outputs(
        take=TakeSettings(images=ImageFiles.JPEG, depth=DepthKind.NPZ),
        export=ExportSettings(formats=("tum", "ply", "colmap"), adjustments=METRIC),
    ),
)


def fail_half_way(frames: Iterable[MappedFrame], num_frames: int) -> Iterator[MappedFrame]:
    yield from islice(frames, num_frames // 2)
    raise InputError("The disk is full.")


@pytest.mark.extra
def test_the_export_is_made_when_the_video_has_ended_and_not_before(tiny_model: GeometryModel, tmp_path: Path) -> None:
    (made,) = exported(map_video(Walk(), tiny_model, tmp_path / "whole", EXPORTING))
    assert (made.record.unit, made.record.frames) == ("m", NUM_FRAMES)
    assert all(Path(file).exists() for file in made.record.files.values())
    assert "Lengths are in metres" in (tmp_path / "whole" / REPORT_NAME).read_text()
    out = tmp_path / "cut"
    stopped_at_once(map_video(Walk(), tiny_model, out, EXPORTING))
    assert not (out / EXPORT_FOLDER).exists()
    list(map_video(Walk(), tiny_model, out, EXPORTING, resume=True))
    assert exported_files(out) == exported_files(tmp_path / "whole")
    live = contents(tmp_path / "whole")["poses.tum"]
    assert live == contents(out)["poses.tum"] != (out / EXPORT_FOLDER / "poses.tum").read_bytes()


def exported_files(out: Path) -> dict[str, bytes]:
    """All but the record, which names the folder."""
    return {name: content for name, content in contents(out / EXPORT_FOLDER).items() if name != RECORD_NAME}


@pytest.mark.extra
def test_an_export_that_died_is_made_when_resumed_and_no_frame_is_mapped_again(
    tiny_model: GeometryModel, tmp_path: Path
) -> None:
    list(map_video(Walk(), tiny_model, tmp_path / "whole", EXPORTING))
    out = tmp_path / "out"
    first = map_video(Walk(), tiny_model, out, EXPORTING, on_export=fail_half_way)
    with pytest.raises(InputError, match="The disk is full"):
        list(first)
    assert is_done(out)
    assert not is_done(out, EXPORTING.outputs)
    second = map_video(Walk(), tiny_model, out, EXPORTING, resume=True)
    assert list(frames_of(second)) == []
    assert first.summary is not None
    assert second.summary is not None
    assert second.summary.seconds == first.summary.seconds
    assert second.summary.peak_resident_bytes >= first.summary.peak_resident_bytes
    assert exported_files(out) == exported_files(tmp_path / "whole")
    assert is_done(out, EXPORTING.outputs)
    with pytest.raises(SettingError, match="is complete"):
        map_video(Walk(), tiny_model, out, EXPORTING, resume=True)


def test_what_is_left_of_a_run_can_be_exported_otherwise_but_not_mapped_otherwise(
    tiny_model: GeometryModel, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="The disk is full"):
        list(map_video(Walk(), tiny_model, tmp_path, EXPORTING, on_export=fail_half_way))
    other = replace(EXPORTING.outputs, session=True)
    with pytest.raises(SettingError, match=r"other settings \(outputs\.session false, now true\)"):
        map_video(Walk(), tiny_model, tmp_path, replace(EXPORTING, outputs=other), resume=True)
    poses = replace(EXPORTING.outputs, export=ExportSettings(formats=("kitti",)))
    list(map_video(Walk(), tiny_model, tmp_path, replace(EXPORTING, outputs=poses), resume=True))
    assert set(contents(tmp_path / EXPORT_FOLDER)) == {RECORD_NAME, "poses.kitti"}


@pytest.mark.extra
def test_a_run_that_replaces_another_leaves_nothing_of_its_export(tiny_model: GeometryModel, tmp_path: Path) -> None:
    settings = replace(EXPORTING, outputs=replace(EXPORTING.outputs, session=True))
    list(map_video(Walk(), tiny_model, tmp_path, settings))
    (tmp_path / EXPORT_FOLDER / "mine.txt").write_text("mine")
    plain = replace(EXPORTING, outputs=replace(EXPORTING.outputs, export=None))
    list(map_video(Walk(), tiny_model, tmp_path, plain, overwrite=True))
    assert set(contents(tmp_path / EXPORT_FOLDER)) == {"mine.txt"}
    assert not (tmp_path / SESSION_NAME).exists()


def test_an_export_that_the_take_could_not_give_is_refused_beforehand(
    tiny_model: GeometryModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingError, match="let the take have images"):
        Outputs(take=TakeSettings(images=None), export=ExportSettings(formats=("colmap",)))
    with pytest.raises(SettingError, match="let the take have depth"):
        Outputs(take=TakeSettings(depth=None), export=ExportSettings(formats=("ply",)))
    height = ExportSettings(formats=("tum",), adjustments=ExportAdjustments(length=KnownHeight(metres=1.5)))
    with pytest.raises(SettingError, match="let the take have depth"):
        Outputs(take=TakeSettings(depth=None), export=height)
    monkeypatch.setitem(sys.modules, "rerun", None)
    rerun = replace(EXPORTING, outputs=Outputs(export=ExportSettings(formats=("rrd",))))
    with pytest.raises(MissingExtraError, match="rerun"):
        map_video(Walk(), tiny_model, tmp_path / "out", rerun)
    assert not (tmp_path / "out").exists()


def answers(session: VideoSession, frames: list[torch.Tensor], times: list[float]) -> Geometry:
    given = [*map(session.step, frames, times), session.finish()]
    return Geometry.join([geometry for geometry in given if len(geometry)])


@pytest.mark.parametrize("num_frames", rest_in_extra([13, 1, 17], keep=1), ids=lambda count: f"{count} frames")
@pytest.mark.parametrize("session", rest_in_extra([SESSION, replace(SESSION, windows=None)], keep=1))
def test_a_saved_session_goes_on_as_if_the_video_had_never_ended(
    tiny_model: GeometryModel, tmp_path: Path, session: SessionSettings, num_frames: int
) -> None:
    """It gives first what a later window might have replaced, which the video's end gave out too."""
    settings = replace(SETTINGS, session=session, outputs=Outputs(session=True))
    list(map_video(Walk(num_frames=num_frames), tiny_model, tmp_path, settings))
    prepare = Preprocessor(fit=settings.fit, size=session.image_size, patch=tiny_model.config.patch)
    frames = [prepare(picture).pixels for picture in pictures()]
    times = [index / 10 for index in range(NUM_FRAMES)]
    straight = open_session(tiny_model, session, tuple(frames[0].shape[1:]))
    want = answers(straight, frames, times)
    resumed = resume_session(tmp_path / SESSION_NAME, tiny_model)
    got = answers(resumed, frames[num_frames:], times[num_frames:])
    last = want.frames(len(want) - len(got), len(want))
    assert got.frame_index[-1] == NUM_FRAMES - 1
    assert got.frame_index[0] <= num_frames
    assert (got.frame_index, got.timestamp_s, got.window) == (last.frame_index, last.timestamp_s, last.window)
    assert torch.equal(got.pose_encoding, last.pose_encoding)
    assert torch.equal(got.world_from_camera, last.world_from_camera)
    assert torch.equal(got.depth, last.depth)


def test_no_session_is_saved_of_a_video_that_was_stopped(tiny_model: GeometryModel, tmp_path: Path) -> None:
    settings = replace(SETTINGS, outputs=Outputs(session=True))
    stopped_at_once(map_video(Walk(num_frames=10), tiny_model, tmp_path, settings))
    assert not (tmp_path / SESSION_NAME).exists()
    list(map_video(Walk(num_frames=10), tiny_model, tmp_path, settings, resume=True))
    assert (tmp_path / SESSION_NAME).exists()
