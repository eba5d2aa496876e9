"""Files written by another process are those that this one would have written, whatever ends either of them."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import NoReturn

import numpy as np
import psutil
import pytest
import torch
from failing_sink import FailingSink
from PIL import Image
from selected import rest_in_extra
from waiting_save import save_when_told

from longtake.errors import InputError, SettingError
from longtake.exports.cloud import CloudSettings
from longtake.exports.frame import FrameStatus, MappedFrame
from longtake.exports.masks import MaskFolder
from longtake.exports.point_filter import PointFilter
from longtake.exports.report.folder import PROGRESS_NAME, SUMMARY_NAME
from longtake.exports.report.page import REPORT_NAME
from longtake.exports.sink import Sink, SinkState
from longtake.exports.take import DepthKind, PixelGrid, TakeSettings
from longtake.geometry.model import GeometryModel
from longtake.hub.load import random_model
from longtake.memory.policies.lockstep import ContextRetention
from longtake.pipeline import writer_process as aside_module
from longtake.pipeline.checkpoint import CheckpointRule
from longtake.pipeline.events import Frame, Saved
from longtake.pipeline.outputs import Outputs, open_sinks
from longtake.pipeline.run import Run
from longtake.pipeline.video_map import MapSettings, map_video
from longtake.pipeline.writer_process import MOST_IN_FLIGHT, WriterProcess, WriterProcessSink
from longtake.runtime.build import SMALL, SessionSettings
from longtake.spatial.placement import Placement
from longtake.takes.take import read_take
from longtake.types import FrameKind
from longtake.video.source import open_source
from longtake.weights.presets import TINY
from longtake.world.tour import Tour

OUTPUTS = Outputs(
    take=TakeSettings(depth=DepthKind.NPZ, pixels=PixelGrid.SOURCE),
    cloud=CloudSettings(voxel=0.05, max_points=3000),
    formats=("ply", "kitti"),
)
SETTINGS = MapSettings(
    session=SessionSettings(
        image_size=56, num_scale_frames=2, retention=ContextRetention(anchors=2, window=3, history=12)
    ),
    outputs=OUTPUTS,
    checkpoints=CheckpointRule(7),
)
SOURCE = "world:2?frames=24&size=56x42"
NUM_BEFORE = 34
"""Frames before one that cannot be written: more than can be under way when the first was told."""


@pytest.fixture(scope="module")
def ready() -> Iterator[WriterProcess]:
    with WriterProcess() as process:
        process.wait_until_ready()
        assert process.is_ready
        yield process


@pytest.fixture
def own() -> Iterator[WriterProcess]:
    """One that the test may end."""
    with WriterProcess() as process:
        process.wait_until_ready()
        yield process


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but those with times of the clock in them."""
    timed = (SUMMARY_NAME, PROGRESS_NAME, REPORT_NAME)
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in timed]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@cache
def pictures() -> list[np.ndarray]:
    views = islice(Tour(seed=2, width=56, height=42).views(), max(12, MOST_IN_FLIGHT + 3))
    return [(view.image.movedim(0, -1) * 255).byte().numpy() for view in views]


def frames(count: int) -> list[MappedFrame]:
    return [
        MappedFrame(
            index=index,
            timestamp_s=index / 10,
            status=FrameStatus.OK,
            kind=FrameKind.PASSING,
            window=0,
            world_from_camera=torch.eye(4, dtype=torch.float64),
            intrinsics=torch.tensor([[40.0, 0, 27.5], [0, 40, 20.5], [0, 0, 1]], dtype=torch.float64),
            depth=np.linspace(1, 2, 42 * 56, dtype=np.float32).reshape(42, 56),
            confidence=np.linspace(2, 1, 42 * 56, dtype=np.float32).reshape(42, 56),
            image=picture,
            source_image=picture,
            placement=Placement(56, 42, 1.0, 1.0),
        )
        for index, picture in enumerate(pictures()[:count])
    ]


def frames_of(run: Run) -> Iterator[Frame]:
    return (event for event in run if isinstance(event, Frame))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, tiny_model: GeometryModel) -> dict[str, bytes]:
    """What this process writes."""
    out = tmp_path_factory.mktemp("whole") / "out"
    list(map_video(open_source(SOURCE), tiny_model, out, SETTINGS))
    return contents(out)


