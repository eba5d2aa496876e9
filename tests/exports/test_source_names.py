"""A take keeps the names of the pictures it was made of, so that masks find them later as they did at first."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from longtake.cli.main import main
from longtake.exports.cloud import CloudSettings
from longtake.exports.frame import MappedFrame
from longtake.exports.masks import MaskFolder
from longtake.exports.ply import PlySink
from longtake.exports.point_filter import PointFilter
from longtake.exports.saved import saved_frames
from longtake.exports.take import DepthKind, PixelGrid, TakeSettings, TakeSink
from longtake.takes.images import ImageFiles
from longtake.takes.take import read_take
from longtake.takes.tum import as_written

EXACT = TakeSettings(images=ImageFiles.PNG, depth=DepthKind.NPZ)


@pytest.fixture(scope="module")
def named(cut_frames: list[MappedFrame]) -> list[MappedFrame]:
    """As if mapped from a folder of pictures, numbered otherwise than the frames are."""
    names = ["garden 2", "garden 10", "größe", "0017", "0018", "0019"]
    return [
        replace(frame, source_name=name, world_from_camera=as_written(frame.world_from_camera))
        for frame, name in zip(cut_frames, names, strict=False)
    ]


@pytest.mark.parametrize("pixels", PixelGrid)
def test_names_of_pictures_come_back_from_a_take(
    tmp_path: Path, named: list[MappedFrame], pixels: PixelGrid, write_all: Callable[..., None]
) -> None:
    write_all(TakeSink(tmp_path, replace(EXACT, pixels=pixels)), named)
    saved = list(saved_frames(read_take(tmp_path)))
    assert [frame.source_name for frame in saved] == [frame.source_name for frame in named]


def test_take_without_names_is_read_as_before(
    tmp_path: Path, frames: list[MappedFrame], write_all: Callable[..., None]
) -> None:
    write_all(TakeSink(tmp_path, EXACT), frames)
    lines = [json.loads(line) for line in (tmp_path / "frames.jsonl").read_text().splitlines()]
    assert all("source_name" not in line for line in lines)
    assert all(frame.source_name is None for frame in saved_frames(read_take(tmp_path)))


def test_masks_named_after_pictures_give_the_same_cloud_when_exported(
    tmp_path: Path, named: list[MappedFrame], monkeypatch: pytest.MonkeyPatch, write_all: Callable[..., None]
) -> None:
    masks = tmp_path / "masks"
    masks.mkdir()
    rng = np.random.default_rng(0)
    for name in ("garden 10", "größe", "0017", "0019", "000004"):  # the last is no picture's name, but an index
        coarse = Image.fromarray(rng.integers(0, 2, (6, 8), dtype=np.uint8) * 255)
        coarse.resize((64, 48), Image.Resampling.NEAREST).save(masks / f"{name}.png")
    settings = CloudSettings(points=PointFilter(masks=MaskFolder(masks)))
    sink = PlySink(tmp_path / "live.ply", settings)
    write_all(sink, named)
    write_all(TakeSink(tmp_path / "take", EXACT), named)
    arguments = ["export", tmp_path / "take", "--out", tmp_path / "out", "--format", "ply", "--mask", masks]
    monkeypatch.setattr(sys, "argv", ["longtake", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert sink.cloud.num_without_mask == 2
    assert (tmp_path / "out" / "cloud.ply").read_bytes() == (tmp_path / "live.ply").read_bytes()
