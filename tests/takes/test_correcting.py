"""A take that was corrected: poses and depth agree, what was said stays, and a break leaves one or the other."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from longtake.errors import InputError
from longtake.spatial.pose import matrix_from_quaternion
from longtake.spatial.similarity import Similarity
from longtake.takes import correcting
from longtake.takes.correcting import correct_take
from longtake.takes.corrections import CorrectedSpan, Corrections, restore_online
from longtake.takes.frames import TakeFrame
from longtake.takes.header import CORRECTIONS_NAME, ONLINE_POSES_NAME, POSES_NAME
from longtake.takes.take import Take, read_take
from longtake.takes.writer import TakeWriter

WriteTake = Callable[..., Path]
NUM_FRAMES = 6


def similarity(scale: float, turn: float, step: float) -> Similarity:
    quaternion = torch.tensor([0.0, turn, 0.1, 1.0], dtype=torch.float64)
    translation = torch.tensor([step, 0.5, -step], dtype=torch.float64)
    return Similarity(torch.tensor(scale, dtype=torch.float64), matrix_from_quaternion(quaternion), translation)


CORRECTIONS = Corrections(
    (
        CorrectedSpan(first_frame=1, last_frame=2, known_from_said=similarity(1.25, 0.2, 0.3)),
        CorrectedSpan(first_frame=4, last_frame=9, known_from_said=similarity(0.8, -0.1, -0.4)),
    )
)


def points(take: Take, position: int) -> torch.Tensor:
    """In the world."""
    depth = torch.from_numpy(take.depth(position)).double()
    rows, columns = torch.meshgrid(*(torch.arange(n, dtype=torch.float64) for n in depth.shape), indexing="ij")
    pixels = torch.stack([columns, rows, torch.ones_like(rows)], dim=-1)
    rays = pixels @ torch.linalg.inv(take.intrinsics[position]).T
    pose = take.trajectory.world_from_camera[position]
    return (rays * depth[..., None]) @ pose[:3, :3].T + pose[:3, 3]


@pytest.fixture
def folder(write_small_take: WriteTake) -> Path:
    return write_small_take(NUM_FRAMES)


def test_the_points_of_a_frame_move_by_its_similarity(folder: Path) -> None:
    said = read_take(folder)
    known = correct_take(folder, CORRECTIONS)
    for position, record in enumerate(said.records):
        moved = CORRECTIONS.at(record.index)
        expected = points(said, position) if moved is None else moved.of_points(points(said, position))
        torch.testing.assert_close(points(known, position), expected, rtol=1e-6, atol=1e-6)
    assert [CORRECTIONS.at(frame) is None for frame in (0, 1, 2, 3, 4, 9, 10)] == [1, 0, 0, 1, 0, 0, 1]


def test_frames_that_have_not_moved_are_as_they_were_to_the_bit(folder: Path) -> None:
    said = read_take(folder)
    known = correct_take(folder, CORRECTIONS)
    for position in (0, 3):
        assert torch.equal(known.trajectory.world_from_camera[position], said.trajectory.world_from_camera[position])
        assert np.array_equal(known.depth(position), said.depth(position))


def test_what_was_said_stays_beside_it_and_comes_back_to_the_byte(folder: Path) -> None:
    said = (folder / POSES_NAME).read_bytes()
    correct_take(folder, CORRECTIONS)
    assert (folder / ONLINE_POSES_NAME).read_bytes() == said
    assert (folder / POSES_NAME).read_bytes() != said
    restore_online(folder)
    assert (folder / POSES_NAME).read_bytes() == said
    assert not (folder / CORRECTIONS_NAME).exists()
    assert not (folder / ONLINE_POSES_NAME).exists()


def test_a_second_correction_starts_from_what_was_said(folder: Path, tmp_path: Path) -> None:
    other = shutil.copytree(folder, tmp_path / "other")
    correct_take(folder, Corrections(CORRECTIONS.spans[:1]))
    correct_take(folder, CORRECTIONS)
    correct_take(other, CORRECTIONS)
    for name in (POSES_NAME, ONLINE_POSES_NAME, CORRECTIONS_NAME):
        assert (folder / name).read_bytes() == (other / name).read_bytes()


@pytest.mark.parametrize("num_files", [0, 1, 2])
def test_broken_off_anywhere_it_is_read_as_it_was_said_and_can_be_done_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, num_files: int
) -> None:
    said = read_take(folder)
    written = 0

    def break_off(path: Path, content: bytes) -> None:
        nonlocal written
        if written == num_files:
            raise InputError("The disk is full.")
        written += 1
        path.write_bytes(content)

    with monkeypatch.context() as context:
        context.setattr(correcting, "replace_file", break_off)
        with pytest.raises(InputError, match="full"):
            correct_take(folder, CORRECTIONS)
    found = read_take(folder)
    assert torch.equal(found.trajectory.world_from_camera, said.trajectory.world_from_camera)
    assert np.array_equal(found.depth(1), said.depth(1))
    assert correct_take(folder, CORRECTIONS).corrections is not None


def test_a_take_that_goes_on_is_as_it_was_said(
    folder: Path, write_small_take: WriteTake, make_frame: Callable[..., TakeFrame]
) -> None:
    correct_take(folder, CORRECTIONS)
    with TakeWriter.resume(folder, 3) as writer:
        for step in range(3, 8):
            writer.write(make_frame(step))
    whole = write_small_take(8, name="whole")
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in whole.iterdir())
    assert (folder / POSES_NAME).read_bytes() == (whole / POSES_NAME).read_bytes()


def test_poses_that_were_changed_are_refused(folder: Path) -> None:
    correct_take(folder, CORRECTIONS)
    shutil.copy(folder / ONLINE_POSES_NAME, folder / POSES_NAME)
    with pytest.raises(InputError, match="were changed"):
        read_take(folder)


@pytest.mark.parametrize("damage", [b"", b"{}", b"[", b"\x00\x00"], ids=repr)
def test_damaged_corrections_are_one_sentence(folder: Path, damage: bytes) -> None:
    correct_take(folder, CORRECTIONS)
    (folder / CORRECTIONS_NAME).write_bytes(damage)
    with pytest.raises(InputError, match=CORRECTIONS_NAME):
        read_take(folder)


def test_a_take_that_still_grows_is_not_corrected(folder: Path) -> None:
    with TakeWriter.resume(folder, NUM_FRAMES), pytest.raises(InputError, match="finished take"):
        correct_take(folder, CORRECTIONS)


def test_spans_out_of_order_are_refused() -> None:
    with pytest.raises(InputError, match="order of the video"):
        Corrections(CORRECTIONS.spans[::-1])


def test_corrections_after_others_move_frames_by_both() -> None:
    later = Corrections((CorrectedSpan(first_frame=2, last_frame=5, known_from_said=similarity(2.0, 0.3, 1.0)),))
    both = later.after(CORRECTIONS)
    point = torch.tensor([[0.3, -1.2, 2.0]], dtype=torch.float64)
    for frame in range(12):
        expected = point
        for moved in (CORRECTIONS.at(frame), later.at(frame)):
            expected = expected if moved is None else moved.of_points(expected)
        found = both.at(frame)
        torch.testing.assert_close(point if found is None else found.of_points(point), expected)
    assert later.after(None) is later
