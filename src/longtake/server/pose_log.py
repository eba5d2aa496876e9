"""The poses of a session on disk, row by row as they become known; a frame that moved gets another row.

Where it went once it was final, corrections say.
"""

import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path

import torch

from longtake.errors import SavedSessionError
from longtake.server.results import pose_numbers
from longtake.spatial.pose import quaternion_from_matrix
from longtake.takes.atomic_files import GrowingFile, Grown, writing
from longtake.takes.corrections import Corrections
from longtake.takes.tum import as_written
from longtake.types import Geometry

_ROW = struct.Struct("<qd16f")


class PoseLog:
    """Rows are index, time and the 16 numbers of `world_from_camera`, row by row."""

    def __init__(self, path: Path, kept: Grown) -> None:
        """Goes on after what is kept of an earlier file."""
        self._path = path
        with writing(str(path)):
            self._file = GrowingFile(path, kept=kept if kept.num_bytes else None)

    @property
    def grown(self) -> Grown:
        return self._file.grown

    def add(self, geometry: Geometry) -> None:
        """All poses that a step made known, corrected ones first."""
        rows = [] if geometry.moved is None else list(_rows(geometry.moved.geometry))
        with writing(str(self._path)):
            self._file.append(b"".join([*rows, *_rows(geometry)]))

    def sync(self) -> None:
        """Return when all of them are on the disk."""
        with writing(str(self._path)):
            self._file.sync()

    def close(self) -> None:
        self._file.close()


def _rows(geometry: Geometry) -> Iterator[bytes]:
    poses = geometry.world_from_camera.detach().float().cpu()
    for index, time_s, pose in zip(geometry.frame_index, geometry.timestamp_s, poses, strict=True):
        yield _ROW.pack(index, time_s, *pose_numbers(pose))


def tum_lines(path: Path, corrections: Corrections | None = None, kept: Grown | None = None) -> str:
    """The newest pose of each frame, in the format of TUM: time, centre, quaternion.

    `kept` is how much of the file counts, and must be as it was; without it, all that there is.
    """
    content = path.read_bytes() if path.is_file() else b""
    if kept is not None:
        content = content[: kept.num_bytes]
        if len(content) < kept.num_bytes or kept.sha256 not in (None, hashlib.sha256(content).hexdigest()):
            raise SavedSessionError(
                "The poses of this session were damaged or changed on the server's disk; open another session and send "
                "its frames again."
            )
    newest: dict[int, tuple[float, ...]] = {}
    whole = len(content) // _ROW.size * _ROW.size
    for index, *numbers in _ROW.iter_unpack(content[:whole]):
        newest[index] = tuple(numbers)
    return "".join(_tum_line(index, numbers, corrections) for index, numbers in sorted(newest.items()))


def _tum_line(index: int, numbers: tuple[float, ...], corrections: Corrections | None) -> str:
    time_s, *matrix = numbers
    pose = torch.tensor(matrix, dtype=torch.float64).reshape(4, 4)
    if corrections is not None and corrections.at(index) is not None:
        pose = as_written(corrections.of_pose(index, as_written(pose)))
    values = [*pose[:3, 3].tolist(), *quaternion_from_matrix(pose[:3, :3]).tolist()]
    return " ".join([f"{time_s:.6f}", *(f"{value:.9g}" for value in values)]) + "\n"
