"""`longtake export`: other files from a saved result, with other filters, a known camera, a known scale, upright."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from longtake.cli.options import one_of
from longtake.errors import InputError, SettingError
from longtake.export.adjust import Adjustment, Wishes, adjusted_frames, plan_adjustment
from longtake.export.camera_files import known_camera
from longtake.export.cloud import CloudSettings
from longtake.export.colmap import ColmapSink
from longtake.export.glb import GlbSink
from longtake.export.kitti import KittiSink
from longtake.export.masks import MaskFolder
from longtake.export.nerfstudio import NerfstudioSink
from longtake.export.ply import PlySink
from longtake.export.point_filter import PointFilter
from longtake.export.report.page import CLOUD_NAME
from longtake.export.rerun import RerunSink
from longtake.export.saved import read_result
from longtake.export.scale import parse_scale
from longtake.export.sink import OpenSink, Sink
from longtake.export.sky import OnnxSky
from longtake.export.take import DepthKind, TakeSettings, TakeSink
from longtake.export.tee import Tee
from longtake.export.tum import TumSink
from longtake.pipeline.video_map import KITTI_NAME
from longtake.takes.durable import replacing, require_writable, writing
from longtake.takes.header import POSES_NAME, TakeHeader, Unit, is_take
from longtake.takes.images import ImageFiles
from longtake.takes.take import Take

RECORD_NAME = "export.json"
NAMES = {
    "tum": POSES_NAME,
    "kitti": KITTI_NAME,
    "ply": CLOUD_NAME,
    "take": "take",
    "colmap": "colmap",
    "nerfstudio": "nerfstudio",
    "glb": "scene.glb",
    "rrd": "rerun",
}
"""Formats, and what they are called in the folder."""

_OF_POINTS = ("ply", "colmap", "nerfstudio", "glb", "rrd")
_OF_IMAGES = ("colmap", "nerfstudio")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What the command line says, word by word."""

    result: Path
    out: Path
    formats: str
    drop_percent: float
    mask: Path | None
    sky: Path | None
    voxel: float | None
    max_points: int
    intrinsics: str | None
    fixed_camera: bool
    scale_from: str | None
    up: str
    overwrite: bool


def run_export(options: ExportOptions, *, as_json: bool) -> None:
    """One pass over the take for what must be known of the whole, where anything must, and one to write."""
    formats = [one_of("--format", name, list(NAMES)) for name in dict.fromkeys(options.formats.split(","))]
    wishes, cloud = _wishes(options), _cloud(options)
    take = read_result(options.result)
    _require_room(options.out)
    _require_content(take, formats, needs_images=options.sky is not None)
    adjustment = plan_adjustment(take, wishes)
    report_path = options.out / RECORD_NAME
    require_writable(report_path, overwrite=options.overwrite)
    opened = _sinks(options, take.header, adjustment, cloud)
    console = Console(stderr=as_json)
    with Tee({name: opened[name] for name in formats}) as sinks:
        frames = adjusted_frames(take, adjustment)
        for frame in track(frames, "Exporting", total=len(take), console=console, transient=True):
            sinks.write(frame)
    report = _report(options, take, adjustment, formats)
    with writing(str(report_path)), replacing(report_path) as file:
        file.write(json.dumps(report, indent=1).encode())
    _tell(report, as_json=as_json)


def _wishes(options: ExportOptions) -> Wishes:
    return Wishes(
        camera=None if options.intrinsics is None else known_camera(options.intrinsics),
        fixed_camera=options.fixed_camera,
        length=None if options.scale_from is None else parse_scale(options.scale_from),
        upright=one_of("--up", options.up, ("auto", "none")) == "auto",
    )


def _cloud(options: ExportOptions) -> CloudSettings:
    points = PointFilter(
        drop_percent=options.drop_percent,
        masks=None if options.mask is None else MaskFolder(options.mask),
        sky=None if options.sky is None else OnnxSky(options.sky),
    )
    return CloudSettings(points=points, voxel=options.voxel, max_points=options.max_points)


def _require_room(out: Path) -> None:
    if is_take(out):
        raise SettingError(f"{out} is a take, whose own files would be replaced; name another folder with --out.")


