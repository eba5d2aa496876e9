"""The trajectory in a KITTI file: the 12 numbers of a 3×4 pose, row by row, line n for frame n."""

from pathlib import Path

from longtake.export.frame import MappedFrame
from longtake.export.lines import LineFile
from longtake.export.sink import Sink, SinkState
from longtake.takes.kitti import kitti_line


class KittiSink(Sink):
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
