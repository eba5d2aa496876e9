"""`longtake export`: other files from a saved result, with other filters, a known camera, a known scale, upright."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from longtake.api.arguments import one_of
from longtake.api.exporting import UPRIGHT, cloud_settings, export_adjustments
from longtake.cli.shared_options import (
    AsJson,
    DropPercent,
    FixedCamera,
    Intrinsics,
    Mask,
    MaxPoints,
    Overwrite,
    ScaleFrom,
    Sky,
    Up,
    Voxel,
    command_app,
)
from longtake.exports.frame import MappedFrame
from longtake.exports.record import ExportRecord
from longtake.exports.reexport import ExportSettings, export_take
from longtake.exports.saved import read_result

app = command_app()


@app.command()
def export(
    result: Annotated[Path, typer.Argument(help="A folder that map wrote.")],
    out: Annotated[Path, typer.Option(help="Folder to write; another than the result's.")],
    formats: Annotated[
        str, typer.Option("--format", help="Of tum, kitti, ply, take, colmap, nerfstudio, glb, rrd.")
    ] = "tum,ply",
    drop_percent: DropPercent = 25.0,
    mask: Mask = None,
    sky: Sky = None,
    voxel: Voxel = None,
    max_points: MaxPoints = 2_000_000,
    intrinsics: Intrinsics = None,
    fixed_camera: FixedCamera = False,
    scale_from: ScaleFrom = None,
    up: Up = "none",
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write other files from a saved result, with other filters, a known camera or scale, upright; no model runs."""
    settings = ExportSettings(
        formats=tuple(dict.fromkeys(formats.split(","))),
        adjustments=export_adjustments(
            intrinsics, fixed_camera=fixed_camera, scale_from=scale_from, up=one_of("--up", up, UPRIGHT)
        ),
        cloud=cloud_settings(drop_percent=drop_percent, mask=mask, sky=sky, voxel=voxel, max_points=max_points),
        overwrite=overwrite,
    )
    console = Console(stderr=as_json)

    def with_bar(frames: Iterable[MappedFrame], num_frames: int) -> Iterable[MappedFrame]:
        return track(frames, "Exporting", total=num_frames, console=console, transient=True)

    record = export_take(read_result(result), out, settings, with_bar)
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
