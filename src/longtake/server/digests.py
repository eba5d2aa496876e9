"""SHA-256 of files as they were written, so that what the disk did to them later is noticed and not used.

Of a save, they are in its sealed record. Of the pixels of a take, three files a frame, they grow in a file of their own
beside it, in the lines that `sha256sum --check` reads:

take.sha256       3c5f…  images/000000.jpg
                  91ab…  depth/000000.png
"""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from longtake.errors import SavedSessionError
from longtake.takes.atomic_files import GrowingFile, Grown, replace_file, writing
from longtake.takes.fields import JsonObject

FILES = "files"
"""Of the record of a save: the digests of the files beside it, by their names."""
_BETWEEN = "  "


def digests_in(record: JsonObject) -> Mapping[str, str]:
    """Of the files beside a record; those of earlier versions name none."""
    files = record.optional(FILES, record.object)
    return {} if files is None else {name: files.text(name) for name in files.fields}


def write_digested(path: Path, content: bytes) -> dict[str, str]:
    """Put a whole file there; its digest by its name."""
    replace_file(path, content)
    return {path.name: hashlib.sha256(content).hexdigest()}


def read_digested(path: Path, digests: Mapping[str, str]) -> bytes:
    """A file as it was written; records of earlier versions have no digest of it, and it is taken as it is."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SavedSessionError(f"The saved session {path} cannot be read ({error.strerror}).") from error
    if digests.get(path.name) not in (None, hashlib.sha256(content).hexdigest()):
        raise SavedSessionError(
            f"{path} was damaged or changed on the server's disk, for its checksum is another; this session cannot go "
            "on from there: open another and send its frames again."
        )
    return content


class PixelDigests:
    """Those of a take, which grow with it."""

    def __init__(self, path: Path, kept: Grown | None) -> None:
        """Goes on after what is kept; without that, anew."""
        self._path = path
        with writing(str(path)):
            self._file = GrowingFile(path, kept=kept)

    @property
    def grown(self) -> Grown:
        return self._file.grown

    def add(self, contents: Mapping[str, bytes]) -> None:
        """Of a frame's files, by their names in the take."""
        lines = (f"{hashlib.sha256(content).hexdigest()}{_BETWEEN}{name}\n" for name, content in contents.items())
        with writing(str(self._path)):
            self._file.append("".join(lines).encode())

    def sync(self) -> None:
        """Return when all of them are on the disk."""
        with writing(str(self._path)):
            self._file.sync()

    def close(self) -> None:
        self._file.close()


def pixel_digests(path: Path) -> dict[str, str]:
    """Of all files of a take so far, by their names; earlier versions wrote none."""
    if not path.is_file():
        return {}
    lines = path.read_bytes().decode("ascii", errors="replace").splitlines(keepends=True)
    parted = (line.rstrip("\n").partition(_BETWEEN) for line in lines if line.endswith("\n"))
    return {name: digest for digest, _, name in parted}


def require_whole_files(
    take: Path, digests: Mapping[str, str], *, is_enough: Callable[[], bool] = lambda: False
) -> None:
    """Refuse a take of which one of these files is not as it was written; `is_enough` ends it before the last."""
    for name, digest in digests.items():
        if is_enough():
            return
        try:
            found = hashlib.sha256((take / name).read_bytes()).hexdigest()
        except OSError as error:
            raise _damaged(name, f"it cannot be read, {error.strerror}") from error
        if found != digest:
            raise _damaged(name, "its checksum is another")


def _damaged(name: str, why: str) -> SavedSessionError:
    return SavedSessionError(
        f"The session's take was damaged or changed on the server's disk ({name}: {why}); open another session and "
        "send its frames again."
    )
