"""The measurement of the pipeline, on a video too short for its figures to mean anything."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.pipeline import PipelineFigures, measure_pipeline
from longtake.geometry.model import GeometryModel
from longtake.memory.policies.lockstep import ContextRetention
from longtake.pipeline.video_map import MapSettings
from longtake.runtime.build import SessionSettings
from longtake.takes.take import read_take
from longtake.video.source import open_source

pytestmark = pytest.mark.extra


def test_every_stage_is_measured_on_the_same_frames(tiny_model: GeometryModel, tmp_path: Path) -> None:
    retention = ContextRetention(anchors=2, window=3, history=12)
    settings = MapSettings(session=SessionSettings(image_size=56, num_scale_frames=2, retention=retention))
    figures = measure_pipeline(lambda: open_source("world:2?frames=9&size=56x42"), tiny_model, settings, tmp_path)
    assert figures.num_frames == 9
    assert min(figures.decode, figures.prepare, figures.map, figures.write, figures.pipeline) > 0
    for name in ("stage", "pipeline"):
        assert len(read_take(tmp_path / name)) == 9
    for name in ("poses.tum", "cloud.ply"):
        assert (tmp_path / "stage" / name).read_bytes() == (tmp_path / "pipeline" / name).read_bytes()


def test_the_pipeline_is_compared_with_its_slowest_stage() -> None:
    figures = PipelineFigures(
        num_frames=10, torch_threads=1, decode=40.0, prepare=50.0, map=30.0, write=20.0, pipeline=18.0
    )
    assert figures.share_of_slowest == pytest.approx(0.9)
    assert replace(figures, map=10.0, pipeline=9.5).share_of_slowest == pytest.approx(0.95)
