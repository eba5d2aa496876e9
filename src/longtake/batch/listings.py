"""A list of videos as text, CSV or Parquet, row by row; sources are beside it, unless they say where."""

import csv
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

from longtake.batch.row_settings import PATHS, require_known
from longtake.errors import InputError, LongtakeError, MissingExtraError

SOURCE, NAME, SPANS = "source", "name", "spans"
_ENCODING, _DELIMITERS = "utf-8-sig", ",;\t"
Numbered = tuple[int, Mapping[str, object] | InputError]
"""A row as it is written, or why it is none, with its number."""


def content_of_list(path: Path) -> bytes:
    """As it is now: what becomes of the file later is for another batch."""
    with _reading(path):
        return path.read_bytes()


def _text_rows(path: Path, content: bytes) -> Iterator[Numbered]:
    """A source in each line; those that are empty or begin with # are none."""
    with _reading(path), TextIOWrapper(BytesIO(content), encoding=_ENCODING) as lines:
        for number, line in enumerate(lines, start=1):
            if (text := line.strip()) and not text.startswith("#"):
                yield number, {SOURCE: _beside(path, text)}


def _csv_rows(path: Path, content: bytes) -> Iterator[Numbered]:
    """The first line has the names of columns."""
    with _reading(path), TextIOWrapper(BytesIO(content), encoding=_ENCODING, newline="") as file:
        reader = csv.DictReader(file, delimiter=_delimiter(content))
        _require_columns(reader.fieldnames or (), path)
        for row in reader:
            if not any(row.values()):
                continue  # as spreadsheets leave behind their last row
            if None in row or None in row.values():
                yield (
                    reader.line_num,
                    InputError(
                        f"Expected {len(reader.fieldnames or ())} values, as the first line names, but there are more "
                        "or fewer; quote texts that have commas."
                    ),
                )
            else:
                yield reader.line_num, _all_beside(path, row)


def _delimiter(content: bytes) -> str:
    """As spreadsheets write it, by their language; that by which there is a column of sources."""
    first = re.split(rb"[\r\n]", content, maxsplit=1)[0].decode(_ENCODING)
    return next((one for one in _DELIMITERS if SOURCE in next(csv.reader([first], delimiter=one), ())), ",")


def _parquet_rows(path: Path, content: bytes) -> Iterator[Numbered]:
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError as error:
        raise MissingExtraError(
            f"The list {path} needs pyarrow, which is not installed; run: pip install pyarrow, or write it as CSV."
        ) from error
    with _reading_parquet(path):
        table = parquet.ParquetFile(BytesIO(content))
        names, batches = table.schema_arrow.names, table.iter_batches(batch_size=1024)
    _require_columns(names, path)
    for number, row in enumerate(_rows_of(batches, path), start=1):
        yield number, _all_beside(path, row)


def _rows_of(batches: Iterator[Any], path: Path) -> Iterator[Mapping[str, object]]:
    while True:
        with _reading_parquet(path):
            batch = next(batches, None)
            rows = None if batch is None else batch.to_pylist()
        if rows is None:
            return
        yield from rows


@contextmanager
def _reading_parquet(path: Path) -> Iterator[None]:
    """Of a damaged file pyarrow tells by errors of many kinds, wherever in it the damage is."""
    try:
        yield
    except Exception as error:
        raise InputError(f"The list {path} cannot be read as Parquet ({error}); check the file.") from error


LISTS = {".txt": _text_rows, ".list": _text_rows, ".csv": _csv_rows, ".tsv": _csv_rows, ".parquet": _parquet_rows}


def _require_columns(names: Iterable[str], where: object) -> None:
    columns = list(names)
    if SOURCE not in columns:
        raise InputError(
            f"Expected a column 'source' in {where}, but it has {', '.join(map(str, columns)) or 'none'}; name the "
            "videos there."
        )
    if twice := sorted({str(name) for name in columns if columns.count(name) > 1}):
        raise InputError(
            f"Expected each column of {where} once, but {', '.join(twice)} comes more than once; leave one of each."
        )
    try:
        require_known([str(name) for name in columns], also=(SOURCE, NAME, SPANS))
    except LongtakeError as error:
        raise InputError(f"The columns of {where} cannot be used: {error}") from error


def _all_beside(listing: Path, row: Mapping[str, object]) -> Mapping[str, object]:
    """With every path of a row as it is meant."""
    return {**row, **{name: _beside(listing, row[name]) for name in (SOURCE, *PATHS) if name in row}}


def _beside(listing: Path, written: object) -> str:
    """A path as it is written in a list: beside it, unless it says where; nothing stays nothing."""
    source = str(written or "").strip()
    if not source or "://" in source or Path(source).is_absolute():
        return source
    beside = str((listing.parent / source).absolute())
    return beside if is_path(source) or os.path.exists(beside) else source  # noqa: PTH110 - of any text


def is_path(source: str) -> bool:
    """And not an address, a world or a camera."""
    if "://" in source:
        return False
    return ":" not in source or Path(source).is_absolute() or os.path.exists(source)  # noqa: PTH110 - of any text


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """What is wrong with a file, in a sentence."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise InputError(f"The list {path} cannot be read as UTF-8 ({error.reason}); save it as that.") from error
    except (OSError, csv.Error) as error:
        raise InputError(f"The list {path} cannot be read ({error}); check the file.") from error
