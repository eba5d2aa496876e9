"""Frames that move after they were written: the folder of a run ends with what is known, broken off or not."""

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from told import last_versions
from torn_video import TornVideo

from longtake.errors import InputError, SettingError
from longtake.exports.cloud import GrowingCloud
from longtake.exports.frame import MappedFrame
from longtake.exports.reexport import ExportSettings, export_take
from longtake.geometry.model import GeometryModel
from longtake.memory.policies.lockstep import ContextRetention
from longtake.memory.saved import TensorFile
from longtake.pipeline import run_folder, video_map
from longtake.pipeline.checkpoint import CheckpointRule
from longtake.pipeline.events import Frame, Moved
from longtake.pipeline.final_moves import FinalMoves
from longtake.pipeline.outputs import Outputs
from longtake.pipeline.run import Run
from longtake.pipeline.video_map import MapSettings, map_video
from longtake.pipeline.writer_process import WriterProcess
from longtake.runtime.build import SessionSettings
from longtake.runtime.steps import Look, VideoSession
from longtake.runtime.windows import Windows
from longtake.spatial.pose import matrix_from_quaternion
from longtake.spatial.similarity import Similarity
from longtake.takes.header import ONLINE_POSES_NAME
from longtake.takes.take import read_take
from longtake.types import Geometry, MovedSpan
from longtake.types import Moved as MovedGeometry
from longtake.world.tour import Tour

NUM_FRAMES, TORN = 20, frozenset({0, 4, 9})
PICTURES = [
    (view.image.movedim(0, -1) * 255).byte().numpy()
    for view in islice(Tour(seed=3, width=56, height=42).views(), NUM_FRAMES)
]
SESSION = SessionSettings(
    image_size=56,
    num_scale_frames=2,
    retention=ContextRetention(anchors=2, window=3, history=12),
    windows=Windows(size=8, overlap_frames=3),
)
MOVES = {
    12: ((0, 2, 1.1, 0.1), (3, 6, 0.9, -0.2)),
    15: ((2, 8, 1.05, 0.3),),
}
"""By the number of frames that a session has seen: first and last frame, scale, and how far they turn and go."""


class Corrected(VideoSession):
    """A session that says of frames long final that they are elsewhere."""

    def __init__(self, inner: VideoSession) -> None:
        self._inner = inner

    def check(self, frame: torch.Tensor) -> None:
        self._inner.check(frame)

    @contextmanager
    def look(self, frame: torch.Tensor, timestamp_s: float | None = None) -> Iterator[Look]:
        with self._inner.look(frame, timestamp_s) as look:
            yield replace(look, geometry=self._with_moves(look.geometry))

    def _with_moves(self, geometry: Geometry) -> Geometry:
        moves = MOVES.get(geometry.frame_index[-1] + 1, ()) if geometry.frame_index else ()
        if not moves:
            return geometry
        spans = tuple(
            MovedSpan(first_frame=first, last_frame=last, now_from_before=similarity(scale, turn).matrix)
            for first, last, scale, turn in moves
        )
        before = geometry.moved or MovedGeometry(version=100, spans=(), geometry=geometry.frames(0, 0))
        return replace(geometry, moved=replace(before, spans=(*before.spans, *spans)))

    def look_last(self, frame: torch.Tensor, timestamp_s: float | None = None) -> object:
        return self._inner.look_last(frame, timestamp_s)

    def look_at_rest(self) -> object:
        return self._inner.look_at_rest()

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    num_final = property(lambda self: self._inner.num_final)
    provisional = property(lambda self: self._inner.provisional)
    progress = property(lambda self: self._inner.progress)
    num_bytes = property(lambda self: self._inner.num_bytes)
    live_bytes = property(lambda self: self._inner.live_bytes)

    def fork(self) -> VideoSession:
        return Corrected(self._inner.fork())

    def close(self) -> None:
        self._inner.close()

    def as_file(self, **said: Any) -> TensorFile:
        return self._inner.as_file(**said)


def similarity(scale: float, turn: float) -> Similarity:
    quaternion = torch.tensor([0.0, turn, 0.0, 1.0], dtype=torch.float64)
    translation = torch.tensor([turn, 0.0, 2 * turn], dtype=torch.float64)
    return Similarity(torch.tensor(scale, dtype=torch.float64), matrix_from_quaternion(quaternion), translation)


