"""Figures of a measurement, for people as lines and tables or for programs as JSON."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from longtake.api.progress import plain_console
from longtake.errors import InputError

_WIDEST = 10_000


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> Table:
    """The first column on the left, numbers on the right; cells of a row may be fewer than headings."""
    shown = Text(title, style="bold") if title else None
    drawn = Table(box=None, pad_edge=False, title=shown, title_justify="left", title_style="")
    for place, heading in enumerate(headings):
        drawn.add_column(heading, justify="right" if place else "left", no_wrap=True)
    for row in rows:
        drawn.add_row(*map(Text, row))
    return drawn


def show(record: object, blocks: Iterable[str | Text | Table], *, as_json: bool) -> None:
    """Print the record as JSON, or else the blocks; no cell is cut where the terminal is narrow, but some may fold."""
    if as_json:
        print(json.dumps(record, indent=1, allow_nan=False))
        return
    console = plain_console(stderr=False)
    for block in blocks:
        if isinstance(block, Table):
            if all(column.no_wrap for column in block.columns):
                needed = Measurement.get(console, console.options.update(width=_WIDEST), block).maximum
                console.width = max(console.width, needed)
            console.print(block)
        else:
            console.print(block, soft_wrap=True)


def write_json(path: Path, record: object) -> None:
    """Into a file of its own."""
    path.write_text(json.dumps(record, indent=1) + "\n")


def require_folder(path: Path | None) -> None:
    """Of a file that will be written: refused before the work, not after it."""
    if path is not None and not path.parent.is_dir():
        raise InputError(f"There is no folder {path.parent} to write {path.name} into; make it first.")
