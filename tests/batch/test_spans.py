"""A long video in spans: cut on its own frames, none of which is lost or there twice."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

import longtake
from longtake.api.map_request import MapRequest
from longtake.batch.job import MapJob
from longtake.batch.manifest import Row
from longtake.batch.open_storage import open_storage
from longtake.batch.spans import SHARED_FRAMES, plan_of
from longtake.errors import InputError

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
