"""What was written is read, from a whole take and from every prefix that a killed writer can leave."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from longtake.errors import InputError
from longtake.takes.depth_files import DepthFiles
from longtake.takes.frames import FrameRecord, TakeFrame, Visible
from longtake.takes.header import TakeHeader, read_header
from longtake.takes.images import ImageFiles
from longtake.takes.take import Take, read_take
from longtake.takes.tum import as_written
from longtake.takes.writer import TakeWriter

MakeFrame = Callable[..., TakeFrame]
MakeHeader = Callable[..., TakeHeader]
WriteTake = Callable[..., Path]

KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
import numpy as np, torch
from longtake.takes.depth_files import DepthFiles
from longtake.takes.frames import TakeFrame
from longtake.takes.header import Content, TakeHeader
from longtake.takes.images import ImageFiles
from longtake.takes.writer import TakeWriter

header = TakeHeader(
    content=Content.RESULT, width=64, height=48, images=ImageFiles(sys.argv[2]), depth=DepthFiles(0.001)
)
with TakeWriter(Path(sys.argv[1]), header) as writer:
    for index in range(20):
        writer.write(TakeFrame(
            index=index, timestamp_s=index / 30, world_from_camera=torch.eye(4), intrinsics=torch.eye(3),
            image=np.full((48, 64, 3), 10 * index, np.uint8), depth=np.full((48, 64), 1.0 + index),
        ))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_every_field_comes_back(tmp_path: Path, make_frame: MakeFrame, make_header: MakeHeader) -> None:
    header = replace(make_header(), confidence=True, world={"seed": 3})
    confidence = np.linspace(0, 9, 48 * 64, dtype=np.float32).reshape(48, 64)
    visible = (Visible("blue ball", 12, 0.5),)
    frame = replace(
        make_frame(2), confidence=confidence, room="red", visible=visible, status="ok", keyframe=False, window=1
    )
    with TakeWriter(tmp_path, header) as writer:
        writer.write(frame)
    take = read_take(tmp_path)
    assert (len(take), take.header, take.folder) == (1, replace(header, num_frames=1), tmp_path)
    assert take.records == (FrameRecord.of(frame),)
    assert torch.equal(take.trajectory.world_from_camera[0], as_written(frame.world_from_camera))
    torch.testing.assert_close(take.trajectory.world_from_camera[0], frame.world_from_camera, rtol=0, atol=1e-14)
    torch.testing.assert_close(take.intrinsics[0], frame.intrinsics, rtol=0, atol=0)
    assert frame.depth is not None
    np.testing.assert_allclose(take.depth(0), frame.depth, atol=0.0005 / 2 + 1e-6)
    np.testing.assert_array_equal(take.image(0), frame.image)
    np.testing.assert_array_equal(take.confidence(0), confidence)


def test_plain_tools_read_the_same(write_small_take: WriteTake) -> None:
    """The obvious second reader: JSON, one line at a time, and quaternions by the textbook."""
    folder = write_small_take(3)
    take = read_take(folder)
    step = json.loads((folder / "take.json").read_text())["depth"]["step"]
    names = ("frames.jsonl", "poses.tum")
    lines = zip(*((folder / name).read_text().splitlines() for name in names), strict=True)
    for position, (record_line, pose_line) in enumerate(lines):
        record = json.loads(record_line)
        time_s, *center, x, y, z, w = map(float, pose_line.split())
        assert time_s == record["timestamp_s"] == take.trajectory.timestamp_s[position]
        rotation = [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
        pose = take.trajectory.world_from_camera[position]
        np.testing.assert_allclose(pose[:3, :3], rotation, atol=1e-12)
        np.testing.assert_allclose(pose[:3, 3], center)
        fx, fy, cx, cy = record["intrinsics"]
        np.testing.assert_allclose(take.intrinsics[position], [[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
        with Image.open(folder / f"depth/{record['index']:06d}.png") as image:
            np.testing.assert_allclose(take.depth(position), np.asarray(image) * step, rtol=1e-6)


def test_points_of_one_frame_land_where_another_frame_sees_them(
    write_small_take: WriteTake, round_trip: Callable[..., Any]
) -> None:
    take = read_take(write_small_take(6, images=None))
    for here, there in ((0, 1), (1, 5), (5, 0)):
        trip = round_trip(take, here, there)
        assert trip.covisible > 0.5
        assert trip.median_px < 0.001


@pytest.mark.parametrize("mistake", ["half a pixel", "inverted poses", "depth along the ray"])
def test_wrong_convention_does_not_come_back_to_the_pixel(
    write_small_take: WriteTake, round_trip: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    right = read_take(write_small_take(6, images=None, depth=DepthFiles(None)))
    wrong = right
    if mistake == "half a pixel":
        shift = torch.zeros(3, 3, dtype=torch.float64)
        shift[:2, 2] = 0.5
        wrong = replace(right, intrinsics=right.intrinsics + shift)
    if mistake == "inverted poses":
        poses = torch.linalg.inv(right.trajectory.world_from_camera)
        wrong = replace(right, trajectory=replace(right.trajectory, world_from_camera=poses))
    if mistake == "depth along the ray":
        monkeypatch.setattr(Take, "depth", lambda take, position: _along_the_ray(take, position))
    assert round_trip(wrong, 0, 5).median_px > 0.01


def _along_the_ray(take: Take, position: int) -> np.ndarray:
    assert take.header.depth is not None
    v, u = np.mgrid[: take.header.height, : take.header.width]
    (fx, _, cx), (_, fy, cy), _ = take.intrinsics[position].tolist()
    depth = take.header.depth.read(take.folder, position, take.header.size)
    return depth * np.sqrt(1 + ((u - cx) / fx) ** 2 + ((v - cy) / fy) ** 2).astype(np.float32)


@pytest.mark.parametrize("images", ImageFiles)
def test_images_come_in_order_and_one_by_one(
    write_small_take: WriteTake, make_frame: MakeFrame, images: ImageFiles
) -> None:
    take = read_take(write_small_take(4, images=images))
    in_order = list(take.images())
    assert len(in_order) == 4
    for position, image in enumerate(in_order):
        expected = make_frame(position).image
        assert expected is not None
        assert np.abs(image.astype(float) - expected).mean() < 3
        np.testing.assert_array_equal(take.image(position), image)
    np.testing.assert_array_equal(take.image(-1), in_order[-1])


def test_prefix_is_read_wherever_a_line_was_torn(write_small_take: WriteTake) -> None:
    folder = write_small_take(3, images=None, depth=None)
    (folder / "take.json").write_text(replace(read_header(folder), num_frames=None).to_json())
    for name in ("frames.jsonl", "poses.tum"):
        whole = (folder / name).read_bytes()
        ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
        for length in range(ends[0], len(whole) + 1):
            (folder / name).write_bytes(whole[:length])
            take = read_take(folder)
            assert len(take) == len(take.trajectory) == len(take.intrinsics) == sum(end <= length for end in ends)
        for length in range(ends[0]):
            (folder / name).write_bytes(whole[:length])
            with pytest.raises(InputError, match="none is complete yet"):
                read_take(folder)
        (folder / name).write_bytes(whole)


@pytest.mark.parametrize("name", ["frames.jsonl", "poses.tum"])
@pytest.mark.parametrize("left", [0, 1, 2, 4])
def test_finished_take_that_lost_lines_or_got_more_is_refused(
    write_small_take: WriteTake, name: str, left: int
) -> None:
    folder = write_small_take(3, images=None, depth=None)
    path = folder / name
    path.write_bytes(b"".join((path.read_bytes().splitlines(keepends=True) * 2)[:left]) or b"no line at all")
    with pytest.raises(
        InputError, match=rf"Expected 3 lines in .*{name}.* finished take, but found {left}; copy the take again"
    ):
        read_take(folder)


def test_finished_take_without_frames_does_not_ask_to_wait(write_small_take: WriteTake) -> None:
    with pytest.raises(InputError, match="was ended before the first; make it again"):
        read_take(write_small_take(0))


@pytest.mark.extra
@pytest.mark.parametrize("images", ImageFiles)
def test_killed_writer_leaves_all_frames_but_at_most_the_last_image(tmp_path: Path, images: ImageFiles) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_WRITER, str(tmp_path / "walk"), images], capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    take = read_take(tmp_path / "walk")
    assert len(take) == 20
    assert take.depth(19).max() == 20
    for position in range(19):
        assert np.abs(take.image(position).astype(int) - 10 * position).max() <= 3
    if images is ImageFiles.VIDEO:
        with pytest.raises(InputError, match=r"Expected 20 frames in .*video\.mp4, but it ends after 19"):
            list(take.images())
    else:
        assert len(list(take.images())) == 20


def replace_line(path: Path, number: int, line: str) -> None:
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{text}\n" for text in [*lines[: number - 1], line, *lines[number:]]))


POSE = "0.03333333333333333 0 0 0 0 0 0 1"


@pytest.mark.parametrize(
    ("name", "line", "sentence"),
    [
        ("frames.jsonl", "", r"Expected a JSON object in .*frames\.jsonl line 2"),
        ("frames.jsonl", "nonsense", r"Expected a JSON object in .*frames\.jsonl line 2"),
        ("frames.jsonl", '{"index": 1}', r"as 'timestamp_s' in .*frames\.jsonl line 2, but there is none"),
        (
            "frames.jsonl",
            '{"index": 0, "timestamp_s": 0.03333333333333333, "intrinsics": [1,1,1,1]}',
            "line 2 has index 0",
        ),
        ("frames.jsonl", '{"index": 1, "timestamp_s": 0.0, "intrinsics": [1,1,1,1]}', "line 2 has index 1 at 0.0 s"),
        ("frames.jsonl", '{"index": 1, "timestamp_s": 0.04, "intrinsics": [1,1,1,1]}', "must be of one take"),
        ("poses.tum", "", r"x y z qx qy qz qw in .*poses\.tum line 2, but got b''"),
        ("poses.tum", POSE[:-2], r"poses\.tum line 2"),
        ("poses.tum", POSE + " 1", r"poses\.tum line 2"),
        ("poses.tum", POSE.replace("1", "one"), r"poses\.tum line 2"),
        ("poses.tum", POSE.replace(" 1", " 0"), r"poses\.tum line 2"),
        ("poses.tum", POSE.replace(" 1", " nan"), r"poses\.tum line 2"),
        ("poses.tum", POSE.replace("0.0", "0.1"), r"0\.03333333333333333 s of frames\.jsonl in .*poses\.tum line 2"),
        ("poses.tum", "é" + POSE, r"poses\.tum line 2"),
    ],
)
def test_damaged_line_is_one_sentence(write_small_take: WriteTake, name: str, line: str, sentence: str) -> None:
    folder = write_small_take(3, images=None, depth=None)
    replace_line(folder / name, 2, line)
    with pytest.raises(InputError, match=sentence):
        read_take(folder)


@pytest.mark.parametrize("name", ["frames.jsonl", "poses.tum", "take.json"])
def test_missing_file_is_one_sentence(write_small_take: WriteTake, name: str) -> None:
    folder = write_small_take(1, images=None, depth=None)
    (folder / name).unlink()
    with pytest.raises(InputError, match=f"{name}.* cannot be read"):
        read_take(folder)


def test_missing_pixels_are_one_sentence(write_small_take: WriteTake) -> None:
    folder = write_small_take(2)
    (folder / "depth" / "000001.png").unlink()
    (folder / "images" / "000001.png").unlink()
    take = read_take(folder)
    with pytest.raises(InputError, match=r"depth/000001\.png, which the take lists, but it is missing"):
        take.depth(1)
    with pytest.raises(InputError, match=r"images/000001\.png, which the take lists, but it is missing"):
        take.image(1)
    with pytest.raises(InputError, match=r"images/000001\.png"):
        list(take.images())
    assert take.depth(0).any()


def test_what_a_take_does_not_have_is_one_sentence(write_small_take: WriteTake) -> None:
    take = read_take(write_small_take(1, images=None, depth=None))
    for read in (take.depth, take.confidence, take.image):
        with pytest.raises(InputError, match=r"The take .* has no (depth|confidence|images)"):
            read(0)
    with pytest.raises(InputError, match="has no images"):
        list(take.images())
    assert take.questions is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", "nonsense"])
def test_damaged_questions_are_one_sentence(write_small_take: WriteTake, text: str) -> None:
    folder = write_small_take(1)
    (folder / "questions.json").write_text(text)
    with pytest.raises(InputError, match=r"in .*questions\.json"):
        _ = read_take(folder).questions
