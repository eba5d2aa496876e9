"""TUM files: what is written comes back, what others write is read, what is none is refused in one sentence."""

import logging
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from selected import rest_in_extra

from longtake.errors import InputError
from longtake.spatial.pose import matrix_from_quaternion, rigid_pose
from longtake.takes.trajectory import Trajectory
from longtake.takes.tum import as_written, read_tum, tum_line, write_tum


def random_trajectory(seed: int, num_poses: int, *, start_s: float = 0.0, size: float = 1.0) -> Trajectory:
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(num_poses, 7, generator=generator, dtype=torch.float64)
    steps = torch.rand(num_poses, generator=generator, dtype=torch.float64) + 1e-3
    return Trajectory(
        timestamp_s=start_s + steps.cumsum(dim=0),
        world_from_camera=rigid_pose(matrix_from_quaternion(numbers[:, :4]), size * numbers[:, 4:]),
    )


@given(st.integers(0, 1000), st.integers(1, 6), st.sampled_from([0.0, 1.3e9]), st.sampled_from([1e-9, 1.0, 1e7]))
@settings(deadline=None, max_examples=40)
def test_what_is_written_comes_back(
    tmp_path_factory: pytest.TempPathFactory, seed: int, num_poses: int, start_s: float, size: float
) -> None:
    path = tmp_path_factory.mktemp("tum") / "poses.txt"
    written = random_trajectory(seed, num_poses, start_s=start_s, size=size)
    write_tum(path, written)
    back = read_tum(path)
    assert torch.equal(back.timestamp_s, written.timestamp_s)
    assert torch.equal(back.world_from_camera[:, :3, 3], written.world_from_camera[:, :3, 3])
    torch.testing.assert_close(back.world_from_camera, written.world_from_camera, rtol=0, atol=1e-14)
    assert back.is_timed


def turns(seed: int) -> torch.Tensor:
    """Rotations in float32: any, small ones, about an axis, and by quarters and thirds of a turn."""
    generator = torch.Generator().manual_seed(seed)
    anyhow = torch.randn(400, 4, generator=generator)
    upright = torch.tensor([0.0, 1.0, 0.0, 1.0])
    by_parts = torch.cartesian_prod(*[torch.tensor([-1.0, 0.0, 1.0])] * 4)
    small = torch.cat([anyhow[:, :3] * 1e-3, torch.ones(400, 1)], dim=1)
    return matrix_from_quaternion(torch.cat([anyhow, small, anyhow * upright, by_parts]))


@pytest.mark.parametrize("seed", rest_in_extra(range(5), keep=2))
def test_pose_as_written_is_written_and_read_to_the_last_bit_again_and_again(tmp_path: Path, seed: int) -> None:
    rotation = turns(seed).double()
    network = rigid_pose(rotation, torch.randn(len(rotation), 3, dtype=torch.float64))
    poses, timestamp_s = as_written(network), torch.arange(len(rotation), dtype=torch.float64)
    torch.testing.assert_close(poses, network, rtol=0, atol=1e-6)
    assert torch.equal(poses[:, :, 3], network[:, :, 3])
    exact = poses[:, :3, :3] @ poses[:, :3, :3].mT - torch.eye(3, dtype=torch.float64)
    assert exact.abs().max() < 1e-14
    assert torch.equal(as_written(poses), poses)
    assert torch.equal(torch.stack([as_written(pose) for pose in poses[::10]]), poses[::10])
    write_tum(tmp_path / "poses.txt", Trajectory(timestamp_s=timestamp_s, world_from_camera=poses))
    assert torch.equal(read_tum(tmp_path / "poses.txt").world_from_camera, poses)


def test_written_quaternions_are_those_of_the_rotation_and_of_unit_length() -> None:
    rotation = turns(9).double()
    lines = [tum_line(0.0, pose) for pose in rigid_pose(rotation, torch.zeros(len(rotation), 3, dtype=torch.float64))]
    written = torch.tensor([[float(number) for number in line.split()[4:]] for line in lines], dtype=torch.float64)
    assert (written.norm(dim=1) - 1).abs().max() < 4e-16
    torch.testing.assert_close(matrix_from_quaternion(written), rotation, rtol=0, atol=1e-6)


def test_line_is_time_centre_and_quaternion() -> None:
    pose = rigid_pose(matrix_from_quaternion(torch.tensor([0.0, 0.0, 1.0, 1.0])), torch.tensor([1.0, -2.5, 0.25]))
    numbers = tum_line(1305031102.160407, pose).split(" ")
    assert numbers[:6] == ["1305031102.160407", "1.0", "-2.5", "0.25", "0.0", "0.0"]
    assert [float(number) for number in numbers[6:]] == pytest.approx([0.5**0.5, 0.5**0.5], abs=1e-7)