@pytest.fixture(autouse=True)
def corrected_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in for a session that knows a place again."""
    for name in ("open_session", "resume_session"):
        made = getattr(video_map, name)
        monkeypatch.setattr(video_map, name, lambda *arguments, made=made: Corrected(made(*arguments)))


def run(model: GeometryModel, out: Path, *, resume: bool = False, **told: Any) -> Run:
    outputs = Outputs(formats=("ply", "kitti"))
    settings = MapSettings(session=SESSION, outputs=outputs, checkpoints=CheckpointRule(5))
    return map_video(TornVideo("walk", PICTURES, TORN), model, out, settings, resume=resume, **told)


def files(folder: Path) -> dict[str, bytes]:
    """Those that depend on the video alone."""
    said = {"progress.jsonl", "summary.json", "report.html"}
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in said
    }


@pytest.fixture(scope="module")
def whole(tiny_model: GeometryModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("corrected") / "out"
    with pytest.MonkeyPatch.context() as patched:
        corrected_sessions.__wrapped__(patched)  # type: ignore[attr-defined]
        list(run(tiny_model, out))
    return out


def test_the_take_ends_with_what_was_told_last(tiny_model: GeometryModel, tmp_path: Path) -> None:
    events = list(run(tiny_model, tmp_path / "out"))
    known = {index: frame.world_from_camera for index, frame in last_versions(events).items()}
    told: set[int] = set()
    for event in events:
        if isinstance(event, Frame):
            told.add(event.index)
        if isinstance(event, Moved):
            here = {frame.index for frame in event.correction.frames}
            for span in event.correction.spans:
                for index in range(span.first_frame, span.last_frame + 1):
                    if index in told and index not in here:
                        known[index] = Similarity.of_matrix(span.now_from_before).of_cameras(known[index])
    take = read_take(tmp_path / "out")
    assert take.corrections is not None
    poses = torch.stack([known[record.index] for record in take.records])
    torch.testing.assert_close(take.trajectory.world_from_camera, poses, rtol=0, atol=1e-9)


def test_depth_moves_along(whole: Path) -> None:
    take = read_take(whole)
    assert take.header.depth is not None
    indices = [record.index for record in take.records]
    expected = {1: 1.1, 2: 1.1, 3: 1.1 * 1.05, 5: 0.9 * 1.05, 8: 0.9 * 1.05, 11: 1.05, 13: 1.0}
    for index, scale in expected.items():
        said = take.header.depth.read(whole, index, take.header.size)
        np.testing.assert_allclose(take.depth(indices.index(index)), said * scale, rtol=1e-6)


def test_what_was_said_stays(whole: Path, tiny_model: GeometryModel, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FinalMoves, "corrections", None)
        list(run(tiny_model, tmp_path / "said"))
    assert (whole / ONLINE_POSES_NAME).read_bytes() == (tmp_path / "said" / "poses.tum").read_bytes()
    assert not (tmp_path / "said" / ONLINE_POSES_NAME).exists()


def test_what_was_written_beside_the_take_follows_it(whole: Path, tmp_path: Path) -> None:
    export_take(read_take(whole), tmp_path / "export", ExportSettings(formats=("kitti", "ply")))
    for name in ("poses.kitti", "cloud.ply"):
        assert (whole / name).read_bytes() == (tmp_path / "export" / name).read_bytes()


def test_what_is_made_anew_is_told_and_counted_in_one_go_through_the_frames(
    tiny_model: GeometryModel, tmp_path: Path
) -> None:
    told: list[tuple[str, int, int]] = []

    def tell(what: str, frames: Iterable[MappedFrame], num_frames: int) -> Iterator[MappedFrame]:
        time.sleep(0.2)
        seen = list(frames)
        told.append((what, len(seen), num_frames))
        yield from seen

    list(run(tiny_model, tmp_path / "out", on_finish=tell))
    count = NUM_FRAMES - len(TORN)
    assert told == [("Making cloud.ply and poses.kitti anew", count, count)]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["finishing_s"] >= 0.2
    assert summary["frames_per_s"] == pytest.approx(NUM_FRAMES / summary["seconds"], rel=0.2)


def test_it_is_made_anew_by_the_process_that_writes_where_there_is_one(
    tiny_model: GeometryModel, whole: Path, tmp_path: Path
) -> None:
    """With one thread, for several wait for each other at every little step where a machine is busy."""
    opened: list[bool] = []

    def tell(what: str, frames: Iterable[MappedFrame], num_frames: int) -> Iterator[MappedFrame]:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(GrowingCloud, "points_of", lambda *_: opened.append(True))  # of this process alone
            yield from frames

    with WriterProcess(at_once=True) as writer:
        writer.wait_until_ready()
        list(run(tiny_model, tmp_path / "out", writer_process=writer, on_finish=tell))
    assert files(tmp_path / "out") == files(whole)
    assert not opened


@pytest.mark.parametrize("stopped_after", [7, 14, 17])
def test_a_run_that_goes_on_ends_as_if_never_stopped(
    tiny_model: GeometryModel, whole: Path, tmp_path: Path, stopped_after: int
) -> None:
    first = run(tiny_model, tmp_path / "out")
    for number, _ in enumerate(first, start=1):
        if number == stopped_after:
            first.stop()
    list(run(tiny_model, tmp_path / "out", resume=True))
    assert files(tmp_path / "out") == files(whole)


@pytest.mark.parametrize("broken_at", ["correct_take", "saved_frames", "write_report"])
def test_broken_off_in_its_last_act_a_run_goes_on_with_it(
    tiny_model: GeometryModel, whole: Path, tmp_path: Path, broken_at: str
) -> None:
    def fail(*_: object) -> None:
        raise InputError("The disk is full.")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run_folder, broken_at, fail)
        with pytest.raises(InputError, match="full"):
            list(run(tiny_model, tmp_path / "out"))
    if broken_at == "write_report":  # all that counts was done
        with pytest.raises(SettingError, match="complete"):
            run(tiny_model, tmp_path / "out", resume=True)
    else:
        list(run(tiny_model, tmp_path / "out", resume=True))
    assert files(tmp_path / "out") == files(whole)
