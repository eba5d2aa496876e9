"""Trajectories as files, a line for each frame: TUM's `timestamp x y z qx qy qz qw`, KITTI's 3x4 pose row by row."""

from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from longtake.exports.frame import MappedFrame, PosedFrame
from longtake.exports.sink import AppendSink, Correction, ReplacingSink, Sink, SinkState
from longtake.spatial.similarity import Similarity
from longtake.takes.atomic_files import GrowingFile, LineFile, replacing, require_writable, writing
from longtake.takes.kitti import kitti_line
from longtake.takes.tum import HEADING, tum_line
from longtake.types import MovedSpan

KITTI_NAME = "poses.kitti"


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
            path, overwrite=overwrite, num_bytes=None if state is None else state.values["num_bytes"]
        )
        self._num_lines: int = 0 if state is None else state.values["num_lines"]
        self._last_line: str | None = None if state is None else state.values["last_line"]

    def write(self, frame: MappedFrame) -> None:
        line = kitti_line(frame.world_from_camera)
        num_missing = frame.index - self._num_lines
        self._lines.append(*[self._last_line or line] * num_missing, line)
        self._num_lines, self._last_line = frame.index + 1, line

    def checkpoint(self) -> SinkState:
        values = {"num_bytes": self._lines.sync(), "num_lines": self._num_lines, "last_line": self._last_line}
        return SinkState(values=values)

    def close(self) -> None:
        self._lines.close()


class LivePoses(ReplacingSink):
    """A TUM file without its heading that always has the newest pose of every frame.

    A frame is in the file when `write` returns; a correction replaces the file as a whole, so that whoever reads it
    meets poses of one version.
    """

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        require_writable(path, overwrite=overwrite)
        self._path = path
        self._frames: dict[int, PosedFrame] = {}
        self._version = 0
        with writing(str(path)):
            self._file = GrowingFile(path)

    def write(self, frame: PosedFrame) -> None:
        with writing(str(self._path)):
            self._file.append(f"{_line_of(frame)}\n".encode())
        self._frames[frame.index] = PosedFrame.of(frame)

    def correct(self, correction: Correction) -> None:
        assert correction.version > self._version, "corrections come in order"
        moved = _moved(self._frames, correction)
        content = "".join(f"{_line_of(frame)}\n" for frame in moved.values()).encode()
        with writing(str(self._path)):
            with replacing(self._path) as file:
                file.write(content)
            self._file.close()
            self._file = GrowingFile(self._path, num_bytes=len(content))
        self._frames, self._version = moved, correction.version

    def close(self) -> None:
        self._file.close()


def _line_of(frame: PosedFrame) -> str:
    return tum_line(float(frame.timestamp_s), frame.world_from_camera)


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
