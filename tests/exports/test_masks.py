"""Masks are found by name, laid onto the network's pixels, and refused in a sentence."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from longtake.errors import InputError
from longtake.exports.cloud import CloudSettings, GrowingCloud
from longtake.exports.frame import MappedFrame
from longtake.exports.masks import MaskFolder
from longtake.exports.point_filter import PointFilter


def put(path: Path, mask: np.ndarray) -> None:
    Image.fromarray(mask).save(path)


def white(height: int, width: int) -> np.ndarray:
    return np.full((height, width), 255, np.uint8)


@pytest.mark.parametrize(
    ("name", "source_name", "is_found"),
    [
        ("000003.png", None, True),
        ("3.png", None, True),
        ("3.jpg", None, True),
        ("3.jpeg", None, True),
        ("03.png", None, False),
        ("000004.png", None, False),
        ("garden_17.png", "garden_17", True),
        ("000003.png", "garden_17", True),
        ("garden_18.png", "garden_17", False),
        ("0017.png", "0017", True),
        ("000003.png", "0017", False),
    ],
)
def test_mask_is_named_after_the_picture_or_the_frame(
    tmp_path: Path, frames: list[MappedFrame], name: str, source_name: str | None, is_found: bool
) -> None:
    put(tmp_path / name, white(48, 64))
    found = MaskFolder(tmp_path).find(replace(frames[3], source_name=source_name))
    assert found == (tmp_path / name if is_found else None)


@pytest.mark.parametrize("finer", [1, 2, 5])
def test_mask_lies_on_the_picture_whatever_its_resolution(
    tmp_path: Path, cut_frames: list[MappedFrame], finer: int
) -> None:
    mask = white(144 * finer, 192 * finer)
    mask[: 60 * finer] = 0
    mask[:, 90 * finer :] = 0
    put(tmp_path / "0.png", mask)
    wanted = MaskFolder(tmp_path).wanted(cut_frames[0])
    want = np.zeros((38, 64), dtype=bool)
    want[15:, :30] = True  # five rows of the picture's 48 are cut off above
    assert np.array_equal(wanted, want)


def test_grey_and_colour_and_black_and_white_masks_are_masks(tmp_path: Path, frames: list[MappedFrame]) -> None:
    grey = np.tile(np.arange(64, dtype=np.uint8) * 4, (48, 1))
    put(tmp_path / "0.png", grey)
    put(tmp_path / "1.png", np.repeat(grey[..., None], 3, axis=-1))
    Image.fromarray(grey >= 128).save(tmp_path / "2.png")
    put(tmp_path / "3.png", np.concatenate([np.repeat(grey[..., None], 3, axis=-1), white(48, 64)[..., None]], axis=-1))
    for place in range(4):
        assert np.array_equal(MaskFolder(tmp_path).wanted(frames[place]), grey >= 128)


def test_frame_without_a_mask_is_taken_whole_and_counted(tmp_path: Path, frames: list[MappedFrame]) -> None:
    for index in (0, 2, 5):
        put(tmp_path / f"{index}.png", 0 * white(48, 64))
    growing = GrowingCloud(CloudSettings(points=PointFilter(masks=MaskFolder(tmp_path))))
    for frame in frames[:6]:
        growing.add(frame)
    assert growing.num_frames == growing.num_without_mask == 3
    assert MaskFolder(tmp_path).wanted(frames[1]).all()


def test_folder_without_masks_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Expected a folder of masks at .*nowhere, but there is none"):
        MaskFolder(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(InputError, match="Expected masks as PNG or JPEG files in"):
        MaskFolder(tmp_path)


def test_mask_that_cannot_be_one_is_one_sentence(tmp_path: Path, frames: list[MappedFrame]) -> None:
    (tmp_path / "0.png").write_bytes(b"no picture")
    put(tmp_path / "1.png", white(64, 48))
    with pytest.raises(InputError, match=r"Expected a mask at .*0\.png, but it cannot be read"):
        MaskFolder(tmp_path).wanted(frames[0])
    with pytest.raises(InputError, match=r"shape as the picture, 64x48, in .*1\.png, but got 48x64"):
        MaskFolder(tmp_path).wanted(frames[1])
