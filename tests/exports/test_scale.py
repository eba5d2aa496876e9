from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from longtake.errors import InputError, SettingError
from longtake.exports.floor import Floor
from longtake.exports.frame import MappedFrame
from longtake.exports.scale import KnownDepth, KnownDistance, KnownHeight, metres_per_unit, parse_scale
from longtake.exports.take import DepthKind, TakeSettings, TakeSink
from longtake.spatial.similarity import Similarity
from longtake.takes.take import Take, read_take
from longtake.world.tour import View

UNIT_M = 0.37


def shrunk(frame: MappedFrame) -> MappedFrame:
    """The frame in units of so many metres."""
    by = Similarity(
        torch.tensor(1 / UNIT_M, dtype=torch.float64), torch.eye(3).double(), torch.tensor([4.0, 5, 6]).double()
    )
    return replace(frame, world_from_camera=by.of_cameras(frame.world_from_camera), depth=frame.depth / UNIT_M)


@pytest.fixture
def take(cut_frames: Sequence[MappedFrame], tmp_path: Path) -> Take:
    with TakeSink(tmp_path / "take", TakeSettings(images=None, depth=DepthKind.NPZ)) as sink:
        for frame in cut_frames:
            sink.write(shrunk(frame))
    return read_take(tmp_path / "take")


def test_a_known_distance_gives_the_scale(take: Take, cut_frames: list[MappedFrame]) -> None:
    metres = float((cut_frames[1].world_from_camera - cut_frames[8].world_from_camera)[:3, 3].norm())
    assert metres_per_unit(parse_scale(f"distance:1,8={metres!r}m"), take, None) == pytest.approx(UNIT_M, rel=1e-9)
    assert metres_per_unit(parse_scale(f"distance:8,1={metres * 100!r}cm"), take, None) == pytest.approx(UNIT_M)


def test_a_known_height_gives_the_scale(take: Take) -> None:
    """Above a plane through a place so many units below the median camera."""
    heights = -take.trajectory.world_from_camera[:, 1, 3]
    floor = Floor(
        normal=torch.tensor([0.0, -1, 0]).double(), offset=float(heights.quantile(0.5)) - 1.6 / UNIT_M, share=0.2
    )
    assert metres_per_unit(KnownHeight(metres=1.6), take, floor) == pytest.approx(UNIT_M)


@pytest.mark.parametrize("coarser", [1, 3])
def test_a_depth_map_of_the_whole_picture_at_any_resolution_gives_the_scale(
    take: Take, views: list[View], tmp_path: Path, coarser: int
) -> None:
    metres = views[2].depth.numpy()[coarser // 2 :: coarser, coarser // 2 :: coarser]
    values = np.rint(metres / 0.0002).astype(np.uint16)
    values[:10, :10] = 0
    Image.fromarray(values).save(tmp_path / "depth.png")
    known = parse_scale(f"depth:2={tmp_path / 'depth.png'}@0.0002")
    assert metres_per_unit(known, take, None) == pytest.approx(UNIT_M, rel=1e-4)


def test_words_are_understood() -> None:
    assert parse_scale("distance:0,57=2.4m") == KnownDistance(first=0, second=57, metres=2.4)
    assert parse_scale("height:150cm") == KnownHeight(metres=1.5)
    assert parse_scale("depth:12=a@b/depth.png@1e-3") == KnownDepth(index=12, path=Path("a@b/depth.png"), step=0.001)


@pytest.mark.parametrize(
    "text", ["", "2.4m", "distance:0=2m", "distance:0,1=2", "height:2ft", "depth:1=a.png", "up:1m"]
)
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(SettingError, match="Expected what is known as distance:0,57="):
        parse_scale(text)


@pytest.mark.parametrize("text", ["height:0m", "height:-1m", "distance:0,1=1e999m", "depth:1=a.png@0", "height:1.2.3m"])
def test_lengths_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(SettingError, match="length greater than 0"):
        parse_scale(text)


def test_a_camera_that_stood_still_gives_no_scale(take: Take) -> None:
    with pytest.raises(InputError, match="frames 3 and 3"):
        metres_per_unit(KnownDistance(first=3, second=3, metres=1.0), take, None)
    with pytest.raises(InputError, match="frame with index 99"):
        metres_per_unit(KnownDistance(first=3, second=99, metres=1.0), take, None)


def test_without_a_floor_a_height_gives_no_scale(take: Take) -> None:
    with pytest.raises(InputError, match="none was found"):
        metres_per_unit(KnownHeight(metres=1.0), take, None)


@pytest.mark.parametrize(
    ("picture", "said"),
    [
        (np.zeros((48, 64), np.uint16), "there are 0"),
        (np.ones((48, 128), np.uint16), "got 128x48"),
        (np.ones((48, 64, 3), np.uint8), "got mode RGB"),
        (None, "cannot be read"),
    ],
)
def test_other_pictures_give_no_scale(take: Take, tmp_path: Path, picture: np.ndarray | None, said: str) -> None:
    path = tmp_path / "depth.png"
    if picture is not None:
        Image.fromarray(picture).save(path)
    with pytest.raises(InputError, match=said):
        metres_per_unit(KnownDepth(index=0, path=path, step=0.001), take, None)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("distance:0,57=2.4m", "distance:0,57=2.4m"),
        ("distance:3,9=57cm", "distance:3,9=0.57m"),
        ("height:1500mm", "height:1.5m"),
        ("depth:12=a/depth.png@0.001", "depth:12=a/depth.png@0.001"),
    ],
)
def test_what_is_known_is_told_in_the_words_it_is_given_in(given: str, said: str) -> None:
    assert str(parse_scale(given)) == said
    assert str(parse_scale(said)) == said
