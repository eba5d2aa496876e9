"""KITTI files: poses without times, times beside them, rotations mended or refused."""

from pathlib import Path

import pytest
import torch

from longtake.errors import InputError, SettingError
from longtake.spatial.pose import matrix_from_quaternion, rigid_pose
from longtake.takes.kitti import kitti_line, read_kitti

IDENTITY = "1 0 0 0 0 1 0 0 0 0 1 0"


@pytest.fixture
def three_poses(tmp_path: Path) -> Path:
    path = tmp_path / "00.txt"
    path.write_text(f"# poses\n{IDENTITY}\n1 0 0 1 0 1 0 2 0 0 1 3\n\n0 -1 0 4 1 0 0 5 0 0 1 6\n")
    return path


def test_rows_are_those_of_a_pose(three_poses: Path) -> None:
    poses = read_kitti(three_poses).world_from_camera
    assert poses[:, :3, 3].tolist() == [[0, 0, 0], [1, 2, 3], [4, 5, 6]]
    torch.testing.assert_close(poses[2, :3, :3], torch.tensor([[0, -1, 0], [1, 0, 0], [0, 0, 1]]).double())
    assert poses[:, 3].tolist() == [[0, 0, 0, 1]] * 3


def test_written_line_comes_back_to_the_last_bit(tmp_path: Path) -> None:
    quaternion = torch.randn(4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    pose = rigid_pose(matrix_from_quaternion(quaternion), torch.tensor([1 / 3, -1e-9, 12345.678]).double())
    assert [float(word) for word in kitti_line(pose).split()] == pose[:3].flatten().tolist()
    (tmp_path / "00.txt").write_text(kitti_line(pose))
    torch.testing.assert_close(read_kitti(tmp_path / "00.txt").world_from_camera[0], pose, rtol=0, atol=1e-15)


def test_poses_without_times_are_counted(three_poses: Path) -> None:
    read = read_kitti(three_poses)
    assert read.timestamp_s.tolist() == [0, 1, 2]
    assert not read.is_timed


def test_frame_rate_times_poses(three_poses: Path) -> None:
    read = read_kitti(three_poses, fps=10.0)
    assert read.timestamp_s.tolist() == [0, 0.1, 0.2]
    assert read.is_timed


def test_file_of_times_times_poses(three_poses: Path, tmp_path: Path) -> None:
    (tmp_path / "times.txt").write_text("0.000000e+00\r\n1.037359e-01\r\n2.073381e-01\r\n")
    read = read_kitti(three_poses, times=tmp_path / "times.txt")
    assert read.timestamp_s.tolist() == [0, 0.1037359, 0.2073381]
    assert read.is_timed


def test_rounded_rotation_becomes_the_nearest_true_one(tmp_path: Path) -> None:
    quaternion = torch.randn(20, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    true = rigid_pose(matrix_from_quaternion(quaternion), torch.ones(20, 3).double())
    lines = [" ".join(f"{number:.4f}" for number in pose[:3].flatten().tolist()) for pose in true]
    (tmp_path / "00.txt").write_text("\n".join(lines))
    read = read_kitti(tmp_path / "00.txt").world_from_camera
    torch.testing.assert_close(read, true, rtol=0, atol=1e-4)
    rotation = read[:, :3, :3]
    unit = torch.eye(3).double().expand(20, 3, 3)
    torch.testing.assert_close(rotation @ rotation.transpose(1, 2), unit, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("1 0 0 0 0 1 0 0 0 0 1", "expected 12 numbers .*3x4.* found 11 numbers"),
        ("1 0 0 0 0 1 0 0 0 0 one 0", "expected numbers .*'one' is none"),
        ("1 0 0 nan 0 1 0 0 0 0 1 0", "expected finite numbers"),
        ("2 0 0 0 0 2 0 0 0 0 2 0", "must be a rotation to within 0.001, but they scale, shear or mirror"),
        ("1 0.002 0 0 0 1 0 0 0 0 1 0", "must be a rotation"),
        ("0 0 0 0 0 0 0 0 0 0 0 0", "must be a rotation"),
        ("1 0 0 0 0 1 0 0 0 0 -1 0", "must be a rotation"),
    ],
)
def test_bad_line_is_named(tmp_path: Path, line: str, sentence: str) -> None:
    (tmp_path / "00.txt").write_text(f"{IDENTITY}\n{line}\n")
    with pytest.raises(InputError, match=rf"00\.txt, line 2: .*{sentence}"):
        read_kitti(tmp_path / "00.txt")


def test_file_without_poses_is_refused(tmp_path: Path) -> None:
    (tmp_path / "00.txt").write_text("")
    with pytest.raises(InputError, match=r"00\.txt holds no numbers"):
        read_kitti(tmp_path / "00.txt")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0\n1\n", r"times\.txt has 2 timestamps, but .*00\.txt has 3 poses"),
        ("0\n1\n1\n", r"times\.txt, line 3: timestamps must increase"),
        ("0\n1 2\n3\n", r"times\.txt, line 2: expected 1 number .* found 2 numbers"),
        ("", r"times\.txt holds no numbers"),
    ],
)
def test_bad_times_are_refused(three_poses: Path, tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "times.txt").write_text(text)
    with pytest.raises(InputError, match=sentence):
        read_kitti(three_poses, times=tmp_path / "times.txt")


@pytest.mark.parametrize("fps", [0.0, -1.0, float("nan"), float("inf")])
def test_frame_rate_must_be_positive(three_poses: Path, fps: float) -> None:
    with pytest.raises(SettingError, match="frame rate must be a positive number"):
        read_kitti(three_poses, fps=fps)


def test_times_and_frame_rate_contradict_each_other(three_poses: Path) -> None:
    with pytest.raises(SettingError, match="not both"):
        read_kitti(three_poses, times=three_poses, fps=1.0)
