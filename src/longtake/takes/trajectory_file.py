"""A trajectory file of any format known here, recognised by its first line of numbers."""

from contextlib import closing
from pathlib import Path

from longtake.errors import InputError, SettingError
from longtake.takes import kitti, tum
from longtake.takes.number_rows import count_of, no_rows, read_rows
from longtake.takes.trajectory import Trajectory

_MEANING = f"{tum.NUM_COLUMNS} numbers of a TUM pose or {kitti.NUM_COLUMNS} of a KITTI pose"


def read_trajectory(path: Path, *, times: Path | None = None, fps: float | None = None) -> Trajectory:
    """A TUM or KITTI file; only KITTI's, which have no timestamps, take a file of times or a frame rate."""
    with closing(read_rows(path, _MEANING)) as rows:
        first = next(rows, None)
    if first is None:
        raise no_rows(path, _MEANING)
    num_columns = len(first.numbers)
    if num_columns == kitti.NUM_COLUMNS:
        return kitti.read_kitti(path, times=times, fps=fps)
    if num_columns != tum.NUM_COLUMNS:
        raise InputError(f"{path}, line {first.line}: expected {_MEANING}, but found {count_of(num_columns)}.")
    if times is not None or fps is not None:
        raise SettingError(f"{path} has timestamps of its own; leave out the file of times and the frame rate.")
    return tum.read_tum(path)
