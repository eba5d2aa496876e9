"""A folder that one command writes to at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from longtake.errors import OccupiedError
from longtake.takes.atomic_files import writing


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps others from writing to a folder, which is made; the system takes the lock from a process that died."""
    with writing(str(folder)):
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
    try:
        if os.name == "posix":
            with _lock(folder):
                yield
        else:
            yield
    finally:
        if is_new:
            with suppress(OSError):  # something was written
                folder.rmdir()


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    import fcntl

    with writing(str(folder)):
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OccupiedError(
                f"Another run is writing to {folder}; wait for its end, or name another folder."
            ) from error
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(descriptor)
