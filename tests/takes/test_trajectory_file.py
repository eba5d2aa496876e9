"""The format of a trajectory file is told by its first line of numbers."""

from pathlib import Path

import pytest

from longtake.errors import InputError, SettingError
from longtake.takes.trajectory_file import read_trajectory


@pytest.fixture
def tum(tmp_path: Path) -> Path:
    (tmp_path / "tum.txt").write_text("# 1 2 3\n\n5 1 2 3 0 0 0 1\n6 1 2 4 0 0 0 1\n")
    return tmp_path / "tum.txt"


@pytest.fixture
def kitti(tmp_path: Path) -> Path:
    (tmp_path / "kitti.txt").write_text("1 0 0 1 0 1 0 2 0 0 1 3\n" * 2)
    return tmp_path / "kitti.txt"


def test_eight_columns_are_tum(tum: Path) -> None:
    read = read_trajectory(tum)
    assert read.timestamp_s.tolist() == [5, 6]
    assert read.world_from_camera[:, :3, 3].tolist() == [[1, 2, 3], [1, 2, 4]]


def test_twelve_columns_are_kitti(kitti: Path) -> None:
    read = read_trajectory(kitti)
    assert not read.is_timed
    assert read.world_from_camera[:, :3, 3].tolist() == [[1, 2, 3]] * 2
    assert read_trajectory(kitti, fps=2.0).timestamp_s.tolist() == [0, 0.5]


def test_times_of_tum_files_are_their_own(tum: Path) -> None:
    for settings in ({"fps": 2.0}, {"times": tum}):
        with pytest.raises(SettingError, match=r"tum\.txt has timestamps of its own"):
            read_trajectory(tum, **settings)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "poses.txt"
    path.write_text("# x\n1 2 3\n")
    with pytest.raises(
        InputError, match=r"poses\.txt, line 2: expected 8 numbers of a TUM pose or 12 .* found 3 numbers"
    ):
        read_trajectory(path)
    path.write_text("")
    with pytest.raises(
        InputError, match=r"poses\.txt holds no numbers; expected lines of 8 numbers of a TUM pose or 12"
    ):
        read_trajectory(path)
    path.write_text("timestamp,x,y,z\n")
    with pytest.raises(InputError, match="'timestamp,x,y,z' is none"):
        read_trajectory(path)


def test_a_video_is_answered_with_what_to_give_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "walk.mp4"
    path.write_bytes(b"\0\0\0 ftypisom")
    with pytest.raises(InputError, match=r"walk\.mp4, but it is no text file in UTF-8; in place of a video give the"):
        read_trajectory(path)