def test_files_are_the_same_and_a_few_frames_at_most_are_under_way(
    tiny_model: GeometryModel, ready: WriterProcess, whole: dict[str, bytes], tmp_path: Path
) -> None:
    video = map_video(open_source(SOURCE), tiny_model, tmp_path / "out", SETTINGS, writer_process=ready)
    for event in video:
        if not isinstance(event, Frame | Saved):
            continue
        num_final = sum(video.counts[status] for status in FrameStatus if status is not FrameStatus.UNREADABLE)
        num_written = 0
        with suppress(InputError):  # there is no take before its first frame is complete
            num_written = len(read_take(tmp_path / "out"))
        assert num_final - MOST_IN_FLIGHT <= num_written <= num_final
        assert isinstance(event, Frame) or num_written == num_final
    assert contents(tmp_path / "out") == whole
    assert video.summary is not None
    assert video.summary.peak_resident_bytes > ready.peak_bytes > 50_000_000


@pytest.mark.parametrize("ready_after", rest_in_extra([7, 1, 11], keep=1))
def test_files_are_the_same_whenever_the_process_is_ready(
    ready: WriterProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ready_after: int
) -> None:
    mapped = frames(12)
    with open_sinks(tmp_path / "here", OUTPUTS) as here:
        for frame in mapped:
            here.write(frame)
    monkeypatch.setattr(WriterProcess, "is_ready", property(lambda _: False))
    with WriterProcessSink(ready, partial(open_sinks, tmp_path / "aside", OUTPUTS)) as sink:
        for index, frame in enumerate(mapped):
            if index == ready_after:
                monkeypatch.undo()
            sink.write(frame)
            assert sink.is_handed_over == (index >= ready_after)
    assert contents(tmp_path / "aside") == contents(tmp_path / "here")


def test_a_process_is_started_only_for_a_video_that_is_long_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aside_module, "FRAMES_BEFORE_HANDOVER", 5)
    mapped = frames(6)
    with WriterProcess() as process, WriterProcessSink(process, partial(open_sinks, tmp_path, OUTPUTS)) as sink:
        for frame in mapped[:4]:
            sink.write(frame)
        assert process.resident_bytes == 0
        assert process.peak_bytes == 0
        sink.write(mapped[4])
        process.wait_until_ready()
        assert process.resident_bytes > 50_000_000
        assert not sink.is_handed_over
        sink.write(mapped[5])
        assert sink.is_handed_over
    assert len(read_take(tmp_path)) == 6


def test_a_process_that_is_wanted_at_once_takes_the_first_frame(tmp_path: Path) -> None:
    with WriterProcess(at_once=True) as process:
        process._greeted.join()
        assert process.is_ready
        with WriterProcessSink(process, partial(open_sinks, tmp_path, OUTPUTS)) as sink:
            for frame in frames(2):
                sink.write(frame)
                assert sink.is_handed_over
    assert len(read_take(tmp_path)) == 2


def test_frames_go_on_while_a_checkpoint_is_saved_which_has_those_before_it(
    ready: WriterProcess, tmp_path: Path
) -> None:
    mapped, took_s, out = frames(MOST_IN_FLIGHT + 3), list[float](), tmp_path / "out"
    with WriterProcessSink(ready, partial(open_sinks, out, OUTPUTS)) as sink:
        for frame in mapped[:3]:
            sink.write(frame)
        sink.checkpoint()
        sink.save(partial(save_when_told, tmp_path), took_s.append)
        for frame in mapped[3 : MOST_IN_FLIGHT + 2]:
            sink.write(frame)
        assert took_s == []
        (tmp_path / "go").touch()
        sink.write(mapped[-1])
        assert len(took_s) == 1
        assert (tmp_path / "saved").read_text() == "3"
    assert len(read_take(out)) == len(mapped)


