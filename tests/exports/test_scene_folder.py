"""Images of an export: the file they came from where there is one of just these pixels, else encoded."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from longtake.errors import InputError
from longtake.exports.frame import MappedFrame
from longtake.exports.reexport import ExportSettings, export_take
from longtake.exports.scene_folder import SourceImages
from longtake.exports.take import PixelGrid, TakeSettings, TakeSink
from longtake.takes.images import ImageFiles
from longtake.takes.take import read_take

SCENES = ExportSettings(formats=("colmap", "nerfstudio"))


def export(folder: Path, frames: Sequence[MappedFrame], pixels: PixelGrid, images: ImageFiles) -> Path:
    with TakeSink(folder / "take", TakeSettings(pixels=pixels, images=images)) as sink:
        for frame in frames:
            sink.write(frame)
    export_take(read_take(folder / "take"), folder / "out", SCENES)
    return folder


def refuse_links(source: Path, path: Path) -> None:
    raise OSError(18, "Invalid cross-device link", str(source), None, str(path))


@pytest.mark.parametrize("files", [ImageFiles.JPEG, ImageFiles.PNG])
def test_images_in_the_videos_own_pixels_are_the_takes_own_files(
    cut_frames: list[MappedFrame], tmp_path: Path, files: ImageFiles
) -> None:
    export(tmp_path, cut_frames, PixelGrid.SOURCE, files)
    for name in (files.format(index=0), files.format(index=9)):
        own = tmp_path / "take" / name
        for scene in SCENES.formats:
            assert (tmp_path / "out" / scene / name).samefile(own)


def test_where_files_cannot_be_linked_they_are_copied_byte_by_byte(
    cut_frames: list[MappedFrame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", refuse_links)
    export(tmp_path, cut_frames[:2], PixelGrid.SOURCE, ImageFiles.JPEG)
    own, copy = (tmp_path / folder / "images/000001.jpg" for folder in ("take", "out/colmap"))
    assert not copy.samefile(own)
    assert copy.read_bytes() == own.read_bytes()


def test_an_image_that_was_resized_is_encoded(cut_frames: list[MappedFrame], tmp_path: Path) -> None:
    export(tmp_path, cut_frames[:2], PixelGrid.MODEL, ImageFiles.PNG)
    take = read_take(tmp_path / "take")
    with Image.open(tmp_path / "out" / "colmap" / "images" / "000001.png") as image:
        exported = np.asarray(image)
    assert exported.shape == cut_frames[1].source_image.shape != take.image(1).shape
    assert np.array_equal(exported[15 + 1 : -15 : 3, 1::3], take.image(1))


def test_an_export_that_is_replaced_leaves_the_take_alone(cut_frames: list[MappedFrame], tmp_path: Path) -> None:
    export(tmp_path, cut_frames[:2], PixelGrid.SOURCE, ImageFiles.JPEG)
    own = tmp_path / "take" / "images/000001.jpg"
    before = own.read_bytes()
    scene = SourceImages(tmp_path / "out" / "colmap", ImageFiles.JPEG)
    scene.write(1, np.zeros((8, 8, 3), np.uint8))
    assert own.read_bytes() == before


def test_a_file_of_another_kind_is_not_linked_under_a_wrong_name(tmp_path: Path) -> None:
    picture = np.full((6, 8, 3), 77, np.uint8)
    Image.fromarray(picture).save(tmp_path / "own.png")
    SourceImages(tmp_path, ImageFiles.JPEG).write(0, picture, tmp_path / "own.png")
    with Image.open(tmp_path / "images" / "000000.jpg") as image:
        assert image.format == "JPEG"


def test_a_file_that_is_gone_is_a_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    images = SourceImages(tmp_path, ImageFiles.JPEG)
    with pytest.raises(InputError, match=r"000000.jpg cannot be written"):
        images.write(0, np.zeros((6, 8, 3), np.uint8), tmp_path / "gone.jpg")
    assert not (tmp_path / "images" / "000000.jpg").exists()
