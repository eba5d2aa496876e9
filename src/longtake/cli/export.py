"""`longtake export`: other files from a saved result, with other filters, a known camera, a known scale, upright."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from longtake.api.arguments import one_of
from longtake.api.exporting import UPRIGHT, cloud_settings, export_adjustments
from longtake.api.progress import plain_console
from longtake.cli import options
from longtake.cli.progress import counted_steps
from longtake.cli.tables import show
from longtake.exports.frame import MappedFrame
from longtake.exports.record import ExportRecord
from longtake.exports.reexport import ExportSettings, export_take
from longtake.takes.header import Unit
from longtake.takes.take import read_take
from longtake.types import counted

app = options.command_app()


@app.command()
def export(
    result: Annotated[Path, typer.Argument(help="A folder that map or world wrote.")],
    out: Annotated[Path, typer.Option(help="Folder to write; another than the result's.")],
    formats: Annotated[
        str, typer.Option("--format", help="Of tum, kitti, ply, take, colmap, nerfstudio, glb, rrd.")
    ] = "tum,ply",
    drop_percent: options.DropPercent = 25.0,
    mask: options.Mask = None,
    sky: options.Sky = None,
    voxel: options.Voxel = None,
    max_points: options.MaxPoints = 2_000_000,
    intrinsics: options.Intrinsics = None,
    fixed_camera: options.FixedCamera = False,
    scale_from: options.ScaleFrom = None,
    up: options.Up = "none",
    joined_only: Annotated[
        bool, typer.Option("--joined-only", help="Leave out parts that no loop joined to the first, and lost frames.")
    ] = False,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
) -> None:
    """Write other files from a saved result, with other filters, a known camera or scale, upright; no model runs."""
    settings = ExportSettings(
        formats=tuple(dict.fromkeys(formats.split(","))),
        adjustments=export_adjustments(
            intrinsics, fixed_camera=fixed_camera, scale_from=scale_from, up=one_of("--up", up, UPRIGHT)
        ),
        cloud=cloud_settings(drop_percent=drop_percent, mask=mask, sky=sky, voxel=voxel, max_points=max_points),
        joined_only=joined_only,
        overwrite=overwrite,
    )
    console = plain_console(stderr=as_json)

    def with_bar(frames: Iterable[MappedFrame], num_frames: int) -> Iterable[MappedFrame]:
        return counted_steps(frames, "Exporting", num_frames, console)

    record = export_take(read_take(result), out, settings, with_bar)
    show(asdict(record), export_lines(record), as_json=as_json)


def export_lines(record: ExportRecord) -> Iterator[Text]:
    """Its notes, and a line on what was done."""
    yield from (Text(note, style="yellow") for note in record.notes)
    scale = "" if record.metres_per_unit is None else f", {record.metres_per_unit:.6g} m for each unit"
    upright = "" if record.floor_share is None else f", upright by a floor of {record.floor_share:.0%} of all"
    with_points = record.frames if record.frames_with_points is None else record.frames_with_points
    fewer = "" if with_points == record.frames else f", {with_points} of them with points (others jump, cut or repeat)"
    files = ", ".join(record.files.values())
    frames = f"{counted(record.frames, 'frame')} in {Unit(record.unit).in_words}"
    yield Text(f"{frames}{fewer}{_where(record)}{scale}{upright}: {files}")


def _where(record: ExportRecord) -> str:
    """How many frames do not lie where the first one does, or were left out for that."""
    told = {
        "in parts that are not joined": record.frames_not_joined,
        "lost": record.frames_lost,
        "more left out (not joined or lost)": record.frames_left_out,
    }
    return "".join(f", {number} {what}" for what, number in told.items() if number)
