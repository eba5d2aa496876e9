"""COLMAP models read back by a parser written here, which follows COLMAP's description of its files."""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from PIL import Image
from scipy.spatial import cKDTree

from longtake.errors import SettingError
from longtake.exports.cloud import CloudSettings
from longtake.exports.colmap import ColmapFiles, ColmapSink
from longtake.exports.frame import FrameStatus, MappedFrame
from longtake.exports.point_filter import PointFilter
from longtake.takes.images import ImageFiles
from longtake.world.tour import View

LIMIT_PX = 0.05
ALL_PIXELS = CloudSettings(points=PointFilter(drop_percent=0.0, largest_jump=None), voxel=1e-4)
BOTH = pytest.mark.parametrize("files", list(ColmapFiles))

Stray = Callable[[Sequence[Any], Sequence[Any]], float]


@dataclass(frozen=True)
class Picture:
    name: str
    camera_from_world: np.ndarray
    camera: int


@dataclass(frozen=True)
class Model:
    cameras: dict[int, tuple[int, int, np.ndarray]]
    """Width, height and the matrix to COLMAP's pixels."""
    pictures: dict[int, Picture]
    points: np.ndarray
    colours: np.ndarray

    def pixels(self, picture: Picture, points: np.ndarray) -> np.ndarray:
        """Column, row and depth in COLMAP's pixels, whose first one reaches from 0 to 1."""
        before = points @ picture.camera_from_world[:, :3].T + picture.camera_from_world[:, 3]
        seen = before @ self.cameras[picture.camera][2].T
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.column_stack([seen[:, :2] / seen[:, 2:], seen[:, 2]])


def pose(w: float, x: float, y: float, z: float, *translation: float) -> np.ndarray:
    """By the sandwich q v q*, axis by axis."""
    axis = np.array([x, y, z])
    turned = [v + 2 * w * np.cross(axis, v) + 2 * np.cross(axis, np.cross(axis, v)) for v in np.eye(3)]
    return np.column_stack([*turned, translation])


def matrix(fx: float, fy: float, cx: float, cy: float) -> np.ndarray:
    return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])


def take(file: BinaryIO, form: str) -> tuple[Any, ...]:
    return struct.unpack("<" + form, file.read(struct.calcsize("<" + form)))


def read_name(file: BinaryIO) -> str:
    return b"".join(iter(lambda: file.read(1), b"\0")).decode()


def read_binary(folder: Path) -> Model:
    cameras, pictures, points, colours = {}, {}, [], []
    with (folder / "cameras.bin").open("rb") as file:
        for _ in range(*take(file, "Q")):
            camera, kind, width, height = take(file, "iiQQ")
            assert kind == 1, "PINHOLE"
            cameras[camera] = (width, height, matrix(*take(file, "4d")))
        assert not file.read()
    with (folder / "images.bin").open("rb") as file:
        for _ in range(*take(file, "Q")):
            (number,), numbers, (camera,) = take(file, "i"), take(file, "7d"), take(file, "i")
            pictures[number] = Picture(read_name(file), pose(*numbers), camera)
            (num_points,) = take(file, "Q")
            file.read(24 * num_points)
        assert not file.read()
    with (folder / "points3D.bin").open("rb") as file:
        for _ in range(*take(file, "Q")):
            _, x, y, z, red, green, blue, _, track = take(file, "Q3d3BdQ")
            file.read(8 * track)
            points.append((x, y, z))
            colours.append((red, green, blue))
        assert not file.read()
    return Model(cameras, pictures, np.array(points).reshape(-1, 3), np.array(colours).reshape(-1, 3))


def rows(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines() if not line.startswith("#")]


def read_text(folder: Path) -> Model:
    cameras = {}
    for number, kind, width, height, *parameters in rows(folder / "cameras.txt"):
        assert kind == "PINHOLE"
        cameras[int(number)] = (int(width), int(height), matrix(*map(float, parameters)))
    pictures = {}
    lines = rows(folder / "images.txt")
    assert not any(lines[1::2]), "every second line is for points of the image"
    for number, *numbers, camera, name in lines[::2]:
        pictures[int(number)] = Picture(name, pose(*map(float, numbers)), int(camera))
    points = np.array([[float(value) for value in row[1:7]] for row in rows(folder / "points3D.txt")]).reshape(-1, 6)
    return Model(cameras, pictures, points[:, :3], points[:, 3:])


