"""A take on disk as programs use it: trajectory, pixels, points, and what else its folder holds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8

from longtake.api.arguments import checked_arguments
from longtake.api.exporting import export
from longtake.errors import InputError
from longtake.exports.cloud import CloudSettings, GrowingCloud
from longtake.exports.ply import CLOUD_NAME
from longtake.exports.report.folder import SUMMARY_NAME
from longtake.exports.report.ply_points import read_some_points
from longtake.exports.report.truth import TRUTH_NAME, Truth
from longtake.exports.saved import saved_frames
from longtake.takes import take as takes
from longtake.takes.fields import JsonObject, parse_file
from longtake.types import counted

_MOST_POINTS = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PointCloud:
    """Points in the world."""

    points: Float32[np.ndarray, "points 3"]
    colours: UInt8[np.ndarray, "points 3"]

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        return f"PointCloud({counted(len(self), 'point')})"


class Take(takes.Take):
    """A video's frames on disk; all but poses and cameras is read when it is asked for.

        take = longtake.open_take("mapped")
        print(take.trajectory.positions, take.intrinsics[0])
        depth, image = take.depth(0), take.image(0)

    `depth`, `confidence`, `image`, `images` and `cloud` refuse in one sentence what the folder does not have;
    `summary`, `truth` and `questions` are None there.
    """

    __slots__ = ()

    export = export

    @checked_arguments
    def cloud(self, max_points: int = _MOST_POINTS) -> PointCloud:
        """The points that `map` wrote, or else those of depth and poses; no more than so many, evenly chosen."""
        path = self.folder / CLOUD_NAME
        if path.exists():
            written = read_some_points(path, max_points)
            return PointCloud(points=written.points, colours=written.colours)
        if self.header.depth is None:
            raise InputError(
                f"The take {self.folder} has neither {CLOUD_NAME} nor depth to make points of; map it again."
            )
        growing = GrowingCloud(CloudSettings(max_points=max_points))
        for frame in saved_frames(self):
            growing.add(frame)
        made = growing.cloud()
        return PointCloud(points=made.points.astype(np.float32), colours=made.colours)

    @property
    def summary(self) -> dict[str, Any] | None:
        """What `map` says of its run: frames, keyframes, seconds, memory, settings."""
        summary = parse_file(self.folder / SUMMARY_NAME, JsonObject.parse)
        return None if summary is None else dict(summary.fields)

    @property
    def truth(self) -> Truth | None:
        """The true trajectory in this take's world, and how far the result is from it, where it was compared."""
        return parse_file(self.folder / TRUTH_NAME, Truth.parse)


@checked_arguments
def open_take(folder: str | Path) -> Take:
    """The take in a folder that `map`, `world` or an export wrote.

    take = longtake.open_take("mapped")
    print(take, take.summary["num_frames"])
    """
    take = takes.read_take(Path(folder))
    return Take(
        folder=take.folder,
        header=take.header,
        trajectory=take.trajectory,
        intrinsics=take.intrinsics,
        records=take.records,
        corrections=take.corrections,
    )
