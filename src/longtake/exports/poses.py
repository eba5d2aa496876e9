"""Trajectories as files, a line for each frame: TUM's `timestamp x y z qx qy qz qw`, KITTI's 3x4 pose row by row."""

from dataclasses import asdict, replace
from itertools import dropwhile
from pathlib import Path
from typing import BinaryIO

import torch
from jaxtyping import Float
from torch import Tensor

from longtake.exports.frame import MappedFrame, PosedFrame
from longtake.exports.sink import AppendSink, Correction, ReplacingSink, Sink, SinkState
from longtake.spatial.similarity import Similarity
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
    meets poses of one version. Only provisional frames are held; none of them may come before a final one.
    """

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        require_writable(path, overwrite=overwrite)
        self._path = path
        self._provisional: dict[int, PosedFrame] = {}
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
            self._num_final_bytes += len(line)

    def correct(self, correction: Correction) -> None:
        assert correction.version > self._version, "corrections come in order"
        moved = _moved(self._provisional, correction)
        lines = {index: f"{_line_of(frame)}\n".encode() for index, frame in moved.items()}
        with writing(str(self._path)):
            with replacing(self._path) as file, self._path.open("rb") as before:
                _copy(before, file, self._num_final_bytes)
                file.writelines(lines.values())
            self._file.close()
            num_bytes = self._num_final_bytes + sum(map(len, lines.values()))
            self._file = GrowingFile(self._path, kept=Grown(num_bytes=num_bytes))
        self._version = correction.version
        self._provisional = dict(dropwhile(lambda item: not item[1].provisional, moved.items()))
        self._num_final_bytes += sum(len(line) for index, line in lines.items() if index not in self._provisional)

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
    along: dict[int, PosedFrame] = {}
    for span in correction.spans:
        indices = range(span.first_frame, span.last_frame + 1)
        along |= {index: _moved_along(frames[index], span) for index in indices if index in frames}
    return frames | along | known_now


def _moved_along(frame: PosedFrame, span: MovedSpan) -> PosedFrame:
    return replace(frame, world_from_camera=_similarity(span.now_from_before).of_cameras(frame.world_from_camera))


def _similarity(matrix: Float[Tensor, "4 4"]) -> Similarity:
    """From its matrix, whose rotation is scaled."""
    matrix = matrix.double()
    scale = torch.linalg.det(matrix[:3, :3]).pow(1 / 3)
    return Similarity(scale, matrix[:3, :3] / scale, matrix[:3, 3])
