"""Depth comes back from 16 bits within half a step, from floats exactly, and damage is one sentence."""

import math
import os
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from longtake.errors import InputError, SettingError
from longtake.takes.depth_files import LARGEST_VALUE, DepthFiles, quantise, read_array, step_for, write_array
from longtake.takes.fields import JsonObject

SIZE = (3, 4)
DEPTH = np.array([[0.5, 1.2345, 2, 30], [np.nan, 0, -1, np.inf], [-np.inf, 65.535, 65.5354, 65.536]])
STEPS = st.floats(1e-6, 10)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "depth").mkdir()
    return tmp_path


@settings(deadline=None, max_examples=200)
@given(step=STEPS, share=st.floats(0, 1))
def test_quantised_depth_is_within_half_a_step(step: float, share: float) -> None:
    depth = np.array([[step * (0.5 + share * (LARGEST_VALUE - 0.5))]])
    value = int(quantise(depth, step)[0, 0])
    assert abs(value * step - depth[0, 0]) <= step / 2 * (1 + 1e-9)


@settings(deadline=None, max_examples=100)
@given(step=STEPS, value=st.integers(0, LARGEST_VALUE), dtype=st.sampled_from([np.float32, np.float64]))
def test_whole_steps_come_back_as_they_were(step: float, value: int, dtype: type) -> None:
    assert quantise(np.array([[value * step]], dtype=dtype), step)[0, 0] == value


@settings(deadline=None, max_examples=100)
@given(step=STEPS, excess=st.floats(1.0, 1e6))
def test_depth_beyond_the_last_step_is_invalid(step: float, excess: float) -> None:
    assert quantise(np.array([[step * (LARGEST_VALUE + excess)]]), step)[0, 0] == 0


def test_png_holds_sixteen_bits_that_anyone_can_read(folder: Path) -> None:
    num_too_far = DepthFiles(0.001).write(folder, 7, DEPTH)
    with Image.open(folder / "depth" / "000007.png") as image:
        assert image.format == "PNG"
        assert np.asarray(image).tolist() == [[500, 1234, 2000, 30000], [0, 0, 0, 0], [0, 65535, 65535, 0]]
    assert num_too_far == 1


@pytest.mark.parametrize("step", [0.001, None])
def test_depth_of_which_the_disk_takes_only_a_part_is_an_error(
    folder: Path, step: float | None, files_no_longer_than: Callable[[int], AbstractContextManager[None]]
) -> None:
    files = DepthFiles(step)
    files.write(folder, 0, DEPTH)
    num_bytes = (folder / files.pattern.format(index=0)).stat().st_size
    for room in (0, 1, num_bytes // 2, num_bytes - 1):
        with files_no_longer_than(room), pytest.raises(OSError, match="File too large"):
            files.write(folder, 1, DEPTH)


def test_png_is_read_as_float32_with_zero_for_invalid(folder: Path) -> None:
    files = DepthFiles(0.001)
    files.write(folder, 7, DEPTH)
    depth = files.read(folder, 7, SIZE)
    assert depth.dtype == np.float32
    expected = np.array([[0.5, 1.234, 2, 30], [0, 0, 0, 0], [0, 65.535, 65.535, 0]])
    np.testing.assert_allclose(depth, expected, rtol=1e-7)
    np.testing.assert_array_equal(depth == 0, expected == 0)


def test_npz_holds_float32_that_anyone_can_read(folder: Path) -> None:
    assert DepthFiles(None).write(folder, 7, DEPTH) == 0
    expected = np.where(np.isfinite(DEPTH) & (DEPTH > 0), DEPTH, 0).astype(np.float32)
    with np.load(folder / "depth" / "000007.npz") as arrays:
        assert arrays["depth"].dtype == np.float32
        np.testing.assert_array_equal(arrays["depth"], expected)
    np.testing.assert_array_equal(DepthFiles(None).read(folder, 7, SIZE), expected)


def test_npz_of_others_reads_as_float32_with_zero_for_invalid(folder: Path) -> None:
    np.savez(folder / "depth" / "000000.npz", depth=DEPTH)
    depth = DepthFiles(None).read(folder, 0, SIZE)
    assert depth.dtype == np.float32
    assert np.isfinite(depth).all()
    assert (depth[1] == 0).all()


def test_same_numbers_make_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_array(tmp_path / "a.npz", "depth", DEPTH)
    monkeypatch.setattr("time.time", lambda: 2e9)
    write_array(tmp_path / "b.npz", "depth", DEPTH)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


@pytest.mark.parametrize(
    ("values", "is_compressed"),
    [
        (np.random.default_rng(0).uniform(1, 2, (48, 64)), False),
        (np.ones((48, 64)), True),
        (np.random.default_rng(0).integers(1, 9, (48, 64)) / 8, True),
    ],
)
def test_an_array_is_compressed_where_that_saves_something(
    tmp_path: Path, values: np.ndarray, is_compressed: bool
) -> None:
    path = tmp_path / "a.npz"
    write_array(path, "depth", values)
    with zipfile.ZipFile(path) as archive:
        (member,) = archive.infolist()
    assert (member.compress_type == zipfile.ZIP_DEFLATED) == is_compressed
    np.testing.assert_array_equal(read_array(path, "depth", values.shape), values.astype(np.float32))


def test_a_png_of_measured_depth_is_about_as_small_as_one_that_was_searched_for_repetitions(folder: Path) -> None:
    rng, size = np.random.default_rng(0), (120, 160)
    coarse = Image.fromarray(rng.uniform(2, 3, (12, 16)).astype(np.float32))
    smooth = coarse.resize(size[::-1], Image.Resampling.BICUBIC)
    for step, noise in ((0.001, 0.002), (0.0002, 0.002), (0.001, 0.0)):
        depth = np.asarray(smooth) + noise * rng.normal(size=size)
        DepthFiles(step).write(folder, 0, depth)
        searched = BytesIO()
        Image.fromarray(quantise(depth, step)).save(searched, "PNG", compress_level=3)
        assert (folder / "depth" / "000000.png").stat().st_size < 1.15 * len(searched.getvalue())


@settings(deadline=None, max_examples=200)
@given(st.floats(1e-6, 1e6))
def test_chosen_step_reaches_far_enough_and_no_ladder_step_less_does(farthest: float) -> None:
    step = step_for(farthest)
    ladder = sorted(float(f"{digit}e{power}") for digit in (1, 2, 5) for power in range(-15, 5))
    assert step == next(candidate for candidate in ladder if candidate * LARGEST_VALUE >= farthest)


@pytest.mark.parametrize(("farthest", "step"), [(10.0, 2e-4), (30.0, 5e-4), (65.535, 1e-3), (65.6, 2e-3)])
def test_chosen_steps_are_round_numbers(farthest: float, step: float) -> None:
    assert step_for(farthest) == step


@pytest.mark.parametrize("farthest", [0.0, -1.0, math.nan, math.inf])
def test_farthest_depth_must_be_a_length(farthest: float) -> None:
    with pytest.raises(SettingError, match="Expected a farthest depth greater than 0"):
        step_for(farthest)


@pytest.mark.parametrize("step", [0.0, -0.001, math.nan, math.inf])
def test_step_must_be_a_length(step: float) -> None:
    with pytest.raises(SettingError, match="Expected a depth step greater than 0"):
        DepthFiles(step)


@pytest.mark.parametrize("step", [None, 0.001])
def test_description_comes_back_from_json(step: float | None) -> None:
    assert DepthFiles.from_json(JsonObject(DepthFiles(step).to_json(), "here")) == DepthFiles(step)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"files": "depth/{index:06d}.png", "step": 0.001, "invalid": 9}, "invalid"),
        ({"files": "depth/{index:06d}.png", "step": 0, "invalid": 0}, "step"),
        ({"files": "depth/{index:06d}.png", "invalid": 0}, "step"),
        ({"files": "../{index:06d}.png", "step": 0.001, "invalid": 0}, "files"),
        ({"files": "depth/{index.__class__}", "step": 0.001, "invalid": 0}, "files"),
    ],
)
def test_description_that_is_not_ours_is_one_sentence(fields: dict[str, object], name: str) -> None:
    with pytest.raises(InputError, match=f"as '{name}' in take.json"):
        DepthFiles.from_json(JsonObject(fields, "take.json"))


