"""The folder of a live session: the files of a save under a number, and one record that says which number counts.

    live.json                       the number, checksums of both files, poses of what the dialogue saw
    live-7-map.safetensors          the session of geometry
    live-7-dialogue.safetensors     the session of questions

A save takes a number of its own. It counts once `live.json` is replaced, in one step; then the files of others go.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from longtake.api.camera_trail import CameraTrail
from longtake.errors import InputError, SavedSessionError
from longtake.memory.saved import stated_checksum
from longtake.takes.atomic_files import replace_file, sync_path, writing
from longtake.takes.fields import JsonObject
from longtake.takes.folder_lock import locked
from longtake.takes.sealed_json import sealed, unsealed

_RECORD_NAME = "live.json"
_FORMAT, _WITHOUT_NUMBER, _WITHOUT_CHECKSUM = 3, 2, 1
_NUMBERED = re.compile(r"live-(?P<number>[0-9]+)-(map|dialogue)\.safetensors(\.unfinished)?")


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """The two session files of a save."""

    map: Path
    dialogue: Path

    @classmethod
    def of(cls, folder: Path, number: int) -> "LiveFiles":
        """Those of this number; 0 stands for a save of earlier versions, which had none."""
        prefix = f"live-{number}-" if number else ""
        return cls(folder / f"{prefix}map.safetensors", folder / f"{prefix}dialogue.safetensors")

    @property
    def checksums(self) -> tuple[str, str]:
        return stated_checksum(self.map), stated_checksum(self.dialogue)


def write_live_folder(
    folder: Path, save_map: Callable[[Path], None], save_dialogue: Callable[[Path], None], trail: CameraTrail
) -> None:
    """Save both sessions; an earlier save in the folder stays whole, and counts, until this one is complete."""
    with locked(folder):
        earlier, number = _files_that_count(folder), _next_number(folder)
        files = LiveFiles.of(folder, number)
        try:
            save_map(files.map)
            save_dialogue(files.dialogue)
            with writing(str(folder)):
                sync_path(folder)
            record = {"format": _FORMAT, "number": number, "checksums": files.checksums, **trail.to_record()}
            replace_file(folder / _RECORD_NAME, sealed(record))
        finally:
            _remove_what_does_not_count(folder, earlier)


def read_live_folder(folder: Path) -> tuple[LiveFiles, CameraTrail]:
    """The files of the save that counts, which must be those that it wrote, and its trail."""
    record = _read_record(folder / _RECORD_NAME)
    files = _files_of(folder, record)
    if _is_numbered(record) and record.texts("checksums") != files.checksums:
        raise SavedSessionError(
            f"Expected the files that {folder / _RECORD_NAME} tells of, but {files.map.name} or {files.dialogue.name} "
            "is of another save; save the session again."
        )
    return files, CameraTrail.from_record(record)


def _is_numbered(record: JsonObject) -> bool:
    return bool(record.fields["format"] == _FORMAT)


def _files_of(folder: Path, record: JsonObject) -> LiveFiles:
    return LiveFiles.of(folder, record.integer("number", least=1) if _is_numbered(record) else 0)


def _files_that_count(folder: Path) -> LiveFiles | None:
    """None where there is no record, or none that can be resumed."""
    try:
        return _files_of(folder, _read_record(folder / _RECORD_NAME))
    except InputError:
        return None


def _numbered(folder: Path) -> Iterator[tuple[int, Path]]:
    """All session files of all saves, those included that were broken off."""
    for path in folder.iterdir():
        if match := _NUMBERED.fullmatch(path.name):
            yield int(match["number"]), path


def _next_number(folder: Path) -> int:
    with writing(str(folder)):
        return 1 + max((number for number, _ in _numbered(folder)), default=0)


def _remove_what_does_not_count(folder: Path, earlier: LiveFiles | None) -> None:
    """Session files of other saves; all stay where a record is there and cannot be read."""
    counting = _files_that_count(folder)
    if counting is None and (folder / _RECORD_NAME).exists():
        return
    with suppress(OSError):  # what stays is removed by the next save
        left = {path for _, path in _numbered(folder)}
        for path in (left | _paths(earlier)) - _paths(counting):
            path.unlink(missing_ok=True)


def _paths(files: LiveFiles | None) -> set[Path]:
    return set() if files is None else {files.map, files.dialogue}


def _read_record(path: Path) -> JsonObject:
    try:
        record = JsonObject.parse(path.read_bytes(), str(path))
    except OSError as error:
        raise SavedSessionError(
            f"Expected a saved live session in {path.parent}, but its {path.name} cannot be read ({error.strerror}); "
            "name a folder that LiveSession.save wrote."
        ) from error
    if record.fields.get("format") == _WITHOUT_CHECKSUM and "sha256" not in record.fields:
        return record
    if record.fields.get("format") not in (_FORMAT, _WITHOUT_NUMBER):
        raise SavedSessionError(
            f"Expected a saved live session of format {_FORMAT} in {path}, but got {record.fields.get('format')}; "
            "resume it with the longtake that wrote it."
        )
    try:
        return unsealed(record)
    except InputError as error:
        raise SavedSessionError(f"{str(error)[:-1]}; save the session again.") from error
