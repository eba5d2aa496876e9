"""Reads a take, also one whose writer was killed; pixels are read when they are asked for."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64, UInt8
from torch import Tensor

from longtake.errors import InputError
from longtake.spatial.pose import matrix_from_quaternion, rigid_pose
from longtake.takes.corrections import Corrections, read_corrections
from longtake.takes.depth_files import CONFIDENCE_FILES, read_array
from longtake.takes.descriptors import parse_descriptor
from longtake.takes.fields import content_of, read_objects
from longtake.takes.frames import FrameRecord
from longtake.takes.header import (
    DESCRIPTORS_NAME,
    FRAMES_NAME,
    ONLINE_POSES_NAME,
    POSES_NAME,
    QUESTIONS_NAME,
    TakeHeader,
    read_header,
)
from longtake.takes.images import ImageFiles, read_image
from longtake.takes.trajectory import Trajectory
from longtake.types import counted

_NUM_POSE_NUMBERS = 8
_SMALLEST_QUATERNION = 1e-9
_LARGEST_CLOCK_DIFFERENCE_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Take:
    """What is known of a video's frames; positions count the frames that are here, from 0."""

    folder: Path
    header: TakeHeader
    trajectory: Trajectory
    intrinsics: Float64[Tensor, "frames 3 3"]
    records: tuple[FrameRecord, ...]
    corrections: Corrections | None = None
    """What became of poses that were said while the video ran; None where they stayed as they were."""

    def __len__(self) -> int:
        return len(self.records)

    def depth(self, position: int) -> Float[np.ndarray, "height width"]:
        """Depth along z as float32, 0 where it is invalid."""
        if self.header.depth is None:
            raise InputError(f"The take {self.folder} has no depth; make it with depth.")
        index = self._index_at(position)
        said = self.header.depth.read(self.folder, index, self.header.size)
        return said if self.corrections is None else said * np.float32(self.corrections.scale_at(index))

    def confidence(self, position: int) -> Float[np.ndarray, "height width"]:
        if not self.header.confidence:
            raise InputError(f"The take {self.folder} has no confidence; make it with confidence.")
        path = self.folder / CONFIDENCE_FILES.format(index=self._index_at(position))
        return read_array(path, "confidence", self.header.size)

    def descriptor(self, position: int) -> Float[np.ndarray, " channels"] | None:
        """What a keyframe looks like, to find its place again by; None for a frame that was not kept."""
        return self.descriptors()[self._position(position)]

    def descriptors(self) -> list[Float[np.ndarray, " channels"] | None]:
        """Of all frames in order, read now: frames that look alike have a small angle between theirs."""
        channels, path = self.header.descriptor_channels, self.folder / DESCRIPTORS_NAME
        if channels is None:
            raise InputError(f"The take {self.folder} has no descriptors; map the video again.")
        lines = _complete_lines(path)
        if self.header.num_frames is None:
            lines = lines[: len(self)]  # a frame that is being written has its line here before it has the others
        if len(lines) != len(self):
            raise InputError(
                f"Expected {counted(len(self), 'line')} in {path}, but it has {len(lines)}; make the take again."
            )
        return [parse_descriptor(line, channels, path, number) for number, line in enumerate(lines, start=1)]

    def image(self, position: int) -> UInt8[np.ndarray, "height width 3"]:
        """One image; from a video this decodes all before it, so that `images` is the way through many."""
        files = self._image_files()
        index = self._index_at(position)
        if files is not ImageFiles.VIDEO:
            return read_image(self.folder / files.format(index=index), self.header.size)
        return next(islice(self.images(), range(len(self))[position], None))

    def images(self) -> Iterator[UInt8[np.ndarray, "height width 3"]]:
        """All images in order, one in memory at a time."""
        files = self._image_files()
        if files is ImageFiles.VIDEO:
            yield from self._video_images()
        else:
            for record in self.records:
                yield read_image(self.folder / files.format(index=record.index), self.header.size)

    @property
    def questions(self) -> list[dict[str, Any]] | None:
        """What was asked about the take, if anything was."""
        questions = read_objects(self.folder / QUESTIONS_NAME)
        return None if questions is None else [dict(question.fields) for question in questions]

    def __repr__(self) -> str:
        """Its folder, and what there is of each frame."""
        header, seconds = self.header, self.trajectory.duration_s
        parts = {
            "images": header.images is not None,
            "depth": header.depth is not None,
            "confidence": header.confidence,
        }
        there = ", ".join(name for name, is_there in parts.items() if is_there) or "poses alone"
        frames = counted(len(self), "frame")
        return f"Take({self.folder}: {frames} of {header.width}x{header.height} in {seconds:.1f} s; {there})"

    def _index_at(self, position: int) -> int:
        return self.records[self._position(position)].index

    def _position(self, position: int) -> int:
        """Itself, where there is such a frame."""
        try:
            return range(len(self))[position]
        except (IndexError, TypeError) as error:
            raise InputError(
                f"Expected a frame from 0 to {len(self) - 1} of the take {self.folder}, but got {position!r}."
            ) from error

    def _image_files(self) -> ImageFiles:
        if self.header.images is None:
            raise InputError(
                f"The take {self.folder} has no images; make it with images (--format or format: ...,images)."
            )
        return self.header.images

    def _video_images(self) -> Iterator[UInt8[np.ndarray, "height width 3"]]:
        from longtake.takes.video_file import read_video

        path = self.folder / ImageFiles.VIDEO
        count = 0
        for image in islice(read_video(path, self.header.size), len(self)):
            count += 1
            yield image
        if count < len(self):
            raise InputError(
                f"Expected {len(self)} frames in {path}, but it ends after {count}, perhaps because its writer was "
                "killed; make the take again."
            )


