"""A list of videos as text, CSV or Parquet, row by row; sources are beside it, unless they say where."""

import csv
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from longtake.batch.row_settings import settings_of
from longtake.errors import InputError, LongtakeError, MissingExtraError

SOURCE, NAME, SPANS = "source", "name", "spans"
Numbered = tuple[int, Mapping[str, object] | InputError]
"""A row as it is written, or why it is none, with its number."""


def _text_rows(path: Path) -> Iterator[Numbered]:
    """A source in each line; those that are empty or begin with # are none."""
    with _reading(path), path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if (text := line.strip()) and not text.startswith("#"):
                yield number, {SOURCE: _beside(path, text)}


def _csv_rows(path: Path) -> Iterator[Numbered]:
    """The first line has the names of columns."""
    with _reading(path), path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        _require_columns(reader.fieldnames or (), path)
        for row in reader:
            if None in row or None in row.values():
                yield (
                    reader.line_num,
                    InputError(
                        f"Expected {len(reader.fieldnames or ())} values, as the first line names, but there are more "
                        "or fewer; quote texts that have commas."
                    ),
                )
            else:
                yield reader.line_num, {**row, SOURCE: _beside(path, row[SOURCE])}


def _parquet_rows(path: Path) -> Iterator[Numbered]:
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError as error:
        raise MissingExtraError(
            f"The list {path} needs pyarrow, which is not installed; run: pip install pyarrow, or write it as CSV."
        ) from error
    try:
        table = parquet.ParquetFile(path)
    except Exception as error:  # pyarrow's own kinds
        raise InputError(f"The list {path} cannot be read as Parquet ({error}); check the file.") from error
    _require_columns(table.schema_arrow.names, path)
    rows = (row for batch in table.iter_batches(batch_size=1024) for row in batch.to_pylist())
    for number, row in enumerate(rows, start=1):
        yield number, {**row, SOURCE: _beside(path, row[SOURCE])}


LISTS = {".txt": _text_rows, ".list": _text_rows, ".csv": _csv_rows, ".parquet": _parquet_rows}


def _require_columns(names: Iterable[str], where: object) -> None:
    columns = list(names)
    if SOURCE not in columns:
        raise InputError(
            f"Expected a column 'source' in {where}, but it has {', '.join(map(str, columns)) or 'none'}; name the "
            "videos there."
        )
    try:
        settings_of(dict.fromkeys(set(columns) - {SOURCE, NAME, SPANS}))
    except LongtakeError as error:
        raise InputError(f"The columns of {where} cannot be used: {error}") from error


def _beside(listing: Path, written: object) -> str:
    """A path as it is written in a list: beside it, unless it says where; nothing stays nothing."""
    source = str(written or "").strip()
    if not source or not is_path(source) or Path(source).is_absolute():
        return source
    return str(listing.parent / source)


def is_path(source: str) -> bool:
    """And not an address, a world or a camera."""
    return "://" not in source and (":" not in source or Path(source).exists())


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """What is wrong with a file, in a sentence."""
    try:
        yield
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"The list {path} cannot be read ({error}); check the file.") from error
