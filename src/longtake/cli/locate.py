"""`longtake locate`: where pictures were taken in the world of a mapped video."""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from longtake.api.locating import open_locator
from longtake.api.pictures import as_rgb
from longtake.cli import options
from longtake.cli.program import UNKNOWN_PLACE
from longtake.cli.tables import show, table
from longtake.errors import InputError
from longtake.places.locating import Located, PictureLocator
from longtake.takes.take import Take, read_take
from longtake.video.resize import open_image

app = options.command_app()


@app.command()
def locate(
    result: Annotated[Path, typer.Argument(help="A folder that map wrote, with images and depth.")],
    pictures: Annotated[list[Path], typer.Argument(help="Pictures of the same camera.")],
    device: options.Device = "auto",
    as_json: options.AsJson = False,
) -> None:
    """Say where pictures were taken in the world of a mapped video, by the model that mapped it; each by itself."""
    take = read_take(result)
    locator = open_locator(take, device=device)
    found = {path: _found(locator, path) for path in pictures}
    record = {
        "take": str(result),
        "unit": take.header.unit.value,
        "pictures": [_record(path, one) for path, one in found.items()],
    }
    show(record, _blocks(take, found), as_json=as_json)
    if problems := [one for one in found.values() if isinstance(one, InputError)]:
        raise InputError(" ".join(map(str, problems)))
    if None in found.values():
        sys.exit(UNKNOWN_PLACE)


def _found(locator: PictureLocator, path: Path) -> Located | InputError | None:
    """One that cannot be looked for keeps no other from it."""
    try:
        return locator.locate(as_rgb(open_image(path)))
    except InputError as error:
        return InputError(f"{path} cannot be looked for: {error}")


def _record(path: Path, found: Located | InputError | None) -> dict[str, Any]:
    if isinstance(found, InputError):
        return {"picture": str(path), "is_known": None, "problem": str(found)}
    if found is None:
        return {"picture": str(path), "is_known": False}
    return {
        "picture": str(path),
        "is_known": True,
        **asdict(found),
        "world_from_camera": found.world_from_camera.tolist(),
    }


def _blocks(take: Take, found: dict[Path, Located | InputError | None]) -> Iterator[Table | Text]:
    unit = take.header.unit.in_words
    known = {path: one for path, one in found.items() if isinstance(one, Located)}
    if known:
        yield table(
            ("picture", "x", "y", "z", f"± {unit}", "± degrees", "frame", "points", "confidence"),
            [
                (
                    str(path),
                    *(f"{number:.3f}" for number in one.world_from_camera[:3, 3].tolist()),
                    f"{one.position_deviation:.3f}",
                    f"{one.rotation_deviation_deg:.1f}",
                    str(one.frame),
                    str(one.num_points),
                    f"{one.confidence:.2f}",
                )
                for path, one in known.items()
            ],
        )
    for path in (path for path, one in found.items() if one is None):
        yield Text(f"{take.folder} does not know the place that {path} shows.", style="yellow")