def read_take(folder: Path) -> Take:
    """The frames that are complete in both of a take's files, one at least; of a take that was closed, all of them."""
    header = read_header(folder)
    corrections = read_corrections(folder)
    # Where only one of the two is there, poses were being corrected; those that were said count until that is done.
    is_broken_off = corrections is None and (folder / ONLINE_POSES_NAME).exists()
    poses_path = folder / (ONLINE_POSES_NAME if is_broken_off else POSES_NAME)
    lines = {path: _complete_lines(path) for path in (folder / FRAMES_NAME, poses_path)}
    if header.num_frames is not None:
        _require_all(header.num_frames, lines)
    if corrections is not None:
        corrections.require_theirs(poses_path, lines[poses_path])
    pairs = list(zip(*lines.values(), strict=False))
    if not pairs and header.num_frames is not None:
        raise InputError(f"Expected frames in the take {folder}, but it was ended before the first; make it again.")
    if not pairs:
        raise InputError(f"Expected frames in the take {folder}, but none is complete yet; wait or make it again.")
    records = tuple(
        FrameRecord.parse(line, f"{folder / FRAMES_NAME} line {number}")
        for number, (line, _) in enumerate(pairs, start=1)
    )
    poses = [_pose_numbers(line, poses_path, number) for number, (_, line) in enumerate(pairs, start=1)]
    _require_order(folder, records)
    _require_one_clock(poses_path, records, poses)
    numbers = torch.tensor(poses, dtype=torch.float64)
    return Take(
        folder=folder,
        header=header,
        trajectory=Trajectory(
            timestamp_s=numbers[:, 0].clone(),
            world_from_camera=rigid_pose(matrix_from_quaternion(numbers[:, 4:]), numbers[:, 1:4]),
        ),
        intrinsics=torch.stack([record.intrinsics_matrix() for record in records]),
        records=records,
        corrections=corrections,
    )


def _complete_lines(path: Path) -> list[bytes]:
    """The lines that have an end; a last one without was torn off when the writer was killed."""
    try:
        return content_of(path).split(b"\n")[:-1]
    except OSError as error:
        raise InputError(
            f"Expected {path}, which every take has, but it cannot be read ({error.strerror}); make the take again."
        ) from error


def _require_all(num_frames: int, lines: Mapping[Path, Sequence[bytes]]) -> None:
    """Refuse a file that has lost lines, or got more, since its writer closed it."""
    for path, found in lines.items():
        if len(found) != num_frames:
            raise InputError(
                f"Expected {counted(num_frames, 'line')} in {path}, one a frame of this finished take, but "
                f"found {len(found)}; copy the take again from where it is whole, or make it again."
            )


def _pose_numbers(line: bytes, path: Path, number: int) -> list[float]:
    try:
        numbers = [float(word) for word in line.split()]
    except ValueError:
        numbers = []
    is_pose = len(numbers) == _NUM_POSE_NUMBERS and all(map(math.isfinite, numbers))
    if not is_pose or math.hypot(*numbers[4:]) < _SMALLEST_QUATERNION:
        raise InputError(
            f"Expected timestamp x y z qx qy qz qw in {path} line {number}, but got {line[:80]!r}; make the take again."
        )
    return numbers


def _require_order(folder: Path, records: tuple[FrameRecord, ...]) -> None:
    for number, (earlier, later) in enumerate(pairwise(records), start=2):
        if later.index <= earlier.index or later.timestamp_s <= earlier.timestamp_s:
            raise InputError(
                f"Expected frames in order in {folder / FRAMES_NAME}, but line {number} has index {later.index} at "
                f"{later.timestamp_s} s after index {earlier.index} at {earlier.timestamp_s} s; make the take again."
            )


def _require_one_clock(path: Path, records: tuple[FrameRecord, ...], poses: list[list[float]]) -> None:
    for number, (record, pose) in enumerate(zip(records, poses, strict=True), start=1):
        if abs(record.timestamp_s - pose[0]) > _LARGEST_CLOCK_DIFFERENCE_S:
            raise InputError(
                f"Expected the time {record.timestamp_s} s of {FRAMES_NAME} in {path} line {number}, "
                f"but got {pose[0]} s; the two files must be of one take."
            )
