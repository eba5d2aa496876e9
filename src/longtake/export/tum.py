"""The trajectory in a TUM file: `timestamp x y z qx qy qz qw`, a line for each frame."""

from pathlib import Path

from longtake.export.frame import MappedFrame
from longtake.export.lines import LineFile
from longtake.export.sink import Sink, SinkState
from longtake.takes.tum import HEADING, tum_line


class TumSink(Sink):
    """Each frame is in the file when `write` returns."""

    def __init__(self, path: Path, *, overwrite: bool = False, state: SinkState | None = None) -> None:
        num_bytes = None if state is None else state.values["num_bytes"]
        self._lines = LineFile(path, overwrite=overwrite, num_bytes=num_bytes)

    def write(self, frame: MappedFrame) -> None:
        heading = [HEADING] if self._lines.is_empty else []
        self._lines.append(*heading, tum_line(float(frame.timestamp_s), frame.world_from_camera))

    def checkpoint(self) -> SinkState:
        return SinkState(values={"num_bytes": self._lines.sync()})

    def close(self) -> None:
        self._lines.close()
