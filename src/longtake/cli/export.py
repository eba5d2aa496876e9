"""`longtake export`: other files from a saved result, with other filters, a known camera, a known scale, upright."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track

from longtake.api.exporting import cloud_settings, export_adjustments
from longtake.cli.options import one_of
from longtake.export.adjust import ExportAdjustments
from longtake.export.cloud import CloudSettings
from longtake.export.frame import MappedFrame
from longtake.export.names import NAMES
from longtake.export.record import ExportRecord
from longtake.export.reexport import ExportSettings, export_take
from longtake.export.saved import read_result


@dataclass(frozen=True, slots=True, kw_only=True)
class PointOptions:
    """Which pixels become points, word by word."""

    drop_percent: float
    mask: Path | None
    sky: Path | None
    voxel: float | None
    max_points: int

    def parsed(self) -> CloudSettings:
        return cloud_settings(
            drop_percent=self.drop_percent,
            mask=self.mask,
            sky=self.sky,
            voxel=self.voxel,
            max_points=self.max_points,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdjustmentOptions:
    """What is known, and what is wanted, word by word."""

    intrinsics: str | None
    fixed_camera: bool
    scale_from: str | None
    up: str

    def parsed(self) -> ExportAdjustments:
        up = one_of("--up", self.up, ("auto", "none"))
        return export_adjustments(self.intrinsics, fixed_camera=self.fixed_camera, scale_from=self.scale_from, up=up)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What the command line says, word by word."""

    result: Path
    out: Path
    formats: str
    points: PointOptions
    adjustments: AdjustmentOptions
    overwrite: bool


def run_export(options: ExportOptions, *, as_json: bool) -> None:
    """Parse, export with a bar, and tell what came of it."""
    formats = [one_of("--format", name, list(NAMES)) for name in dict.fromkeys(options.formats.split(","))]
    settings = ExportSettings(
        formats=tuple(formats),
        adjustments=options.adjustments.parsed(),
        cloud=options.points.parsed(),
        overwrite=options.overwrite,
    )
    console = Console(stderr=as_json)

    def told(frames: Iterable[MappedFrame], num_frames: int) -> Iterable[MappedFrame]:
        return track(frames, "Exporting", total=num_frames, console=console, transient=True)

    record = export_take(read_result(options.result), options.out, settings, told)
    if as_json:
        print(json.dumps(asdict(record)))
    else:
        tell_record(record, Console(highlight=False))


def tell_record(record: ExportRecord, console: Console) -> None:
    """Its notes, and a line on what was done."""
    for note in record.notes:
        console.print(note, style="yellow", soft_wrap=True)
    scale = "" if record.metres_per_unit is None else f", {record.metres_per_unit:.6g} m for each unit"
    upright = "" if record.floor_share is None else f", upright by a floor of {record.floor_share:.0%} of all"
    files = ", ".join(record.files.values())
    console.print(f"{record.frames} frames in {record.unit}{scale}{upright}: {files}", soft_wrap=True)
