"""A long video in spans: cut on its own frames, and joined so that nothing of it is lost, twice, or elsewhere."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import longtake
from longtake.api.map_request import MapRequest
from longtake.batch.folder_storage import FolderStorage
from longtake.batch.job import JoinJob, MapJob
from longtake.batch.manifest import Row
from longtake.batch.open_storage import open_storage
from longtake.batch.spans import SHARED_FRAMES, join_spans, plan_of
from longtake.errors import InputError
from longtake.exports.frame import MappedFrame
from longtake.exports.take import DepthKind, TakeSettings
from longtake.pipeline.merging import moved_frames
from longtake.pipeline.outputs import Outputs, open_sinks
from longtake.spatial.pose import nearest_rotation
from longtake.spatial.similarity import Similarity
from longtake.takes.images import ImageFiles
from longtake.takes.take import read_take

TINY = MapRequest(model="tiny", size=56, format="tum")


def spans_of(tmp_path: Path, source: str, count: int, request: MapRequest = TINY) -> list[tuple[object, object]]:
    plan = plan_of(Row(name="walk", source=source, spans=count), request.checked(), open_storage(tmp_path))
    return [(job.request.start, job.request.end) for job in plan.jobs.values() if isinstance(job, MapJob)]


def test_spans_cover_the_video_and_share_some_frames(tmp_path: Path) -> None:
    spans = spans_of(tmp_path, "world:9?frames=600&fps=10", 4)
    assert len(spans) == 4
    assert spans[0][0] == 0.0
    assert spans[-1][1] is None
    for (_, end), (start, _) in itertools.pairwise(spans):
        assert isinstance(end, float)
        assert isinstance(start, float)
        assert end - start == pytest.approx(SHARED_FRAMES / 10, abs=1e-3)


def test_spans_begin_on_frames_that_the_whole_has(tmp_path: Path) -> None:
    asked = replace(TINY, fps=4.0, start=2.0, stride=2)
    spans = spans_of(tmp_path, "world:9?frames=3000&fps=10", 3, asked)
    assert spans[0][0] == 2.0
    for start, _ in spans[1:]:
        assert isinstance(start, float)
        assert (start - 2.0) / 0.5 == pytest.approx(round((start - 2.0) / 0.5), abs=1e-3)


def test_a_short_video_is_not_cut_and_one_without_an_end_cannot_be(tmp_path: Path) -> None:
    assert spans_of(tmp_path, "world:9?frames=200", 8) == [(None, None)]
    with pytest.raises(InputError, match="a video whose length is known"):
        spans_of(tmp_path, "world:9", 2)


def written(folder: Path, frames: list[MappedFrame]) -> None:
    """As a worker leaves a span."""
    take = TakeSettings(images=ImageFiles.JPEG, depth=DepthKind.NPZ, confidence=True)
    sink = open_sinks(folder, Outputs(take=take, formats=()))
    for index, frame in enumerate(frames):
        sink.write(replace(frame, index=index))
    sink.close()
    summary = {"is_complete": True, "seconds": 1.0, "num_windows": 1, "memory_bytes": 1, "peak_resident_bytes": 1}
    (folder / "summary.json").write_text(json.dumps({**summary, "notes": []}))


@pytest.mark.extra
def test_spans_of_other_worlds_and_scales_are_one_again(tmp_path: Path) -> None:
    take = longtake.map(
        "world:9?frames=40&size=112x84", tmp_path / "whole", model="tiny", size=56, format="depth-npz,images"
    )
    take = read_take(tmp_path / "whole")
    whole = list(moved_frames(take, None))
    turn = nearest_rotation(torch.tensor([[0.3, -1.0, 0.2], [0.9, 0.4, 0.1], [-0.1, 0.3, 1.0]], dtype=torch.float64))
    other = Similarity(torch.tensor(1.7, dtype=torch.float64), turn, torch.tensor([1.0, 2.0, 3.0]).double())

    def moved(frame: MappedFrame) -> MappedFrame:
        return replace(frame, world_from_camera=other.of_cameras(frame.world_from_camera), depth=1.7 * frame.depth)

    storage = FolderStorage(tmp_path / "out")
    written(storage.folder("a"), whole[:26])
    written(storage.folder("b"), [moved(frame) for frame in whole[14:]])
    job = JoinJob(name="walk", source="x", spans=("a", "b"), request=TINY, storage=storage)
    join_spans(job, storage.folder("walk"))
    joined = read_take(storage.folder("walk"))
    assert [record.index for record in joined.records] == list(range(40))
    assert [record.timestamp_s for record in joined.records] == [record.timestamp_s for record in take.records]
    error = (joined.trajectory.world_from_camera - take.trajectory.world_from_camera).abs()
    assert float(error.max()) < 1e-5
    assert not (tmp_path / "out" / "walk.joining").exists()
    record = json.loads((storage.folder("walk") / "join.json").read_text())
    assert [span["first_frame"] for span in record["spans"]] == [0, 20]
    assert record["spans"][1]["scale"] == pytest.approx(1 / 1.7, rel=1e-4)


@pytest.mark.extra
def test_a_video_in_spans_has_every_frame_once(tmp_path: Path) -> None:
    row = {"source": "world:9?frames=270&size=56x42", "name": "walk", "spans": 2}
    done = longtake.map_many([row], tmp_path, jobs=2, model="tiny", size=56, format="tum,ply")
    assert (done.done, done.failed) == (1, 0), (tmp_path / "videos.csv").read_text()
    take = longtake.open_take(tmp_path / "walk")
    assert take.trajectory.timestamp_s.tolist() == pytest.approx([index / 10 for index in range(270)])
    assert take.summary is not None
    assert take.summary["num_frames"] == 270
    assert sorted(path.name for path in tmp_path.iterdir()) == ["videos.csv", "walk"]
    assert longtake.map_many([row], tmp_path, model="tiny", size=56, format="tum,ply").skipped == 1
