"""Rows of numbers in a text file, with the line each stands in, and one sentence for whatever else a file may hold."""

import math
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from longtake.errors import InputError

_PROBE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Row:
    """The numbers of one line, which is counted from 1."""

    line: int
    numbers: tuple[float, ...]


def read_table(path: Path, num_columns: int, meaning: str) -> list[Row]:
    """All rows of a file, one at least, each with so many numbers; `meaning` says what they are."""
    rows = list(read_rows(path, meaning))
    if not rows:
        raise no_rows(path, meaning)
    for row in rows:
        if (found := len(row.numbers)) != num_columns:
            raise InputError(
                f"{path}, line {row.line}: expected {count_of(num_columns)} ({meaning}), but found {count_of(found)}."
            )
    return rows


def read_rows(path: Path, meaning: str) -> Generator[Row, None, None]:
    """The finite numbers of each line that has any, separated by spaces or tabs.

    What follows a `#`, blank lines, a byte order mark and any kind of line end are skipped.
    """
    _refuse_binary(path, meaning)
    try:
        with path.open(encoding="utf-8-sig") as file:
            for line, text in enumerate(file, start=1):
                if words := text.partition("#")[0].split():
                    yield Row(line, tuple(_number(word, path, line, meaning) for word in words))
    except UnicodeDecodeError as error:
        raise _binary(path, meaning) from error


def no_rows(path: Path, meaning: str) -> InputError:
    """The sentence for a file without numbers."""
    return InputError(f"{path} holds no numbers; expected lines of {meaning}.")


def not_increasing(path: Path, earlier: Row, later: Row) -> InputError:
    """The sentence for a timestamp, which comes first in its line, that is not after the one before."""
    return InputError(
        f"{path}, line {later.line}: timestamps must increase, but {later.numbers[0]!r} s follows "
        f"{earlier.numbers[0]!r} s of line {earlier.line}."
    )


def count_of(num_numbers: int) -> str:
    """So many numbers, in words."""
    return "1 number" if num_numbers == 1 else f"{num_numbers} numbers"


def _refuse_binary(path: Path, meaning: str) -> None:
    try:
        if path.is_fifo():
            raise InputError(f"{path} is a pipe, which can be read only once; give a text file.")
        with path.open("rb") as file:
            head = file.read(_PROBE_BYTES)
    except FileNotFoundError as error:
        raise InputError(f"There is no file {path}; check the path.") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); give a text file.") from error
    if b"\0" in head:
        raise _binary(path, meaning)


def _binary(path: Path, meaning: str) -> InputError:
    return InputError(
        f"Expected lines of {meaning} in {path}, but it is no text file in UTF-8; in place of a video give the folder "
        "that longtake map makes of it."
    )


def _number(word: str, path: Path, line: int, meaning: str) -> float:
    try:
        number = float(word.replace("_", "?"))  # Python alone would read 1_0 as ten
    except ValueError as error:
        raise InputError(
            f"{path}, line {line}: expected numbers separated by spaces ({meaning}), but '{word[:40]}' is none."
        ) from error
    if not math.isfinite(number):
        raise InputError(f"{path}, line {line}: expected finite numbers ({meaning}), but '{word[:40]}' is not.")
    return number