def read_model(folder: Path, files: ColmapFiles) -> Model:
    return (read_binary if files is ColmapFiles.BINARY else read_text)(folder / "sparse" / "0")


def in_our_pixels(k: np.ndarray) -> np.ndarray:
    return k - np.array([[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]])


def full(camera_from_world: np.ndarray) -> np.ndarray:
    return np.vstack([camera_from_world, [0, 0, 0, 1]])


@BOTH
def test_pixels_of_the_source_land_where_they_belong(
    tmp_path: Path,
    cut_frames: list[MappedFrame],
    views: list[View],
    seen: Callable[..., Any],
    stray: Stray,
    files: ColmapFiles,
    write_all: Callable[..., None],
) -> None:
    write_all(ColmapSink(tmp_path, CloudSettings(), files=files), cut_frames)
    model = read_model(tmp_path, files)
    assert list(model.pictures) == list(range(1, 11))
    some = [0, 3, 7, 9]
    true = [
        seen(views[i].world_from_camera.numpy(), views[i].intrinsics.double().numpy(), views[i].depth.numpy())
        for i in some
    ]
    pictures = [model.pictures[i + 1] for i in some]
    assert all(model.cameras[picture.camera][:2] == (192, 144) for picture in pictures)
    as_read = [
        replace(
            one,
            world_from_camera=np.linalg.inv(full(picture.camera_from_world)),
            intrinsics=model.cameras[picture.camera][2],
        )
        for one, picture in zip(true, pictures, strict=True)
    ]
    found = [replace(one, intrinsics=in_our_pixels(one.intrinsics)) for one in as_read]
    error = stray(found, true)
    print(f"{files}: {error:.2e} px")
    assert error < LIMIT_PX
    assert stray(as_read, true) > LIMIT_PX, "half a pixel would be seen"


@BOTH
def test_points_are_seen_by_every_camera_where_they_belong(
    tmp_path: Path,
    cut_frames: list[MappedFrame],
    truth: Callable[..., list[Any]],
    views: list[View],
    files: ColmapFiles,
    write_all: Callable[..., None],
) -> None:
    write_all(ColmapSink(tmp_path, ALL_PIXELS, files=files), cut_frames[::4])
    model = read_model(tmp_path, files)
    exact = np.concatenate([one.points() for one in truth(cut_frames[::4])])
    assert 0.99 * len(exact) < len(model.points) <= len(exact)
    _, nearest = cKDTree(exact).query(model.points)
    for view, picture in zip(views[::4], model.pictures.values(), strict=True):
        (fx, _, cx), (_, fy, cy), _ = view.intrinsics.double().tolist()
        world = view.world_from_camera.numpy()
        x, y, z = ((exact[nearest] - world[:3, 3]) @ world[:3, :3]).T
        with np.errstate(divide="ignore", invalid="ignore"):
            want = np.stack([fx * x / z + cx, fy * y / z + cy], axis=-1)
        counts = (z > 0.1) & (np.abs(want - [95.5, 71.5]) < [96, 72]).all(axis=1)
        assert counts.sum() > 500
        off = model.pixels(picture, model.points)[counts, :2] - want[counts]
        np.testing.assert_allclose(off, 0.5, rtol=0, atol=LIMIT_PX)


@BOTH
def test_points_have_the_colour_of_the_picture_where_its_camera_sees_them(
    tmp_path: Path, cut_frames: list[MappedFrame], files: ColmapFiles, write_all: Callable[..., None]
) -> None:
    write_all(ColmapSink(tmp_path, ALL_PIXELS, files=files, images=ImageFiles.PNG), cut_frames[5:6])
    model = read_model(tmp_path, files)
    (picture,) = model.pictures.values()
    with Image.open(tmp_path / "images" / picture.name) as image:
        pixels = np.asarray(image)
    columns, rows_, _ = np.floor(model.pixels(picture, model.points)).astype(int).T
    assert len(columns) > 1000
    alike = (pixels[rows_, columns] == model.colours).all(axis=1)
    assert alike.mean() > 0.995  # two points can fall into one voxel


