"""Results come with their pictures, and as a take keeps them."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from told import final, last_versions

from longtake.cli.main import main
from longtake.exports.cloud import CloudSettings
from longtake.exports.frame import MappedFrame
from longtake.exports.masks import MaskFolder
from longtake.exports.take import DepthKind, TakeSettings
from longtake.geometry.model import GeometryModel
from longtake.memory.policies.lockstep import ContextRetention
from longtake.pipeline.mapper import Mapper
from longtake.pipeline.outputs import Outputs
from longtake.pipeline.video_map import MapSettings, map_video
from longtake.runtime.build import SessionSettings, open_session
from longtake.runtime.windows import Windows
from longtake.takes.images import ImageFiles
from longtake.takes.take import read_take
from longtake.video.resize import Preprocessor
from longtake.video.source import open_source

SESSION = SessionSettings(
    image_size=56, num_scale_frames=2, retention=ContextRetention(anchors=2, window=2, history=8), windows=None
)


def test_results_come_with_the_pictures_they_belong_to_and_their_names(
    tiny_model: GeometryModel, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    for name in ("b10", "b2", "a1"):
        Image.fromarray(rng.integers(0, 255, (30, 40, 3), dtype=np.uint8)).save(tmp_path / f"{name}.png")
    mapper = Mapper(lambda size: open_session(tiny_model, SESSION, size), Preprocessor(size=56))
    mapped: list[MappedFrame] = []
    for frame in open_source(str(tmp_path)).frames():
        assert frame.image is not None
        assert mapper.results.first_owed in (None, 0)
        mapped += final(mapper, mapper.step(mapper.prepare(frame)))
    mapped += final(mapper, mapper.finish())
    assert [frame.source_name for frame in mapped] == ["a1", "b2", "b10"]
    for frame in mapped:
        with Image.open(tmp_path / f"{frame.source_name}.png") as image:
            assert np.array_equal(frame.source_image, np.asarray(image))
        assert frame.image.shape == (42, 56, 3)
        assert frame.placement.source_width == 40
    masks = tmp_path / "masks"
    masks.mkdir()
    Image.new("L", (40, 30), 0).save(masks / "b2.png")
    assert [MaskFolder(masks).find(frame) is not None for frame in mapped] == [False, True, False]


@pytest.mark.extra
def test_export_of_a_mapped_video_gives_the_files_of_the_run_byte_by_byte(
    tiny_model: GeometryModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network's rotations are true ones to float32 only; what is written must not depend on who wrote it."""
    outputs = Outputs(
        take=TakeSettings(images=ImageFiles.PNG, depth=DepthKind.NPZ),
        cloud=CloudSettings(voxel=1e-3),
        formats=("ply", "kitti"),
    )
    settings = MapSettings(session=replace(SESSION, windows=Windows(size=8, overlap_frames=5)), outputs=outputs)
    source = open_source("world:3?frames=30&size=56x42")
    events = list(map_video(source, tiny_model, tmp_path / "run", settings))
    mapped = last_versions(events).values()
    saved = read_take(tmp_path / "run").trajectory.world_from_camera
    assert torch.equal(saved, torch.stack([frame.world_from_camera for frame in mapped]))
    arguments = ["export", tmp_path / "run", "--out", tmp_path / "again", "--format", "ply,kitti,take"]
    monkeypatch.setattr(sys, "argv", ["longtake", *map(str, arguments), "--voxel", "1e-3"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert (tmp_path / "run" / "cloud.ply").stat().st_size > 20_000
    for again, first in (
        ("cloud.ply", "cloud.ply"),
        ("poses.kitti", "poses.kitti"),
        ("take/poses.tum", "poses.tum"),
        ("take/frames.jsonl", "frames.jsonl"),
    ):
        assert (tmp_path / "again" / again).read_bytes() == (tmp_path / "run" / first).read_bytes()
