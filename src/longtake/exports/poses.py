"""Trajectories as files, a line for each frame: TUM's `timestamp x y z qx qy qz qw`, KITTI's 3x4 pose row by row."""

from array import array
from collections.abc import Sequence
from dataclasses import asdict
from itertools import dropwhile
from pathlib import Path
from typing import BinaryIO

import torch

from longtake.exports.frame import FrameStatus, MappedFrame, PosedFrame
from longtake.exports.sink import AppendSink, Correction, ReplacingSink, Sink, SinkState
from longtake.spatial.pose import matrix_from_quaternion, rigid_pose
from longtake.takes.atomic_files import GrowingFile, Grown, LineFile, replacing, require_writable, writing
from longtake.takes.kitti import kitti_line
from longtake.takes.tum import HEADING, tum_line
from longtake.types import MovedSpan

KITTI_NAME = "poses.kitti"
_COPIED_AT_ONCE = 1 << 20


class TumSink(Sink):
    """Each frame is in the file when `write` returns."""

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        self._lines = LineFile(path, overwrite=overwrite)

    def write(self, frame: PosedFrame) -> None:
        heading = [HEADING] if self._lines.is_empty else []
        self._lines.append(*heading, _line_of(frame))

    def close(self) -> None:
        self._lines.close()


class KittiSink(AppendSink):
    """A frame without a result has the pose of the one before it, for the format has neither times nor numbers.

    Before the first result, it has that of the first.
    """

    def __init__(self, path: Path, *, overwrite: bool = False, state: SinkState | None = None) -> None:
        self._lines = LineFile(
            path, overwrite=overwrite, kept=None if state is None else Grown(**state.values["grown"])
        )
        self._num_lines: int = 0 if state is None else state.values["num_lines"]
        self._last_line: str | None = None if state is None else state.values["last_line"]

    def write(self, frame: MappedFrame) -> None:
        line = kitti_line(frame.world_from_camera)
        num_missing = frame.index - self._num_lines
        self._lines.append(*[self._last_line or line] * num_missing, line)
        self._num_lines, self._last_line = frame.index + 1, line

    def checkpoint(self) -> SinkState:
        values = {"grown": asdict(self._lines.sync()), "num_lines": self._num_lines, "last_line": self._last_line}
        return SinkState(values=values)

    def close(self) -> None:
        self._lines.close()


class LivePoses(ReplacingSink):
    """A TUM file without its heading that always has the newest pose of every frame.

    A frame is in the file when `write` returns; a correction replaces the file as a whole, so that whoever reads it
    meets poses of one version. Only provisional frames are held, and of the others their places in the video; none of
    them may come before a final one.
    """

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        require_writable(path, overwrite=overwrite)
        self._path = path
        self._provisional: dict[int, PosedFrame] = {}
        self._final = array("q")
        self._num_final_bytes, self._version = 0, 0
        with writing(str(path)):
            self._file = GrowingFile(path)

    def write(self, frame: PosedFrame) -> None:
        line = f"{_line_of(frame)}\n".encode()
        with writing(str(self._path)):
            self._file.append(line)
        if frame.provisional or self._provisional:
            self._provisional[frame.index] = PosedFrame.of(frame)
        else:
            self._final.append(frame.index)
            self._num_final_bytes += len(line)

    def correct(self, correction: Correction) -> None:
        assert correction.version > self._version, "corrections come in order"
        moved = _moved(self._provisional, correction)
        lines = {index: f"{_line_of(frame)}\n".encode() for index, frame in moved.items()}
        with writing(str(self._path)):
            with replacing(self._path) as file, self._path.open("rb") as before:
                num_final_bytes = self._rewrite_final(before, file, correction.spans)
                file.writelines(lines.values())
            self._file.close()
            num_bytes = num_final_bytes + sum(map(len, lines.values()))
            self._file = GrowingFile(self._path, kept=Grown(num_bytes=num_bytes))
        self._version = correction.version
        self._provisional = dict(dropwhile(lambda item: not item[1].provisional, moved.items()))
        final = [index for index in lines if index not in self._provisional]
        self._final.extend(final)
        self._num_final_bytes = num_final_bytes + sum(len(lines[index]) for index in final)

    def _rewrite_final(self, before: BinaryIO, file: BinaryIO, spans: Sequence[MovedSpan]) -> int:
        """Final frames as they are now; returns their bytes."""
        if not self._final or all(span.first_frame > self._final[-1] for span in spans):
            _copy(before, file, self._num_final_bytes)
            return self._num_final_bytes
        num_bytes = 0
        for index, line in zip(self._final, before, strict=False):
            if any(span.first_frame <= index <= span.last_frame for span in spans):
                line = f"{_line_of(_posed(index, line).moved_along(spans))}\n".encode()
            num_bytes += file.write(line)
        return num_bytes

    def close(self) -> None:
        """Where no pose came, no file stays in the way of the next try."""
        self._file.close()
        if self._file.num_bytes == 0:
            self._path.unlink(missing_ok=True)


def _line_of(frame: PosedFrame) -> str:
    return tum_line(float(frame.timestamp_s), frame.world_from_camera)


def _copy(source: BinaryIO, target: BinaryIO, num_bytes: int) -> None:
    while num_bytes and (piece := source.read(min(num_bytes, _COPIED_AT_ONCE))):
        target.write(piece)
        num_bytes -= len(piece)


def _moved(frames: dict[int, PosedFrame], correction: Correction) -> dict[int, PosedFrame]:
    """Frames after a correction, in their order; it may name frames that were never written, such as dropped ones."""
    known_now = {frame.index: PosedFrame.of(frame) for frame in correction.frames if frame.index in frames}
    return {index: frame.moved_along(correction.spans) for index, frame in frames.items()} | known_now


def _posed(index: int, line: bytes) -> PosedFrame:
    """As it was written."""
    timestamp_s, *numbers = map(float, line.split())
    pose = torch.tensor(numbers, dtype=torch.float64)
    return PosedFrame(
        index=index,
        timestamp_s=timestamp_s,
        status=FrameStatus.OK,
        world_from_camera=rigid_pose(matrix_from_quaternion(pose[3:]), pose[:3]),
    )