def save_grey(path: Path) -> None:
    Image.fromarray(np.zeros(SIZE, np.uint8)).save(path)


def save_small(path: Path) -> None:
    Image.fromarray(np.zeros((2, 2), np.uint16)).save(path)


def cut(path: Path) -> None:
    DepthFiles(0.001).write(path.parent.parent, 0, DEPTH)
    path.write_bytes(path.read_bytes()[:50])


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda path: None, "000000.png, which the take lists, but it is missing"),
        (lambda path: path.write_bytes(b"no image"), "Expected an image at .*000000.png"),
        (lambda path: path.mkdir(), "Expected an image at .*000000.png"),
        (cut, "Expected an image at .*000000.png"),
        (save_grey, "16-bit grey PNG in .*000000.png, but got mode L"),
        (save_small, "Expected 4x3 pixels in .*000000.png.*got 2x2"),
    ],
)
def test_damaged_png_is_one_sentence(folder: Path, damage: Callable[[Path], None], sentence: str) -> None:
    damage(folder / "depth" / "000000.png")
    with pytest.raises(InputError, match=sentence):
        DepthFiles(0.001).read(folder, 0, SIZE)


def claim_a_huge_shape(path: Path) -> None:
    write_array(path, "depth", DEPTH)
    with zipfile.ZipFile(path) as archive:
        member = archive.read("depth.npy").replace(b"(3, 4), }         ", b"(999999999999, 4)}")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("depth.npy", member)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda path: None, "cannot be read"),
        (lambda path: path.write_bytes(b""), "cannot be read"),
        (lambda path: path.write_bytes(b"PK no zip"), "cannot be read"),
        (lambda path: np.savez(path, other=DEPTH), "no item named 'depth.npy'"),
        (lambda path: np.savez(path, depth=np.array([None])), "allow_pickle"),
        (lambda path: np.savez(path, depth=np.zeros((300, 300))), "too many"),
        (lambda path: np.savez(path, depth=np.zeros((4, 3))), r"shape \(3, 4\), but got float64 of shape \(4, 3\)"),
        (lambda path: np.savez(path, depth=np.zeros(SIZE, np.uint16)), "but got uint16"),
        (claim_a_huge_shape, "cannot be read"),
        (os.mkfifo, "it is a pipe or a device"),
    ],
)
def test_damaged_npz_is_one_sentence(tmp_path: Path, damage: Callable[[Path], None], sentence: str) -> None:
    path = tmp_path / "000000.npz"
    damage(path)
    with pytest.raises(InputError, match=sentence):
        read_array(path, "depth", SIZE)


def test_npz_cut_or_flipped_at_any_byte_is_one_sentence_or_unharmed(tmp_path: Path) -> None:
    path = tmp_path / "000000.npz"
    write_array(path, "depth", np.linspace(1, 2, 12).reshape(SIZE))
    whole, expected = path.read_bytes(), read_array(path, "depth", SIZE)
    flipped = [whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :] for place in range(len(whole))]
    for data in [*flipped, *(whole[:length] for length in range(len(whole)))]:
        path.write_bytes(data)
        with suppress(InputError):
            np.testing.assert_array_equal(read_array(path, "depth", SIZE), expected)
