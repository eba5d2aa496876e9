"""`longtake merge`: two mapped videos that share places as one result."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from longtake.api.locating import verifier_of
from longtake.api.progress import plain_console
from longtake.cli import options
from longtake.cli.progress import counted_steps
from longtake.cli.tables import show
from longtake.exports.frame import MappedFrame
from longtake.pipeline.merging import merge_takes
from longtake.places.known_take import KnownTake
from longtake.takes.take import read_take
from longtake.types import counted

app = options.command_app()


@app.command()
def merge(
    first: Annotated[Path, typer.Argument(help="A folder that map wrote; the result is in its world.")],
    second: Annotated[Path, typer.Argument(help="Another one, of the same model and the same camera.")],
    out: Annotated[Path, typer.Option(help="Folder to write, new or empty.")],
    as_json: options.AsJson = False,
) -> None:
    """Join two mapped videos that share places into one result, in the world of the first; no model runs."""
    old, new = read_take(first), read_take(second)
    console = plain_console(stderr=as_json)

    def with_bar(frames: Iterable[MappedFrame], num_frames: int) -> Iterable[MappedFrame]:
        return counted_steps(frames, "Merging", num_frames, console)

    done = merge_takes(old, new, out, verifier_of(KnownTake.finished(old).network), with_bar)
    frames = counted(sum(done.num_frames), "frame")
    line = f"{frames} in {done.folder}, joined by {counted(done.num_places, 'place')}; {second} begins at frame "
    show(
        asdict(done),
        [f"{line}{done.first_frame_of_second}, its unit is {done.scale:.3g} of {first}'s"],
        as_json=as_json,
    )
