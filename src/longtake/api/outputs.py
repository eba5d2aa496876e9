"""Which files `map` writes, by the names of their formats."""

from longtake.api.choices import one_of
from longtake.export.adjust import ExportAdjustments
from longtake.export.cloud import CloudSettings
from longtake.export.reexport import ExportSettings
from longtake.export.take import DepthKind, PixelGrid, TakeSettings
from longtake.pipeline.outputs import Outputs
from longtake.takes.images import ImageFiles

_WHILE_IT_RUNS = ("tum", "ply", "kitti", "depth", "depth-npz", "confidence", "images")
_AFTERWARDS = ("colmap", "nerfstudio", "glb", "rrd")
_ADJUSTED = ("tum", "kitti", "ply", *_AFTERWARDS)
_FORMATS = (*_WHILE_IT_RUNS, *_AFTERWARDS, "session")


def choose_outputs(
    names: tuple[str, ...],
    *,
    pixels: PixelGrid,
    fps: float | None,
    cloud: CloudSettings,
    adjustments: ExportAdjustments,
) -> Outputs:
    """The files of these formats; an export has the images, depth and confidence that it is made of."""
    formats = {one_of("format", name, _FORMATS) for name in names}
    export = _export(formats, adjustments, cloud)
    has_points = export is not None and export.has_points
    needs_depth = export is not None and export.needs_depth
    depth = DepthKind.NPZ if "depth-npz" in formats else DepthKind.PNG if needs_depth or "depth" in formats else None
    take = TakeSettings(
        pixels=pixels,
        images=ImageFiles.JPEG if has_points or "images" in formats else None,
        depth=depth,
        confidence=has_points or "confidence" in formats,
        fps=fps,
    )
    return Outputs(
        take=take,
        cloud=cloud if "ply" in formats else None,
        kitti="kitti" in formats,
        session="session" in formats,
        export=export,
    )


def _export(formats: set[str], adjustments: ExportAdjustments, cloud: CloudSettings) -> ExportSettings | None:
    """What is known only at the end: some formats, and all files of poses and points where they are adjusted."""
    wanted = {"tum", *formats}
    names = [name for name in (_AFTERWARDS if adjustments == ExportAdjustments() else _ADJUSTED) if name in wanted]
    return ExportSettings(formats=tuple(names), cloud=cloud, adjustments=adjustments) if names else None
