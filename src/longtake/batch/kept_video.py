"""A video under way, kept on a storage without folders so that any machine goes on with it from a checkpoint.

NAME/depth/000012.png      files that a number names: once written they stay, and lie where the result has them
NAME/resume/000300/…       all others, as they were at the checkpoint after 300 frames or later
NAME/resume/000300.json    that these are whole; then those of the checkpoint before go
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from longtake.batch.naming import COMING
from longtake.batch.object_files import ObjectFiles
from longtake.batch.storage import parsed_record
from longtake.exports.report.folder import SUMMARY_NAME
from longtake.pipeline.checkpoint import FOLDER as CHECKPOINT_FOLDER
from longtake.pipeline.checkpoint import CheckpointFiles, Checkpoints
from longtake.takes.atomic_files import UNFINISHED, replace_file

_MARK = ".json"


class KeptVideo:
    """One video: its folder on this machine, and what a storage has of it."""

    def __init__(self, files: ObjectFiles, name: str, folder: Path) -> None:
        self._files, self._name, self._folder = files, name, folder
        self._kept = f"{name}/{CHECKPOINT_FOLDER}"
        self._record = folder.parent / ".kept" / f"{name}.json"
        """Sizes and times of the numbered files that this machine has put there."""

    def keep(self) -> None:
        """The newest checkpoint, and all that was written until then."""
        newest = Checkpoints(self._folder).newest_files()
        if newest is None or newest.num_frames in self._complete():
            return
        try:
            self._put_numbered()
            self._put_checkpoint(newest)
        except FileNotFoundError:
            if Checkpoints(self._folder).newest_files() == newest:
                raise
            self.keep()  # a newer one has taken its place
        else:
            self._delete_before(newest.num_frames)

    def bring(self) -> None:
        """Here too, what any machine kept last, unless this one has come as far."""
        complete, own = self._complete(), Checkpoints(self._folder).newest_files()
        if not complete or (own is not None and own.num_frames >= max(complete)):
            return
        coming = self._coming()
        self._get(f"{self._kept}/{max(complete):06d}", coming)
        numbered = [name for name in self._files.names_below(self._name) if _is_numbered(name)]
        for name in numbered:
            self._files.get(f"{self._name}/{name}", coming / name)
        shutil.rmtree(self._folder, ignore_errors=True)
        coming.rename(self._folder)
        self._note({name: _state(self._folder / name) for name in numbered})

    def fetch(self) -> None:
        """Here again, a result that was delivered: there as a whole, or not."""
        coming = self._coming()
        self._get(self._name, coming)
        shutil.rmtree(self._folder, ignore_errors=True)
        coming.rename(self._folder)

    def deliver(self) -> None:
        """All of it, without what was kept of it on its way, and last the file that says so."""
        self._put_numbered()
        *others, summary = sorted(
            (name for name in self._own_names() if not _is_numbered(name)), key=lambda name: name == SUMMARY_NAME
        )
        for name in others:
            self._files.put(self._folder / name, f"{self._name}/{name}")
        self._files.delete_folder(self._kept)
        self._files.put(self._folder / summary, f"{self._name}/{summary}")
        self.forget()

    def remove(self) -> None:
        """Here and there."""
        self._files.delete_folder(self._name)
        self.forget()

    def _put_numbered(self) -> None:
        """Those that are not there as they are now, whoever removed them."""
        there = set(self._files.names_below(self._name))
        before = parsed_record(self._record.read_bytes()) or {} if self._record.exists() else {}
        now = {name: _state(self._folder / name) for name in self._own_names() if _is_numbered(name)}
        for name, state in now.items():
            if name not in there or before.get(name) != state:
                self._files.put(self._folder / name, f"{self._name}/{name}")
        self._note(now)

    def _put_checkpoint(self, checkpoint: CheckpointFiles) -> None:
        place = f"{self._kept}/{checkpoint.num_frames:06d}"
        paths = [self._folder / name for name in self._own_names() if not _is_numbered(name)]
        for path in (*checkpoint.others, *paths):
            self._files.put(path, f"{place}/{path.relative_to(self._folder).as_posix()}")
        self._files.write(f"{place}/{checkpoint.latest.relative_to(self._folder).as_posix()}", checkpoint.content)
        self._files.write(place + _MARK, json.dumps({"num_frames": checkpoint.num_frames}).encode())

    def _complete(self) -> list[int]:
        """Frames after which there are checkpoints on the storage, whole ones."""
        marks = [name for name in self._files.names_below(self._kept) if "/" not in name]
        records = [parsed_record(self._files.read(f"{self._kept}/{mark}") or b"") for mark in marks]
        return [int(record["num_frames"]) for record in records if record is not None]

    def _delete_before(self, num_frames: int) -> None:
        places = {name.partition("/")[0].removesuffix(_MARK) for name in self._files.names_below(self._kept)}
        for place in sorted(place for place in places if int(place) < num_frames):
            self._files.delete(f"{self._kept}/{place}{_MARK}")
            self._files.delete_folder(f"{self._kept}/{place}")

    def _coming(self) -> Path:
        """A new place beside the folder, for what shall take it when it is whole."""
        coming = self._folder.with_name(self._name + COMING)
        shutil.rmtree(coming, ignore_errors=True)
        coming.mkdir(parents=True)
        return coming

    def _get(self, place: str, folder: Path) -> None:
        for name in self._files.names_below(place):
            self._files.get(f"{place}/{name}", folder / name)

    def _own_names(self) -> Iterator[str]:
        """Of the files in the folder of this machine, but for its checkpoints and what is not whole."""
        for path in sorted(self._folder.rglob("*")):
            name = path.relative_to(self._folder)
            if path.is_file() and name.parts[0] != CHECKPOINT_FOLDER and not path.name.endswith(UNFINISHED):
                yield name.as_posix()

    def _note(self, states: dict[str, list[int]]) -> None:
        self._record.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._record, json.dumps(states).encode())

    def forget(self) -> None:
        """Here, what lies there."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._record.unlink(missing_ok=True)


def _is_numbered(name: str) -> bool:
    path = Path(name)
    return path.stem.isdecimal() and path.parts[0] != CHECKPOINT_FOLDER


def _state(path: Path) -> list[int]:
    """As JSON holds it."""
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]
