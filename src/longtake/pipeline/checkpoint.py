"""Where a run can go on after its process has ended, whatever ended it.

resume/latest.json   what the newest complete checkpoint says, its folder and checksums; replaced whole
resume/000300/       the session, and the arrays of sinks, after 300 frames
"""

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from longtake.errors import InputError, SettingError
from longtake.exports.sink import SinkState
from longtake.memory.saved import stated_checksum
from longtake.records import record_from
from longtake.takes.atomic_files import Grown, replacing, writing
from longtake.takes.fields import JsonObject, content_of, require_file
from longtake.takes.sealed_json import sealed, unsealed

FOLDER = "resume"
_LATEST = "latest.json"
_SESSION = "session.safetensors"
_ARRAYS = "arrays.npz"
_USUAL_FRAMES = 250
_LARGEST_SHARE = 0.04
"""Of the time that saving may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlainValues:
    """Those of a checkpoint that are JSON."""

    num_frames: int
    """Frames taken from the source, unreadable ones included."""
    first_owed: int
    """The oldest of them whose result had not come yet; they are read again."""
    taken: Mapping[str, Any]
    """By what the source goes on after them."""
    results: Mapping[str, Any]
    """What later results depend on beside the session."""
    sinks: Mapping[str, Any]
    counts: Mapping[str, int]
    events: Grown
    """The file of events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(_PlainValues):
    """A run between two frames."""

    arrays: Mapping[str, np.ndarray]
    session: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A checkpoint on its way: the session is saved, the results before it are still to be told and written."""

    num_frames: int
    taken: Mapping[str, Any]
    session: Path
    first_owed: int = 0
    """As the checkpoint has it, and the next, once those results are told."""
    results: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckpointRule:
    """When a run is to be saved: after so many frames or, by default, as often as costs little."""

    every: int | None = None
    """Frames between two checkpoints; None for 250 or more, so that saving takes a small share of the time."""

    def __post_init__(self) -> None:
        if self.every is not None and self.every < 1:
            raise SettingError(f"Expected a checkpoint every 1 frame or more, but got {self.every}.")

    def is_due(self, *, num_frames: int, seconds: float, cost_s: float) -> bool:
        """So long after the last one, when saving takes so long."""
        if self.every is not None:
            return num_frames >= self.every
        return num_frames >= _USUAL_FRAMES and cost_s <= _LARGEST_SHARE * seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class _Latest(_PlainValues):
    """The file that names the newest checkpoint."""

    folder: str
    arrays_sha256: str
    session_sha256: str
    """As the file of the session says it, which is compared with the whole of it when it is read."""


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """A complete checkpoint as files."""

    num_frames: int
    latest: Path
    content: bytes
    """Of `latest`, which may name another one by now."""
    others: tuple[Path, ...]


class Checkpoints:
    """The checkpoints of one run, of which the newest is kept."""

    def __init__(self, out: Path) -> None:
        self._folder = out / FOLDER

    def session_path(self, num_frames: int) -> Path:
        """Where to save the session before the checkpoint itself is written."""
        folder = self._folder / f"{num_frames:06d}"
        with writing(f"The checkpoint {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
        return folder / _SESSION

    def publish_with(self, checkpoint: Checkpoint, sinks: SinkState) -> None:
        """Make it the newest, with the state of the sinks."""
        self.publish(replace(checkpoint, sinks=sinks.values, arrays=sinks.arrays))

    def publish(self, checkpoint: Checkpoint) -> None:
        """Make it the newest; until the last line here the one before is."""
        with writing(f"The checkpoint {self._folder}"):
            self._publish(checkpoint)

    def _publish(self, checkpoint: Checkpoint) -> None:
        folder = checkpoint.session.parent
        with replacing(folder / _ARRAYS) as file:
            np.savez(file, allow_pickle=False, **checkpoint.arrays)
        latest = _Latest(
            folder=folder.name,
            arrays_sha256=_file_sha256(folder / _ARRAYS),
            session_sha256=stated_checksum(checkpoint.session),
            **_plain_values(checkpoint),
        )
        with replacing(self._folder / _LATEST) as file:
            file.write(sealed(asdict(latest)))
        for other in self._folder.iterdir():
            if (
                other.is_dir() and other.name.isdecimal() and int(other.name) < int(folder.name)
            ):  # a newer one may be on its way
                shutil.rmtree(other)

    def newest(self) -> Checkpoint | None:
        """The newest complete checkpoint, or none."""
        path = self._folder / _LATEST
        if not path.exists():
            return None
        try:
            latest = record_from(_Latest, unsealed(JsonObject.parse(content_of(path), path.name)).fields)
            if not latest.folder.isdecimal():
                raise ValueError(f"its folder is {latest.folder}")
            folder = self._folder / latest.folder
            if _file_sha256(folder / _ARRAYS) != latest.arrays_sha256:
                raise ValueError(f"the checksum of {_ARRAYS} is another")
            require_file(folder / _SESSION)
            if stated_checksum(folder / _SESSION) != latest.session_sha256:
                raise ValueError(f"{_SESSION} is of another checkpoint")
            with (folder / _ARRAYS).open("rb") as stored, np.load(stored) as file:
                arrays = {name: file[name] for name in file.files}
            return Checkpoint(**_plain_values(latest), arrays=arrays, session=folder / _SESSION)
        except (OSError, ValueError, InputError) as error:
            reason = str(error).rstrip(".")
            raise InputError(
                f"The checkpoint {path} is damaged or of another version of longtake ({reason}); start again with "
                "--overwrite (overwrite=True)."
            ) from error

    def newest_files(self) -> "CheckpointFiles | None":
        """The same unread, to be copied elsewhere; when a newer one takes its place, some of them vanish."""
        path = self._folder / _LATEST
        try:
            content = content_of(path)
        except FileNotFoundError:
            return None
        folder = self._folder / str(JsonObject.parse(content, path.name).fields.get("folder"))
        if not folder.name.isdecimal():
            raise InputError(f"Expected {path} to name a folder of digits, but it names {folder.name}; delete it.")
        return CheckpointFiles(int(folder.name), path, content, (folder / _SESSION, folder / _ARRAYS))

    def clear(self) -> None:
        """Nothing is left to resume."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _plain_values(of: _PlainValues) -> dict[str, Any]:
    return {each.name: getattr(of, each.name) for each in fields(_PlainValues)}


def _file_sha256(path: Path) -> str:
    require_file(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