def test_text_and_binary_say_the_same(
    tmp_path: Path, cut_frames: list[MappedFrame], write_all: Callable[..., None]
) -> None:
    for files in ColmapFiles:
        write_all(ColmapSink(tmp_path / files, CloudSettings(), files=files), cut_frames)
    binary, text = read_binary(tmp_path / "bin/sparse/0"), read_text(tmp_path / "txt/sparse/0")
    assert np.array_equal(binary.points, text.points)
    assert np.array_equal(binary.colours, text.colours)
    assert list(binary.pictures) == list(text.pictures)
    for one, other in zip(binary.pictures.values(), text.pictures.values(), strict=True):
        assert (one.name, one.camera) == (other.name, other.camera)
        assert np.array_equal(one.camera_from_world, other.camera_from_world)
    assert {file.name for file in (tmp_path / "bin/sparse/0").iterdir()} == {
        "cameras.bin",
        "images.bin",
        "points3D.bin",
    }


def test_cameras_are_shared_as_long_as_the_lens_and_the_size_stay(
    tmp_path: Path, cut_frames: list[MappedFrame], write_all: Callable[..., None]
) -> None:
    zoomed = replace(
        cut_frames[1], intrinsics=cut_frames[1].intrinsics * cut_frames[1].intrinsics.new_tensor([[2.0], [2], [1]])
    )
    small = replace(
        cut_frames[2],
        source_image=cut_frames[2].source_image[::2, ::2],
        placement=replace(cut_frames[2].placement, source_width=96, source_height=72, scale_x=2 / 3, scale_y=2 / 3),
    )
    write_all(ColmapSink(tmp_path, CloudSettings()), [cut_frames[0], zoomed, small, cut_frames[3]])
    model = read_binary(tmp_path / "sparse" / "0")
    assert [picture.camera for picture in model.pictures.values()] == [1, 2, 3, 1]
    assert [size for *size, _ in model.cameras.values()] == [[192, 144], [192, 144], [96, 72]]
    assert model.cameras[2][2][0, 0] == pytest.approx(2 * model.cameras[1][2][0, 0])
    np.testing.assert_allclose(model.cameras[3][2][:2], model.cameras[1][2][:2] / 2)


def test_images_are_the_sources_and_only_of_frames_that_give_points(
    tmp_path: Path, cut_frames: list[MappedFrame], write_all: Callable[..., None]
) -> None:
    lost = replace(cut_frames[2], status=FrameStatus.JUMP)
    settings = CloudSettings(points=PointFilter(every=2))
    write_all(ColmapSink(tmp_path, settings, images=ImageFiles.PNG), [*cut_frames[:2], lost, *cut_frames[3:5]])
    names = [picture.name for picture in read_binary(tmp_path / "sparse" / "0").pictures.values()]
    assert names == ["000000.png", "000004.png"]
    assert sorted(path.name for path in (tmp_path / "images").iterdir()) == names
    with Image.open(tmp_path / "images" / "000004.png") as image:
        assert np.array_equal(np.asarray(image), cut_frames[4].source_image)


def test_jpegs_are_near_the_source(
    tmp_path: Path, cut_frames: list[MappedFrame], write_all: Callable[..., None]
) -> None:
    write_all(ColmapSink(tmp_path, CloudSettings()), cut_frames[:1])
    with Image.open(tmp_path / "images" / "000000.jpg") as image:
        assert np.abs(np.asarray(image).astype(int) - cut_frames[0].source_image).mean() < 3


@BOTH
def test_model_of_nothing_is_an_empty_one(tmp_path: Path, files: ColmapFiles, write_all: Callable[..., None]) -> None:
    write_all(ColmapSink(tmp_path, CloudSettings(), files=files), [])
    model = read_model(tmp_path, files)
    assert not model.cameras
    assert not model.pictures
    assert len(model.points) == 0


def test_video_is_refused_as_images_and_nothing_is_lost(
    tmp_path: Path,
    frames: list[MappedFrame],
    files_of: Callable[[Path], dict[str, bytes]],
    write_all: Callable[..., None],
) -> None:
    write_all(ColmapSink(tmp_path, CloudSettings()), frames[:2])
    before = files_of(tmp_path)
    with pytest.raises(SettingError, match="PNG or JPEG"):
        ColmapSink(tmp_path, CloudSettings(), images=ImageFiles.VIDEO, overwrite=True)
    assert files_of(tmp_path) == before
