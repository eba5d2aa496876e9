"""Other files from a mapped video, in the words of `longtake export`."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from longtake.api.arguments import checked_arguments, one_of
from longtake.api.progress import progress_bar
from longtake.exports.adjust import ExportAdjustments
from longtake.exports.cameras import known_camera
from longtake.exports.cloud import CloudSettings
from longtake.exports.frame import MappedFrame
from longtake.exports.masks import MaskFolder
from longtake.exports.point_filter import PointFilter
from longtake.exports.record import ExportRecord
from longtake.exports.reexport import ExportSettings, export_take
from longtake.exports.scale import parse_scale
from longtake.exports.sky import OnnxSky
from longtake.takes.take import Take, read_take

UPRIGHT = ("auto", "none")
"""Whether the floor becomes level."""


@checked_arguments
def export(
    result: str | Path | Take,
    out: str | Path,
    format: str | Sequence[str] = "tum,ply",
    *,
    drop_percent: float = 25.0,
    mask: str | Path | None = None,
    sky: str | Path | None = None,
    voxel: float | None = None,
    max_points: int = 2_000_000,
    intrinsics: str | None = None,
    fixed_camera: bool = False,
    scale_from: str | None = None,
    up: str = "none",
    joined_only: bool = False,
    overwrite: bool = False,
) -> ExportRecord:
    """Write other files from a mapped video into the folder `out`; no model runs.

        record = longtake.export("mapped", "for-colmap", format="colmap", up="auto")
        print(record.files, record.unit)

    `format` names some of tum, kitti, ply, take, colmap, nerfstudio, glb, rrd. The other keywords are those of
    `longtake export`: which pixels become points (`drop_percent`, `mask`, `sky`, `voxel`, `max_points`), a known camera
    (`intrinsics`, `fixed_camera`), a known length (`scale_from="distance:0,57=2.4m"`), `up="auto"` for a level floor,
    `joined_only=True` without frames of parts that no loop joined to the first, and without lost ones.
    """
    settings = ExportSettings(
        formats=format_names(format),
        cloud=cloud_settings(drop_percent=drop_percent, mask=mask, sky=sky, voxel=voxel, max_points=max_points),
        adjustments=export_adjustments(intrinsics, fixed_camera=fixed_camera, scale_from=scale_from, up=up),
        joined_only=joined_only,
        overwrite=overwrite,
    )
    take = result if isinstance(result, Take) else read_take(Path(result))
    return export_take(take, Path(out), settings, with_bar)


def format_names(format: str | Sequence[str]) -> tuple[str, ...]:
    """Names from "colmap,ply" or from a list, each once."""
    return tuple(dict.fromkeys(format.split(",") if isinstance(format, str) else format))


def cloud_settings(
    *, drop_percent: float, mask: str | Path | None, sky: str | Path | None, voxel: float | None, max_points: int
) -> CloudSettings:
    """Which pixels become points."""
    points = PointFilter(
        drop_percent=drop_percent,
        masks=None if mask is None else MaskFolder(Path(mask)),
        sky=None if sky is None else OnnxSky(Path(sky)),
    )
    return CloudSettings(points=points, voxel=voxel, max_points=max_points)


def export_adjustments(
    intrinsics: str | None, *, fixed_camera: bool, scale_from: str | None, up: str
) -> ExportAdjustments:
    """What is known of camera and lengths, and whether the floor becomes level."""
    return ExportAdjustments(
        camera=None if intrinsics is None else known_camera(intrinsics),
        fixed_camera=fixed_camera,
        length=None if scale_from is None else parse_scale(scale_from),
        upright=one_of("up", up, UPRIGHT) == "auto",
    )


def with_bar(frames: Iterable[MappedFrame], num_frames: int) -> Iterator[MappedFrame]:
    with progress_bar("Exporting", num_frames) as show_done:
        for done, frame in enumerate(frames, start=1):
            yield frame
            show_done(done)
