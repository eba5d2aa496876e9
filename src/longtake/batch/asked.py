"""What a result was mapped from and how, kept with it: what is done for other settings or another video is not done."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from longtake.api.map_request import MapRequest
from longtake.batch.listings import is_path
from longtake.batch.manifest import Row
from longtake.batch.storage import parsed_record
from longtake.errors import SettingError
from longtake.exports.report.folder import RUN_NAME
from longtake.pipeline.continuing import identity_of
from longtake.pipeline.run_record import plain, value_differences
from longtake.takes.atomic_files import replace_file
from longtake.takes.header import POSES_NAME

ASKED_NAME = "batch.json"
_READ_BYTES = 65_536
_SAME_RESULT = ("type", "device", "checkpoint_every")
"""Settings that change how a result comes about, not what it is."""


def asked_of(row: Row) -> dict[str, Any]:
    """The video, by its contents where they lie on a disk, and all settings."""
    settings = plain(MapRequest(**row.settings))
    kept = {name: value for name, value in settings.items() if name not in _SAME_RESULT}
    if (earlier := row.settings.get("continue_from")) is not None:
        kept["continue_from"] = _identity_of(Path(earlier))
    return {"video": _video(row.source), "settings": kept | {"spans": row.spans}}


def _identity_of(earlier: Path) -> Mapping[str, str] | None:
    """Of a result that is continued, wherever it lies; None where it cannot be read."""
    try:
        return _identity(earlier, (earlier / POSES_NAME).stat().st_mtime_ns)
    except OSError:
        return None


@lru_cache(maxsize=8)
def _identity(earlier: Path, written_ns: int) -> Mapping[str, str]:  # noqa: ARG001 (many videos continue one)
    return identity_of(earlier)


def differences(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> list[str]:
    """Between what a result was asked for and what is asked now; none where it does not say.

    A video that cannot be read any more is taken for the same.
    """
    settings = None if before is None else before.get("settings")
    if before is None or not isinstance(settings, Mapping) or not now:
        return []
    videos = before.get("video"), now["video"]
    others = ["of another video"] if None not in videos and videos[0] != videos[1] else []
    return [*others, *value_differences(settings, now["settings"])]


def require_same(name: str, before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> None:
    """Refuse to take a result for another one."""
    if found := differences(before, now):
        raise SettingError(
            f"What was mapped into {name} before is not what is asked for now ({'; '.join(found)}); name another place "
            "for results, or delete that folder."
        )


def write_asked(folder: Path, asked: Mapping[str, Any]) -> None:
    """Before there is any result, so that none is without."""
    if asked:
        replace_file(folder / ASKED_NAME, json.dumps(asked, indent=1).encode())


@contextmanager
def nothing_alone(folder: Path) -> Iterator[None]:
    """Where a run leaves nothing, nothing is left: a record by itself would keep the next one out of the folder."""
    try:
        yield
    finally:
        with suppress(OSError):  # something else lies there
            if not (folder / RUN_NAME).exists():
                (folder / ASKED_NAME).unlink(missing_ok=True)
                folder.rmdir()


def read_asked(folder: Path) -> dict[str, Any] | None:
    """None where a result does not say, as one of `longtake map`."""
    try:
        return parsed_record((folder / ASKED_NAME).read_bytes())
    except OSError:
        return None


def _video(source: str) -> str | None:
    """A digest: of a file's size, beginning and end, of a folder's names and sizes, wherever they lie; None where they
    cannot be read; of anything else the address, which may hold a password."""
    if not is_path(source):
        return _digest(source.encode())
    path = Path(source)
    try:
        if path.is_dir():
            sizes = sorted((file.name, file.stat().st_size) for file in path.iterdir() if file.is_file())
            return _digest(json.dumps(sizes).encode())
        if not path.is_file():
            return None  # opening a pipe would wait for whoever writes to it
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            ends = [file.read(_READ_BYTES)]
            file.seek(max(0, size - _READ_BYTES))
            ends.append(file.read(_READ_BYTES))
            return _digest(str(size).encode(), *ends)
    except (OSError, ValueError):
        return None


def _digest(*parts: bytes) -> str:
    return f"sha256:{sha256(b''.join(parts)).hexdigest()}"