def test_a_checkpoint_that_cannot_be_saved_is_told_by_a_later_call(ready: WriterProcess, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    (tmp_path / "fail").touch()
    took_s = list[float]()
    with WriterProcessSink(ready, partial(open_sinks, tmp_path / "out", OUTPUTS)) as sink:
        sink.write(frames(1)[0])
        sink.save(partial(save_when_told, tmp_path), took_s.append)
        with pytest.raises(InputError, match="The checkpoint cannot be written"):
            sink.checkpoint()
        assert took_s == []


def test_a_checkpoint_is_saved_at_once_where_frames_are_written_here(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    took_s = list[float]()
    with WriterProcess() as process, WriterProcessSink(process, partial(open_sinks, tmp_path / "out", OUTPUTS)) as sink:
        sink.write(frames(1)[0])
        sink.save(partial(save_when_told, tmp_path), took_s.append)
        assert len(took_s) == 1
    assert (tmp_path / "saved").read_text() == "1"


def test_where_no_process_can_be_had_files_are_written_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(aside_module, "FRAMES_BEFORE_HANDOVER", 2)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    with WriterProcess() as process, WriterProcessSink(process, partial(open_sinks, tmp_path, OUTPUTS)) as sink:
        for frame in frames(4):
            sink.write(frame)
        process.wait_until_ready()
        assert not process.is_ready
    assert len(read_take(tmp_path)) == 4


@pytest.mark.parametrize("abandoned_after", rest_in_extra([9, 1, 20], keep=1))
def test_a_run_left_in_the_middle_resumes_to_the_same_files(
    tiny_model: GeometryModel, ready: WriterProcess, whole: dict[str, bytes], tmp_path: Path, abandoned_after: int
) -> None:
    items = iter(map_video(open_source(SOURCE), tiny_model, tmp_path / "out", SETTINGS, writer_process=ready))
    for _ in range(abandoned_after):
        next(items)
    items.close()
    list(map_video(open_source(SOURCE), tiny_model, tmp_path / "out", SETTINGS, writer_process=ready, resume=True))
    assert contents(tmp_path / "out") == whole


@pytest.mark.extra
def test_two_runs_at_once_have_a_process_each(
    tiny_model: GeometryModel, ready: WriterProcess, own: WriterProcess, whole: dict[str, bytes], tmp_path: Path
) -> None:
    def run(name: str, process: WriterProcess) -> None:
        list(map_video(open_source(SOURCE), tiny_model, tmp_path / name, SETTINGS, writer_process=process))

    threads = [threading.Thread(target=run, args=pair) for pair in (("one", ready), ("other", own))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert contents(tmp_path / "one") == contents(tmp_path / "other") == whole


def test_what_the_disk_does_not_take_is_the_same_sentence(
    tiny_model: GeometryModel, ready: WriterProcess, tmp_path: Path
) -> None:
    """The file of a frame's depth cannot be made where a folder has its name."""
    out = tmp_path / "out"
    video = map_video(
        open_source(f"world:2?frames={NUM_BEFORE + 6}&size=56x42"), tiny_model, out, SETTINGS, writer_process=ready
    )
    with pytest.raises(InputError, match=r"The take .*out cannot be written \(Is a directory\); make room there"):
        run_and(video, 1, partial((out / "depth" / f"{NUM_BEFORE:06d}.npz").mkdir, parents=True))
    assert video.counts[FrameStatus.OK] + video.counts[FrameStatus.WEAK] <= NUM_BEFORE + MOST_IN_FLIGHT + 1
    assert len(read_take(out)) == NUM_BEFORE
    assert (out / "cloud.ply").exists()
    with WriterProcessSink(ready, partial(open_sinks, tmp_path / "next", OUTPUTS)) as sink:  # the process goes on
        sink.write(frames(1)[0])
    assert len(read_take(tmp_path / "next")) == 1


def test_the_first_error_is_told_though_a_checkpoint_waits_behind_it(ready: WriterProcess) -> None:
    sink = WriterProcessSink(ready, FailingSink)
    for frame in frames(4):
        sink.write(frame)
    with pytest.raises(InputError, match="The disk is full"):
        sink.checkpoint()
    sink.close()


def test_a_folder_that_is_taken_is_refused_before_anything_is_mapped(
    tiny_model: GeometryModel, ready: WriterProcess, tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="holds other files"):
        map_video(open_source(SOURCE), tiny_model, tmp_path, SETTINGS, writer_process=ready)


def test_a_process_that_dies_is_a_sentence_and_the_run_can_be_resumed_without_it(
    tiny_model: GeometryModel, own: WriterProcess, whole: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    video = map_video(open_source(SOURCE), tiny_model, out, SETTINGS, writer_process=own)
    with pytest.raises(InputError, match=r"process that writes the files has died \(exit code -9\)"):
        run_and(video, 10, helper().kill)
    list(map_video(open_source(SOURCE), tiny_model, out, SETTINGS, writer_process=own, resume=True))
    assert contents(out) == whole


def run_and(video: Run, num_frames: int, do: Callable[[], object]) -> None:
    """Map a video to its end, and do something after so many frames."""
    for count, _ in enumerate(frames_of(video), 1):
        if count == num_frames:
            do()


def helper() -> psutil.Process:
    """The newest process that this one started."""
    return max(psutil.Process().children(), key=lambda child: child.create_time())


def test_an_interrupt_while_waiting_for_an_answer_leaves_files_that_can_be_closed(
    own: WriterProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aside_module, "MOST_IN_FLIGHT", 0)
    mapped = frames(3)
    next_answer = WriterProcess._next_answer

    def interrupted(self: WriterProcess) -> object:
        monkeypatch.setattr(WriterProcess, "_next_answer", next_answer)
        raise KeyboardInterrupt

    def write_interrupted(sink: Sink) -> None:
        with sink:
            sink.write(mapped[0])
            monkeypatch.setattr(WriterProcess, "_next_answer", interrupted)
            sink.write(mapped[1])

    with pytest.raises(KeyboardInterrupt):
        write_interrupted(WriterProcessSink(own, partial(open_sinks, tmp_path, OUTPUTS)))
    assert len(read_take(tmp_path)) == 2
    assert (tmp_path / "cloud.ply").stat().st_size > 1000


def test_an_interrupt_in_the_middle_of_a_frame_ends_at_once(own: WriterProcess, tmp_path: Path) -> None:
    class Interrupting:
        def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
            raise KeyboardInterrupt

    sink = WriterProcessSink(own, partial(open_sinks, tmp_path, OUTPUTS))
    sink.write(frames(1)[0])
    sink.checkpoint()
    with pytest.raises(KeyboardInterrupt):
        own.ask([bytes(1_000_000), Interrupting()])
    assert not own.is_ready
    sink.close()
    assert len(read_take(tmp_path)) == 1


class NoSky:
    """A sky model that was written into a script, which another process does not read."""

    __module__ = "__main__"

    def score(self, image: np.ndarray) -> np.ndarray:
        return np.zeros((2, 2))


def test_settings_that_cannot_travel_are_a_sentence(
    ready: WriterProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opening(state: SinkState | None) -> Sink:
        return open_sinks(tmp_path, OUTPUTS, state)

    with pytest.raises(SettingError, match="cannot be pickled"):
        WriterProcessSink(ready, opening)
    monkeypatch.setattr(sys.modules["__main__"], "NoSky", NoSky, raising=False)
    lost = replace(OUTPUTS, cloud=CloudSettings(points=PointFilter(sky=NoSky())))
    with (
        WriterProcessSink(ready, partial(open_sinks, tmp_path, lost)) as sink,
        pytest.raises(SettingError, match="cannot be pickled"),
    ):
        sink.write(frames(1)[0])


def test_masks_travel(ready: WriterProcess, tmp_path: Path) -> None:
    (tmp_path / "masks").mkdir()
    Image.new("L", (56, 42), 0).save(tmp_path / "masks" / "0.png")
    masked = replace(OUTPUTS, cloud=CloudSettings(voxel=0.05, points=PointFilter(masks=MaskFolder(tmp_path / "masks"))))
    with WriterProcessSink(ready, partial(open_sinks, tmp_path / "out", masked)) as sink:
        sink.write(frames(1)[0])
    assert b"element vertex 0\n" in (tmp_path / "out" / "cloud.ply").read_bytes()


RUN = """
import sys, torch
from pathlib import Path
from longtake.hub.load import random_model
from longtake.pipeline.checkpoint import CheckpointRule
from longtake.pipeline.checkpoint import CheckpointRule
from longtake.pipeline.events import Frame
from longtake.pipeline.writer_process import WriterProcess
from longtake.pipeline.video_map import MapSettings, map_video
from longtake.runtime.build import SMALL
from longtake.video.source import open_source
from longtake.weights.presets import TINY
torch.set_num_threads(1)
with WriterProcess() as aside:
    aside.wait_until_ready()
    source = open_source("world:3?frames=45&size=56x42")
    settings = MapSettings(session=SMALL, checkpoints=CheckpointRule(10))
    model = random_model(TINY, torch.device("cpu"))
    for item in map_video(source, model, Path(sys.argv[1]), settings, writer_process=aside):
        if isinstance(item, Frame):
            print(item.index, flush=True)
"""


@pytest.mark.extra
@pytest.mark.skipif(os.name != "posix", reason="kills as POSIX systems do")
def test_killed_in_the_middle_and_resumed_the_files_are_identical(ready: WriterProcess, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", RUN, str(tmp_path / "cut")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = list(islice(process.stdout, 25))
    children = psutil.Process(process.pid).children()
    process.send_signal(signal.SIGKILL)
    _, said = process.communicate()
    assert (lines[-1], said) == ("24\n", "")
    gone, alive = psutil.wait_procs(children, timeout=10)
    assert (len(gone), alive) == (1, []), "the process that writes ends with the one that maps"
    settings, model = (
        MapSettings(session=SMALL, checkpoints=CheckpointRule(10)),
        random_model(TINY, torch.device("cpu")),
    )
    source = "world:3?frames=45&size=56x42"
    list(map_video(open_source(source), model, tmp_path / "cut", settings, resume=True, writer_process=ready))
    list(map_video(open_source(source), model, tmp_path / "whole", settings))
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


START = """
import os, signal
import longtake.pipeline.writer_process as writer_process
writer_process._START = writer_process._START.replace("import longtake.pipeline.outputs", "import time; time.sleep(60)")
process = writer_process.WriterProcess()
process.start()
print(process._process.pid, flush=True)
input()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.extra
@pytest.mark.skipif(os.name != "posix", reason="kills as POSIX systems do")
def test_a_process_that_still_imports_ends_with_the_one_that_is_killed() -> None:
    process = subprocess.Popen([sys.executable, "-c", START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    importing = psutil.Process(int(process.stdout.readline()))
    time.sleep(0.5)
    assert importing.is_running()
    process.communicate("\n")
    assert process.returncode == -signal.SIGKILL
    _, alive = psutil.wait_procs([importing], timeout=10)
    assert not alive


def test_signals_are_left_to_the_process_that_maps(ready: WriterProcess, tmp_path: Path) -> None:
    assert ready._process is not None
    mapped, writing = frames(3), psutil.Process(ready._process.pid)
    with WriterProcessSink(ready, partial(open_sinks, tmp_path, OUTPUTS)) as sink:
        for frame, number in zip(mapped, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP), strict=True):
            sink.write(frame)
            writing.send_signal(number)
    assert len(read_take(tmp_path)) == 3


def test_ended_it_leaves_no_process_behind() -> None:
    before = {child.pid for child in psutil.Process().children()}
    process = WriterProcess()
    process.start()
    process.close()
    process.close()
    assert {child.pid for child in psutil.Process().children()} == before
    started_s = time.monotonic()
    WriterProcess().close()
    assert time.monotonic() - started_s < 0.5


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forgets what a process held at most")
def test_the_most_that_was_held_is_that_of_one_video(
    tiny_model: GeometryModel, ready: WriterProcess, tmp_path: Path
) -> None:
    held = np.ones(50_000_000)  # as of a video before this one
    assert aside_module.peak_bytes() > held.nbytes
    del held
    video = map_video(open_source(SOURCE), tiny_model, tmp_path / "out", SETTINGS, writer_process=ready)
    before = aside_module.peak_bytes()
    list(video)
    assert video.summary is not None
    assert video.summary.peak_resident_bytes - ready.peak_bytes < before - 200_000_000


def test_memory_that_cannot_be_looked_up_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a process may open no more files: what a run holds is told beside its results, and no reason to end."""

    def refuse(_: object) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    assert aside_module.resident_bytes() > 10_000_000
    monkeypatch.setattr(psutil.Process, "memory_info", refuse)
    assert aside_module.resident_bytes() == 0
