"""Trajectories as files, a line for each frame: TUM's `timestamp x y z qx qy qz qw`, KITTI's 3x4 pose row by row."""

from array import array
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import dropwhile
from pathlib import Path
from typing import BinaryIO

import torch

from longtake.exports.frame import FrameStatus, MappedFrame, PosedFrame
from longtake.exports.sink import AppendSink, Correction, ReplacingSink, Sink, SinkState
from longtake.spatial.pose import matrix_from_quaternion, rigid_pose
from longtake.spatial.similarity import Similarity
from longtake.takes.atomic_files import GrowingFile, Grown, LineFile, replacing, require_writable, writing
from longtake.takes.kitti import kitti_line
from longtake.takes.tum import HEADING, tum_line
from longtake.types import MovedSpan

KITTI_NAME = "poses.kitti"
_COPIED_AT_ONCE = 1 << 20
_LINE_NUMBERS = 8


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
    meets poses of one version. Each pose is the one that was told last, moved by what came after, which is put together
    first: to the bit what a corrected take has. Provisional frames are held, and of the others, none of which may come
    after a provisional one, where they were said to be.
    """

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        require_writable(path, overwrite=overwrite)
        self._path = path
        self._provisional: dict[int, PosedFrame] = {}
        self._final, self._said = array("q"), array("d")
        """Places in the video, and the numbers of a line for each."""
        self._moves: dict[int, Similarity] = {}
        """Of frames that were not told again since."""
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
            self._add_final(frame)
            self._num_final_bytes += len(line)

    def correct(self, correction: Correction) -> None:
        assert correction.version > self._version, "corrections come in order"
        again = {frame.index: PosedFrame.of(frame) for frame in correction.frames if frame.index in self._provisional}
        told = self._provisional | again
        moves = self._moves_after(correction.spans, again)
        lines = {index: f"{_line_of(_moved(frame, moves))}\n".encode() for index, frame in told.items()}
        with writing(str(self._path)):
            with replacing(self._path) as file, self._path.open("rb") as before:
                num_final_bytes = self._rewrite_final(before, file, moves)
                file.writelines(lines.values())
            self._file.close()
            num_bytes = num_final_bytes + sum(map(len, lines.values()))
            self._file = GrowingFile(self._path, kept=Grown(num_bytes=num_bytes))
        self._version, self._moves = correction.version, moves
        self._provisional = dict(dropwhile(lambda item: not item[1].provisional, told.items()))
        final = [index for index in lines if index not in self._provisional]
        for index in final:
            self._add_final(told[index])
        self._num_final_bytes = num_final_bytes + sum(len(lines[index]) for index in final)

    def _add_final(self, frame: PosedFrame) -> None:
        self._final.append(frame.index)
        self._said.extend(map(float, _line_of(frame).split()))

    def _moves_after(self, spans: Sequence[MovedSpan], again: Container[int]) -> dict[int, Similarity]:
        """Of all frames that moved since they were told last; neighbours that moved alike share theirs."""
        steps = [Similarity.of_matrix(span.now_from_before.double()) for span in spans]
        shared: dict[tuple[int, int], Similarity] = {}
        moves: dict[int, Similarity] = {}
        for index in (*self._final, *self._provisional):
            move = None if index in again else self._moves.get(index)
            for number, span in enumerate(spans if index not in again else ()):
                if span.first_frame <= index <= span.last_frame:
                    key = (id(move), number)
                    if key not in shared:
                        shared[key] = steps[number] if move is None else steps[number] @ move
                    move = shared[key]
            if move is not None:
                moves[index] = move
        return moves

    def _rewrite_final(self, before: BinaryIO, file: BinaryIO, moves: Mapping[int, Similarity]) -> int:
        """Final frames as they are now; returns their bytes."""
        if all(moves.get(index) is self._moves.get(index) for index in self._final):
            _copy(before, file, self._num_final_bytes)
            return self._num_final_bytes
        num_bytes = 0
        for place, (index, line) in enumerate(zip(self._final, before, strict=False)):
            if moves.get(index) is not self._moves.get(index):
                said = _posed(index, self._said[_LINE_NUMBERS * place : _LINE_NUMBERS * (place + 1)])
                line = f"{_line_of(_moved(said, moves))}\n".encode()
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


def _moved(frame: PosedFrame, moves: Mapping[int, Similarity]) -> PosedFrame:
    move = moves.get(frame.index)
    return frame if move is None else replace(frame, world_from_camera=move.of_cameras(frame.world_from_camera))


def _posed(index: int, line: Sequence[float]) -> PosedFrame:
    """As it was written."""
    timestamp_s, *numbers = line
    pose = torch.tensor(numbers, dtype=torch.float64)
    return PosedFrame(
        index=index,
        timestamp_s=timestamp_s,
        status=FrameStatus.OK,
        world_from_camera=rigid_pose(matrix_from_quaternion(pose[3:]), pose[:3]),
    )