def test_file_can_be_written_line_by_line(tmp_path: Path) -> None:
    written = random_trajectory(3, 4)
    with (tmp_path / "poses.txt").open("w") as file:
        for timestamp_s, pose in zip(written.timestamp_s.tolist(), written.world_from_camera, strict=True):
            file.write(tum_line(timestamp_s, pose) + "\n")
    torch.testing.assert_close(read_tum(tmp_path / "poses.txt").world_from_camera, written.world_from_camera)


def test_comments_blanks_tabs_byte_order_mark_and_any_line_end_are_read(tmp_path: Path) -> None:
    text = (
        "\ufeff# a title\r\n\r\n  1.5  1 2\t3 0 0 0 2 \r\n# é\n\t2.5 4 5 6 0 0 0 -1 # the end\n   \n3 7 8 9e0 1 0 0 0"
    )
    (tmp_path / "poses.txt").write_bytes(text.encode())
    read = read_tum(tmp_path / "poses.txt")
    assert read.timestamp_s.tolist() == [1.5, 2.5, 3]
    assert read.world_from_camera[:, :3, 3].tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    turns = [[1, 1, 1], [1, 1, 1], [1, -1, -1]]
    assert torch.equal(read.world_from_camera[:, :3, :3], torch.tensor(turns).double().diag_embed())


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("2 0 0 0 0 0 0", r"line 3: expected 8 numbers .*timestamp x y z qx qy qz qw.* found 7 numbers"),
        ("2 0 0 0 0 0 0 1 1", "line 3: expected 8 numbers .* found 9 numbers"),
        ("2", "line 3: expected 8 numbers .* found 1 number"),
        ("2,0,0,0,0,0,0,1", "line 3: expected numbers separated by spaces .*'2,0,0,0,0,0,0,1' is none"),
        ("2 0 0 zero 0 0 0 1", "line 3: expected numbers .*'zero' is none"),
        ("2 0 0 1_0 0 0 0 1", "line 3: expected numbers .*'1_0' is none"),
        ("2 0 0 nan 0 0 0 1", "line 3: expected finite numbers .*'nan' is not"),
        ("2 0 0 -inf 0 0 0 1", "line 3: expected finite numbers .*'-inf' is not"),
        ("2 0 0 1e999 0 0 0 1", "line 3: expected finite numbers .*'1e999' is not"),
        ("2 0 0 0 0 0 0 0", "line 3: expected a rotation, but the quaternion qx qy qz qw is zero"),
        ("0.5 0 0 0 0 0 0 1", r"line 3: timestamps must increase, but 0\.5 s follows 1\.0 s of line 2"),
        ("1 0 0 0 0 0 0 1", r"line 3: timestamps must increase, but 1\.0 s follows 1\.0 s of line 2"),
    ],
)
def test_bad_line_is_named(tmp_path: Path, line: str, sentence: str) -> None:
    path = tmp_path / "poses.txt"
    path.write_text(f"# time and pose\n1 0 0 0 0 0 0 1\n{line}\n")
    with pytest.raises(InputError, match=rf"poses\.txt, {sentence}") as error:
        read_tum(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "\ufeff"])
def test_file_without_poses_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "poses.txt").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"poses\.txt holds no numbers; expected lines of timestamp x y z"):
        read_tum(tmp_path / "poses.txt")


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"There is no file .*nowhere\.txt"):
        read_tum(tmp_path / "nowhere.txt")
    with pytest.raises(InputError, match="cannot be read"):
        read_tum(tmp_path)


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\0\0\0", b"\xff\xfe1\0 \0", b"1 0 0 0 0 0 0 1\n\xff\xd8\n"])
def test_binary_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "poses.png").write_bytes(content)
    with pytest.raises(InputError, match=r"poses\.png, but it is no text file"):
        read_tum(tmp_path / "poses.png")


def test_of_rare_lines_with_the_same_timestamp_the_last_stands(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [f"{frame} {frame} 0 0 0 0 0 1" for frame in range(100)]
    lines.insert(50, "49 -1 0 0 0 0 0 1")
    (tmp_path / "poses.txt").write_text("\n".join(lines))
    with caplog.at_level(logging.WARNING):
        read = read_tum(tmp_path / "poses.txt")
    assert read.timestamp_s.tolist() == list(range(100))
    assert read.world_from_camera[49, 0, 3] == -1
    assert "line 51" in caplog.text


def test_unwritable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"poses\.txt cannot be written"):
        write_tum(tmp_path / "no folder" / "poses.txt", random_trajectory(0, 2))
