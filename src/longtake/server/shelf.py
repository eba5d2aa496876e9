"""A session's folder: a record that says which save counts, the saves under numbers, and what grows beside them.

SESSION/
  session.json      what was asked for, when it was last used, how far the save that counts has come, its number
  state-7/          that save: the files of the session, its last result, and how far what follows had grown
  poses.bin         a row for each pose that became known, the newest of a frame last
  pictures/         a JPEG for each frame
  take/             where it maps, a take of the frames whose results are final
  take.sha256       what the files of its pixels were when they were written
  taken             frames taken so far, saved or not: after a crash it says which were lost
  video             what was uploaded
  conversation.json the last questions with their answers
"""

import os
import re
import shutil
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from longtake.errors import InputError, SavedSessionError
from longtake.records import record_from
from longtake.runtime.steps import LoopUse
from longtake.server.pictures import is_full
from longtake.server.spec import SessionSpec
from longtake.server.watches import Watch
from longtake.takes.atomic_files import replace_file, sync_path, writing
from longtake.takes.corrections import Corrections
from longtake.takes.fields import JsonObject
from longtake.takes.sealed_json import sealed, unsealed

_RECORD_NAME, _TAKEN_NAME = "session.json", "taken"
POSES_NAME, VIDEO_NAME, CONVERSATION_NAME = "poses.bin", "video", "conversation.json"
PICTURES_NAME, TAKE_NAME, DIGESTS_NAME = "pictures", "take", "take.sha256"
PIXEL_FOLDERS = ("images", "depth", "confidence")
"""Of a take: a file for each frame in each."""
_FORMAT = 1
_STATE = re.compile(r"state-(?P<number>[0-9]+)")
_SESSION_ID = re.compile(r"[0-9a-f]{16}")
_UNFINISHED = ".unfinished"
"""Ends the name of a folder while it is copied or removed."""
_TAKEN = struct.Struct("<Q")
_GOES_ON = " This session goes on, but nothing more is recorded of it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What there is of a session's take."""

    num_frames: int = 0
    num_bytes: int = 0
    """Of the pixels of all of them."""
    stopped: str | None = None
    """That nothing more is recorded, and why."""
    version: int = 0
    """Of the last correction, as the session counts them; 0 where there was none."""
    corrections: Corrections | None = None
    """What became of frames after they were recorded; None where they stay as they were said."""

    def grown_by(self, num_bytes: int) -> "Recorded":
        """By a frame of so many bytes."""
        return replace(self, num_frames=self.num_frames + 1, num_bytes=self.num_bytes + num_bytes)

    def stopped_by(self, why: str) -> "Recorded":
        """For a reason, in a sentence."""
        return replace(self, stopped=f"{why}{_GOES_ON}")

    @property
    def why_stopped(self) -> str | None:
        """The reason by itself."""
        return None if self.stopped is None else self.stopped.removesuffix(_GOES_ON)

    def moved(self, version: int, corrections: Corrections | None) -> "Recorded":
        """By all corrections up to this one."""
        return replace(self, version=version, corrections=corrections)

    def to_record(self) -> dict[str, Any]:
        return {
            "num_frames": self.num_frames,
            "num_bytes": self.num_bytes,
            "stopped": self.stopped,
            "version": self.version,
            "corrections": None if self.corrections is None else self.corrections.to_record(),
        }

    @classmethod
    def from_record(cls, record: JsonObject) -> "Recorded":
        """Records of earlier versions have no corrections: their sessions moved nothing that was final."""
        return cls(
            num_frames=record.integer("num_frames"),
            num_bytes=record.integer("num_bytes"),
            stopped=record.optional("stopped", record.text),
            version=record.optional("version", record.integer) or 0,
            corrections=record.optional("corrections", lambda name: Corrections.from_record(record.object(name))),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlikeness:
    """How far the video is from what each model was trained on, above 1 where it is unlike that; None until judged."""

    model: float | None = None
    language: float | None = None

    def to_record(self) -> dict[str, float | None]:
        return asdict(self)

    @classmethod
    def from_record(cls, record: JsonObject) -> "Unlikeness":
        return cls(model=record.optional("model", record.number), language=record.optional("language", record.number))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """A session as its folder tells of it."""

    spec: SessionSpec
    created_s: float
    """Seconds since 1970."""
    saved_s: float
    used_s: float
    """When something was last asked of it; that a server starts again, or lists it, is no use."""
    resident_bytes: int | None = None
    """Of keys and values in use, as was told or saved last; None before the first frame."""
    number: int = 0
    """Of the save that counts; 0 where no frame was saved."""
    next_sequence: int = 0
    num_frames: int = 0
    next_event: int = 1
    is_finished: bool = False
    is_paused: bool = False
    watches: tuple[Watch, ...] = ()
    recorded: Recorded = field(default_factory=Recorded)
    unlikeness: Unlikeness = field(default_factory=Unlikeness)
    loops: LoopUse | None = None
    """What it had found when it was saved; None where places are not known again."""
    fork_of: str | None = None
    """The session that it was copied from, which may be gone."""


class Shelf:
    """The folder of one session; one thread writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written_number: int | None = None
        """Of the save that the record names, where that was written last and is on the disk for sure."""

    @property
    def num_bytes(self) -> int:
        """On the disk, without the pixels of the take, whose many files are counted when they are written."""
        total = 0
        for folder, folders, names in os.walk(self.folder):
            if Path(folder) == self.folder / TAKE_NAME:
                folders[:] = [name for name in folders if name not in PIXEL_FOLDERS]
            for name in names:
                with suppress(OSError):  # removed meanwhile
                    total += Path(folder, name).stat().st_size
        return total

    @property
    def unfinished_folder(self) -> Path:
        """What it is named while it is copied or removed."""
        return self.folder.with_name(self.folder.name + _UNFINISHED)

    def state_folder(self, number: int) -> Path:
        return self.folder / f"state-{number}"

    def write(self, record: SessionRecord) -> None:
        """Let this record count, in one step; passwords of addresses are in none."""
        with writing(str(self.folder)):
            self.folder.mkdir(parents=True, exist_ok=True)
        self._written_number = None
        replace_file(
            self.folder / _RECORD_NAME,
            sealed(
                {
                    "format": _FORMAT,
                    "spec": record.spec.shown.to_record(),
                    "created_s": record.created_s,
                    "saved_s": record.saved_s,
                    "used_s": record.used_s,
                    "resident_bytes": record.resident_bytes,
                    "number": record.number,
                    "next_sequence": record.next_sequence,
                    "num_frames": record.num_frames,
                    "next_event": record.next_event,
                    "is_finished": record.is_finished,
                    "is_paused": record.is_paused,
                    "watches": [watch.to_record() for watch in record.watches],
                    "recorded": record.recorded.to_record(),
                    "unlikeness": record.unlikeness.to_record(),
                    "loops": None if record.loops is None else asdict(record.loops),
                    "fork_of": record.fork_of,
                }
            ),
        )
        self._written_number = record.number

    def make_state_folder(self) -> tuple[int, Path]:
        """Empty, for a save, with its number, which no save before has had; it counts once a record names it.

        What a save that failed has left is removed, unless the record names it all the same: one may fail after that.
        """
        counts = self.read().number if self._written_number is None else self._written_number
        self.remove_other_states(counts)
        number = counts + 1
        folder = self.state_folder(number)
        with writing(str(folder)):
            folder.mkdir()
        return number, folder

    def sync_state_folder(self, number: int) -> None:
        """Return when what is in it is found on the disk by its name."""
        with writing(str(self.state_folder(number))):
            sync_path(self.state_folder(number))
            sync_path(self.folder)

    def remove_other_states(self, number: int) -> None:
        for path in self.folder.iterdir():
            found = _STATE.fullmatch(path.name)
            if found is not None and int(found["number"]) != number:
                shutil.rmtree(path, ignore_errors=True)

    def read(self) -> SessionRecord:
        """The record that counts."""
        path = self.folder / _RECORD_NAME
        try:
            content = path.read_bytes()
        except OSError as error:
            raise SavedSessionError(f"The saved session {path} cannot be read ({error.strerror}).") from error
        record = unsealed(JsonObject.parse(content, str(path)))
        if record.fields.get("format") != _FORMAT:
            raise SavedSessionError(
                f"Expected a session of format {_FORMAT} in {path}; start the longtake that wrote it."
            )
        return SessionRecord(
            spec=SessionSpec.from_record(record.object("spec")),
            created_s=record.number("created_s"),
            saved_s=record.number("saved_s"),
            used_s=record.number("used_s" if "used_s" in record.fields else "saved_s"),  # of earlier versions
            resident_bytes=record.optional("resident_bytes", record.integer),
            number=record.integer("number"),
            next_sequence=record.integer("next_sequence"),
            num_frames=record.integer("num_frames"),
            next_event=record.integer("next_event", least=1),
            is_finished=record.boolean("is_finished"),
            is_paused=record.boolean("is_paused"),
            watches=tuple(Watch.from_record(watch) for watch in record.objects("watches")),
            recorded=Recorded.from_record(record.object("recorded")),
            unlikeness=_read_unlikeness(record),
            loops=_read_loops(record),
            fork_of=record.optional("fork_of", record.text),
        )

    def copy_to(self, other: "Shelf", record: SessionRecord) -> None:
        """Write this record, the save that it names, and what is recorded into another session's folder."""
        unfinished = Shelf(other.unfinished_folder)
        try:
            with writing(str(other.folder)):
                self._copy_files(unfinished, record)
            unfinished.write(record)
            with writing(str(other.folder)):
                unfinished.folder.replace(other.folder)
                sync_path(other.folder.parent)
        except BaseException:
            shutil.rmtree(unfinished.folder, ignore_errors=True)
            raise

    def _copy_files(self, other: "Shelf", record: SessionRecord) -> None:
        other.folder.mkdir(parents=True)
        if record.number:
            shutil.copytree(self.state_folder(record.number), other.state_folder(record.number))
        for name in (POSES_NAME, DIGESTS_NAME, VIDEO_NAME, CONVERSATION_NAME):
            if (self.folder / name).is_file():
                (os.link if name == VIDEO_NAME else shutil.copyfile)(self.folder / name, other.folder / name)
        self._copy_recorded(other, record.num_frames)

    def _copy_recorded(self, other: "Shelf", num_frames: int) -> None:
        """Files that never change again are shared, as links; those that grow are copied."""
        full = {path.name for path in (self.folder / PICTURES_NAME).glob("*.jpegs") if is_full(path, num_frames)}
        for name in (PICTURES_NAME, TAKE_NAME):
            for folder, _, names in os.walk(self.folder / name):
                into = other.folder / Path(folder).relative_to(self.folder)
                into.mkdir()
                for file in names:
                    is_fixed = into.name in PIXEL_FOLDERS or file in full
                    (os.link if is_fixed else shutil.copyfile)(Path(folder) / file, into / file)

    def note_taken(self, next_sequence: int) -> None:
        """Remember how many frames were taken; enough for a crash of the program, not of the machine."""
        with writing(str(self.folder)):
            descriptor = os.open(self.folder / _TAKEN_NAME, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, _TAKEN.pack(next_sequence))
            finally:
                os.close(descriptor)

    def read_taken(self) -> int:
        """What `note_taken` wrote last; 0 where it wrote nothing."""
        try:
            content = (self.folder / _TAKEN_NAME).read_bytes()
        except OSError:
            return 0
        return int(_TAKEN.unpack(content)[0]) if len(content) == _TAKEN.size else 0

    def give_up_name(self) -> None:
        """The first step of a removal: where the disk refuses it, all is as it was; else there is no session any more.

        What is left where a program is killed after it belongs to none.
        """
        try:
            self.folder.replace(self.unfinished_folder)
        except OSError:
            if self.folder.exists():  # else it was gone before, or by now
                raise

    def remove_rest(self) -> bool:
        """The second step; False where something is left, which belongs to no session: the next start removes it."""
        with suppress(OSError):
            if self.unfinished_folder.is_file():  # somebody put it in the place of the folder
                self.unfinished_folder.unlink()
            shutil.rmtree(self.unfinished_folder, ignore_errors=True)
            return not self.unfinished_folder.exists()
        return False


def _read_unlikeness(record: JsonObject) -> Unlikeness:
    """Records of earlier versions say nothing of it."""
    told = record.optional("unlikeness", record.object)
    return Unlikeness() if told is None else Unlikeness.from_record(told)


def _read_loops(record: JsonObject) -> LoopUse | None:
    """Records of earlier versions say nothing of them."""
    told = record.optional("loops", record.object)
    if told is None:
        return None
    try:
        return record_from(LoopUse, told.fields)
    except ValueError as error:
        raise InputError(f"{told.where} cannot be read ({error}).") from error


def is_session_id(text: str) -> bool:
    """Whether a text can be the id of a session; what cannot is no name of a folder either."""
    return _SESSION_ID.fullmatch(text) is not None


def remove_unfinished(folder: Path) -> None:
    """Folders that a program left which was killed while it opened, copied or removed a session.

    One that lost its record otherwise holds what somebody recorded, and stays.
    """
    for path in list(folder.iterdir()):
        is_cut_off = path.name.endswith(_UNFINISHED) and is_session_id(path.name.removesuffix(_UNFINISHED))
        if is_cut_off or (is_session_id(path.name) and path.is_dir() and not _holds_anything(path)):
            shutil.rmtree(path, ignore_errors=True)


def shelves(folder: Path) -> Iterator[tuple[str, Shelf]]:
    """All sessions in a folder, those too whose record cannot be read."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if is_session_id(path.name) and path.is_dir():
            yield path.name, Shelf(path)


def _holds_anything(folder: Path) -> bool:
    """Whether there is more than the beginning of a record."""
    names = {path.name for path in folder.iterdir()}
    recorded = names & {_RECORD_NAME, POSES_NAME, PICTURES_NAME, TAKE_NAME, VIDEO_NAME}
    return bool(recorded) or any(map(_STATE.fullmatch, names))
