"""What a run says of itself before it writes: what it was asked to do, and which files of its folder are its own."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import torch

from longtake import __version__
from longtake.errors import InputError
from longtake.exports.report.folder import RUN_NAME
from longtake.takes.atomic_files import replacing, writing
from longtake.takes.fields import JsonObject, content_of
from longtake.takes.sealed_json import sealed, unsealed

_FORMAT = "longtake-run"
_VERSION = 2
_DIGITS = "*"
_LONGEST_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The record of one run."""

    settings: Mapping[str, Any]
    """What it was asked to do, as plain values; only the same can go on."""
    files: tuple[str, ...]
    """Its own, below the folder: a `*` stands for digits, and a folder is its own whole."""

    @classmethod
    def read(cls, out: Path) -> "RunRecord | None":
        """The record of the run in a folder; None where there is none."""
        path = out / RUN_NAME
        try:
            record = JsonObject.parse(content_of(path), str(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}); name another folder.") from error
        if record.fields.get("format") != _FORMAT or record.fields.get("version") != _VERSION:
            raise InputError(
                f"Expected the record of a run of this version of longtake in {path}, but it is of "
                f"{record.fields.get('made_by', 'something else')}; name another folder, or delete {out}."
            )
        try:
            record = unsealed(record)
        except InputError as error:
            raise InputError(f"{str(error)[:-1]}; name another folder, or delete {out}.") from error
        files = record.fields.get("files")
        if not isinstance(files, list) or not all(isinstance(name, str) and _is_below(name) for name in files):
            raise record.refuse("files", "names below the folder")
        return cls(settings=record.object("settings").fields, files=tuple(files))

    def write(self, out: Path) -> None:
        record = {
            "format": _FORMAT,
            "version": _VERSION,
            "made_by": f"longtake {__version__}",
            "settings": self.settings,
            "files": self.files,
        }
        with writing(str(out / RUN_NAME)), replacing(out / RUN_NAME) as file:
            file.write(sealed(record))

    def differences(self, settings: Mapping[str, Any]) -> list[str]:
        """What is set otherwise here, each with both values where they are short."""
        return value_differences(self.settings, settings)

    def with_files(self, files: Sequence[str]) -> "RunRecord":
        """The same run with more files of its own."""
        return replace(self, files=tuple(dict.fromkeys((*self.files, *files))))

    def present(self, out: Path, below: str = "") -> list[Path]:
        """Its own files that are there; a link that leads out of the folder is not followed."""
        return [path for name in self.files if Path(name).is_relative_to(below) for path in _found(out, name)]

    def remove_files(self, out: Path, below: str = "") -> None:
        """Remove its own files, all or those below a folder; the record itself stays."""
        with writing(str(out)):
            for path in self.present(out, below):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            for folder in {(out / name).parent for name in self.files if Path(name).is_relative_to(below)} - {out}:
                if not _leads_elsewhere(out, folder):
                    with suppress(OSError):  # something else lies there
                        folder.rmdir()


def is_run(folder: Path) -> bool:
    """Whether the folder's record says that it is of a run, of whatever version."""
    try:
        return JsonObject.parse(content_of(folder / RUN_NAME), str(folder)).fields.get("format") == _FORMAT
    except (OSError, InputError):
        return False


def numbered(pattern: str) -> str:
    """A name on record for all files whose names are made of an index by this format."""
    return pattern.replace("{index:06d}", _DIGITS)


def plain(value: Any) -> Any:
    """Settings as values that JSON holds; a record is an object that names its type."""
    if is_dataclass(value) and not isinstance(value, type):
        values = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        return {"type": type(value).__name__, **values}
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else repr(value)


def value_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Names of plain values that are not the same, each with both of them where they are short."""
    return list(_differences("", before, now))


def _differences(name: str, before: Any, now: Any) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for part in dict.fromkeys((*before, *now)):
            yield from _differences(f"{name}.{part}" if name else part, before.get(part), now.get(part))
    elif before != now:
        values = [json.dumps(value, ensure_ascii=False) for value in (before, now)]
        is_short = max(map(len, values)) <= _LONGEST_SHOWN
        yield f"{name} {values[0]}, now {values[1]}" if is_short else name


def _is_below(name: str) -> bool:
    path = Path(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def _leads_elsewhere(out: Path, folder: Path) -> bool:
    """Whether a folder below `out`, or one above it, is a link."""
    return any(step.is_symlink() for step in (folder, *folder.parents) if step != out and step.is_relative_to(out))


def _found(out: Path, name: str) -> list[Path]:
    path = out / name
    if _leads_elsewhere(out, path.parent):
        return []
    if _DIGITS not in path.name:
        return [path] if path.exists() or path.is_symlink() else []
    return [found for found in path.parent.glob(path.name) if found.stem.isdecimal()]
