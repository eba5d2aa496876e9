"""Files that a full disk or a kill leaves whole: grown piece by piece, or replaced all at once."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedWriter
from pathlib import Path
from types import TracebackType

from longtake.errors import InputError

_UNFINISHED = ".unfinished"


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Whatever keeps the block from writing is one sentence about what is written."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{what} cannot be written ({error.strerror or error}); make room there or name another folder."
        ) from error


class GrowingFile:
    """Holds whole pieces only: one that the disk takes just a part of is cut off again."""

    def __init__(self, path: Path, *, num_bytes: int = 0) -> None:
        """A new file; or the first so many bytes of one, which is cut off after them."""
        if num_bytes and (found := path.stat().st_size) < num_bytes:
            raise InputError(f"Expected {num_bytes} bytes to go on after in {path}, but it has {found}; start again.")
        self.num_bytes = num_bytes
        self._file = path.open("r+b" if num_bytes else "wb", buffering=0)
        self._cut()

    def __enter__(self) -> "GrowingFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def append(self, piece: bytes) -> None:
        """Unbuffered: the piece leaves at once, and no rest of it is left to a later close."""
        try:
            self._write(piece)
        except OSError:
            self._cut()
            raise
        self.num_bytes += len(piece)

    def sync(self) -> None:
        """Return when all pieces are on the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def _write(self, piece: bytes) -> None:
        rest = memoryview(piece)
        while rest:
            rest = rest[self._file.write(rest) :]

    def _cut(self) -> None:
        self._file.truncate(self.num_bytes)
        self._file.seek(self.num_bytes)


class LineFile:
    """A text file of whole lines, flushed as they come: a new one, or one that goes on after so many bytes."""

    def __init__(self, path: Path, *, overwrite: bool = False, num_bytes: int | None = None) -> None:
        if num_bytes is None:
            require_writable(path, overwrite=overwrite)
        self._path = path
        with writing(str(path)):
            self._file = GrowingFile(path, num_bytes=num_bytes or 0)

    @property
    def is_empty(self) -> bool:
        return self._file.num_bytes == 0

    def append(self, *lines: str) -> None:
        """All of these lines, or none."""
        with writing(str(self._path)):
            self._file.append("".join(f"{line}\n" for line in lines).encode())

    def sync(self) -> int:
        """Return, when all lines are on the disk, how many bytes they have."""
        with writing(str(self._path)):
            self._file.sync()
            sync_path(self._path.parent)
        return self._file.num_bytes

    def close(self) -> None:
        self._file.close()


@contextmanager
def replacing(path: Path) -> Iterator[BufferedWriter]:
    """A file to write into that takes this path when the block ends; if it fails, what was there before stays."""
    unfinished = path.with_name(path.name + _UNFINISHED)
    try:
        with unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    sync_path(path.parent)


def replace_file(path: Path, content: bytes) -> None:
    """Put a whole file in place of what was there; whatever keeps it from being written is one sentence."""
    with writing(str(path)), replacing(path) as file:
        file.write(content)


def sync_path(path: Path) -> None:
    """Return when a file's content, or a folder's list of names, is on the disk."""
    if path.is_dir() and os.name != "posix":
        return  # folders cannot be opened there
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_writable(path: Path, *, overwrite: bool) -> None:
    """Refuse, before there is anything to write, a path that is taken or cannot be written."""
    with writing(str(path)):
        if path.is_dir():
            raise InputError(f"{path} is a folder; name a file.")
        if path.exists() and not overwrite:
            raise InputError(f"{path} exists already; name another, or replace it with --overwrite (overwrite=True).")
        path.parent.mkdir(parents=True, exist_ok=True)
        probe = path.with_name(path.name + _UNFINISHED)
        probe.touch()
        probe.unlink()