def _require_content(take: Take, formats: list[str], *, needs_images: bool) -> None:
    """Refuse what cannot be made of a take."""
    points = [name for name in formats if name in _OF_POINTS]
    if points and take.header.depth is None:
        raise InputError(
            f"Expected depth in {take.folder}, of which {points[0]} is made, but it has none; map the video again "
            "with --format depth."
        )
    if take.header.images is None and (needs_images or any(name in _OF_IMAGES for name in formats)):
        raise InputError(
            f"Expected images in {take.folder}, but it has none; map the video again with --format images."
        )


def _sinks(
    options: ExportOptions, header: TakeHeader, adjustment: Adjustment, cloud: CloudSettings
) -> Mapping[str, OpenSink]:
    overwrite, unit = options.overwrite, adjustment.unit
    paths = {name: options.out / file for name, file in NAMES.items()}
    images = ImageFiles.PNG if header.images is ImageFiles.PNG else ImageFiles.JPEG
    make: dict[str, Callable[[], Sink]] = {
        "tum": lambda: TumSink(paths["tum"], overwrite=overwrite),
        "kitti": lambda: KittiSink(paths["kitti"], overwrite=overwrite),
        "ply": lambda: PlySink(paths["ply"], cloud, unit=unit, overwrite=overwrite),
        "take": lambda: TakeSink(paths["take"], _take_settings(header, adjustment), overwrite=overwrite),
        "colmap": lambda: ColmapSink(paths["colmap"], cloud, images=images, overwrite=overwrite),
        "nerfstudio": lambda: NerfstudioSink(paths["nerfstudio"], cloud, unit=unit, images=images, overwrite=overwrite),
        "glb": lambda: GlbSink(paths["glb"], cloud, unit=unit, overwrite=overwrite),
        "rrd": lambda: RerunSink(paths["rrd"], cloud, overwrite=overwrite),
    }
    return {name: _always_new(make_one) for name, make_one in make.items()}


def _always_new(make: Callable[[], Sink]) -> OpenSink:
    """An export is made in one go, and never from a checkpoint."""
    return lambda _: make()


def _take_settings(header: TakeHeader, adjustment: Adjustment) -> TakeSettings:
    """As the take is; a step of 16-bit depth grows with what it measures, so that the values stay."""
    step = None if header.depth is None else header.depth.step
    kind = DepthKind.NPZ if step is None else DepthKind.PNG
    return TakeSettings(
        unit=adjustment.unit,
        fps=header.fps,
        images=ImageFiles.PNG if header.images is ImageFiles.VIDEO else header.images,
        depth=None if header.depth is None else kind,
        depth_step=None if step is None else step * (adjustment.metres_per_unit or 1.0),
        confidence=header.confidence,
    )


def _report(options: ExportOptions, take: Take, adjustment: Adjustment, formats: list[str]) -> dict[str, Any]:
    camera, floor = adjustment.camera, adjustment.floor
    numbers = None if camera is None else [camera.focal_x, camera.focal_y, camera.center_x, camera.center_y]
    return {
        "result": str(options.result),
        "frames": len(take),
        "files": {name: str(options.out / NAMES[name]) for name in formats},
        "unit": adjustment.unit.value,
        "scale_from": options.scale_from,
        "metres_per_unit": adjustment.metres_per_unit,
        "intrinsics": numbers,
        "fixed_camera": options.fixed_camera,
        "up": options.up,
        "floor_share": None if floor is None else floor.share,
        "exported_from_saved": adjustment.exported_from_saved.matrix.tolist(),
        "notes": _notes(options, take, adjustment, formats),
    }


def _notes(options: ExportOptions, take: Take, adjustment: Adjustment, formats: list[str]) -> list[str]:
    notes = []
    if take.header.images is None and any(name in _OF_POINTS for name in formats):
        notes.append("The result has no images, so points are grey; map with --format images for colours.")
    if options.up == "auto" and adjustment.floor is None:
        notes.append("No floor was found convincingly, so the world is left as it is.")
    if adjustment.unit is Unit.MODEL:
        notes.append("Lengths are in the model's own unit; --scale-from makes them metres.")
    return notes


def _tell(report: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report))
        return
    console = Console(highlight=False)
    for note in report["notes"]:
        console.print(note, style="yellow", soft_wrap=True)
    scale = "" if report["metres_per_unit"] is None else f", {report['metres_per_unit']:.6g} m for each unit"
    upright = "" if report["floor_share"] is None else f", upright by a floor of {report['floor_share']:.0%} of all"
    files = ", ".join(report["files"].values())
    console.print(f"{report['frames']} frames in {report['unit']}{scale}{upright}: {files}", soft_wrap=True)
