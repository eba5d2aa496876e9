"""Files and folders that a full disk or a kill leaves whole: grown piece by piece, or replaced all at once."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from types import TracebackType

from longtake.errors import ChangedFileError, InputError, StorageError
from longtake.takes.fields import require_file

UNFINISHED = ".unfinished"
"""Ends the name of a file until it takes its own."""
_READ_AT_ONCE = 1 << 20


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Whatever keeps the block from writing is one sentence about what is written."""
    try:
        yield
    except OSError as error:
        fault = f"{what} cannot be written ({error.strerror or error})"
        raise StorageError(f"{fault}; make room there or name another folder.", fault=fault) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """How far a file has grown, and what it holds up to there."""

    num_bytes: int
    sha256: str | None = None
    """Of those bytes; None where they may be any."""


def changed_file(fault: str) -> ChangedFileError:
    """Of a file that a broken run cannot go on after."""
    return ChangedFileError(f"{fault}; start again with --overwrite (overwrite=True).", fault=fault)


def require_unchanged(path: Path, expected: str | None, found: str) -> None:
    """Refuse a file whose kept part has another digest than expected, where one is."""
    if expected not in (None, found):
        raise changed_file(f"Expected {path} as it was at the checkpoint, but it was changed")


class GrowingFile:
    """Holds whole pieces only: one that the disk takes just a part of is cut off again."""

    def __init__(self, path: Path, *, kept: Grown | None = None) -> None:
        """A new file; or what is kept of one, which is cut off after it."""
        require_file(path)
        self.num_bytes = 0 if kept is None else kept.num_bytes
        self._digest = _digest_of_first(path, self.num_bytes)
        if kept is not None and self.num_bytes:
            require_unchanged(path, kept.sha256, self._digest.hexdigest())
        self._file = path.open("r+b" if self.num_bytes else "wb", buffering=0)
        self._cut()

    @property
    def grown(self) -> Grown:
        return Grown(num_bytes=self.num_bytes, sha256=self._digest.hexdigest())

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
        self._digest.update(piece)

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


def _digest_of_first(path: Path, num_bytes: int) -> "hashlib._Hash":
    """Of so many bytes, which a file must have."""
    digest = hashlib.sha256()
    if num_bytes and (found := path.stat().st_size if path.exists() else 0) < num_bytes:
        raise changed_file(f"Expected {num_bytes} bytes to go on after in {path}, but it has {found}")
    if num_bytes:
        with path.open("rb") as file:
            for start in range(0, num_bytes, _READ_AT_ONCE):
                digest.update(file.read(min(_READ_AT_ONCE, num_bytes - start)))
    return digest


class LineFile:
    """A text file of whole lines, flushed as they come: a new one, or one that goes on after what is kept of it."""

    def __init__(self, path: Path, *, overwrite: bool = False, kept: Grown | None = None) -> None:
        if kept is None:
            require_writable(path, overwrite=overwrite)
        self._path = path
        with writing(str(path)):
            self._file = GrowingFile(path, kept=kept)

    @property
    def is_empty(self) -> bool:
        return self._file.num_bytes == 0

    def append(self, *lines: str) -> None:
        """All of these lines, or none."""
        with writing(str(self._path)):
            self._file.append("".join(f"{line}\n" for line in lines).encode())

    def sync(self) -> Grown:
        """Return, when all lines are on the disk, how far they have grown."""
        with writing(str(self._path)):
            self._file.sync()
            sync_path(self._path.parent)
        return self._file.grown

    def close(self) -> None:
        self._file.close()


@contextmanager
def replacing(path: Path) -> Iterator[BufferedWriter]:
    """A file to write into that takes this path when the block ends; if it fails, what was there before stays."""
    unfinished = path.with_name(path.name + UNFINISHED)
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


@contextmanager
def making_folder(folder: Path) -> Iterator[Path]:
    """A folder to fill that takes the place of this empty one when the block ends; if it fails, nothing is left."""
    require_makeable(folder)
    folder = resolved(folder)
    unfinished = folder.with_name(folder.name + UNFINISHED)
    with writing(str(folder)):
        unfinished.mkdir()
    try:
        yield unfinished
        with writing(str(folder)):
            if os.name != "posix":
                folder.rmdir()  # no folder takes the place of another there
            unfinished.replace(folder)
            sync_path(folder.parent)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def require_makeable(folder: Path) -> None:
    """Refuse a folder that another cannot take the place of."""
    folder = resolved(folder)
    if folder == Path.cwd():
        raise InputError(f"Expected a folder beside or below {folder}, where you are, but got that; name another.")
    unfinished = resolved(folder.with_name(folder.name + UNFINISHED))
    if unfinished.exists():
        raise InputError(
            f"Expected no {unfinished}, which a run that was killed leaves; delete it, or name another folder."
        )


def resolved(path: Path) -> Path:
    """Where a path leads; one that can lead nowhere is refused: links in a circle, or a name that is too long."""
    try:
        path.exists()
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        why = "its links lead in a circle" if isinstance(error, RuntimeError) else str(error.args[-1])
        raise InputError(f"{str(path)[:200]!r} names no place ({why}); name another.") from error


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
        probe = path.with_name(path.name + UNFINISHED)
        probe.touch()
        probe.unlink()
