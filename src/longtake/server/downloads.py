"""Results of a session as files to download, made of its take in a folder of their own that goes when they are sent."""

import asyncio
import logging
import shutil
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from longtake.errors import InputError, SavedSessionError, StorageError
from longtake.exports.formats import FORMATS
from longtake.exports.reexport import ExportSettings, export_take
from longtake.exports.report.folder import SUMMARY_NAME
from longtake.server.digests import pixel_digests, require_whole_files
from longtake.server.machine import SessionState
from longtake.server.pictures import read_jpeg, smaller
from longtake.server.problems import RequestError
from longtake.server.session import ServedSession
from longtake.server.shelf import DIGESTS_NAME, PICTURES_NAME, PIXEL_FOLDERS, TAKE_NAME, Recorded
from longtake.server.take_summary import take_summary
from longtake.takes.correcting import correct_take
from longtake.takes.header import (
    CORRECTIONS_NAME,
    DESCRIPTORS_NAME,
    FRAMES_NAME,
    HEADER_NAME,
    ONLINE_POSES_NAME,
    POSES_NAME,
    read_header,
)
from longtake.takes.take import Take, read_take

TAKE = "take"
_MOST_MADE = 2
"""At once: more would hold up the worker."""
_THREADS = _MOST_MADE + 2
"""For who is refused, and for pictures, beside those in which something is made."""
_MOST_KEPT = 8
"""Made or being sent: each is a copy on the disk."""
_PREFIX = "download-"
_UNDATED = (1980, 1, 1, 0, 0, 0)

_Made = TypeVar("_Made")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Download:
    """A file to send, and the folder to remove afterwards."""

    path: Path
    folder: Path


class Downloads:
    """Makes files of sessions; safe for threads."""

    def __init__(self, folder: Path) -> None:
        """In this folder, beside the sessions, the files are made."""
        self._folder = folder.resolve()
        self._lock = threading.Lock()
        self._num_made = self._num_kept = 0
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="longtake-download")

    async def in_thread(self, function: Callable[..., _Made], *arguments: Any) -> _Made:
        """Call this in a thread for downloads: however long they take, nothing else waits for one of theirs."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def close(self) -> None:
        """End the threads; what is being made is given up with the server."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def clear(self) -> None:
        """Remove what a server left that was killed."""
        for path in self._folder.glob(f"{_PREFIX}*"):
            shutil.rmtree(path, ignore_errors=True)

    def make(self, session: ServedSession, format: str) -> Download:
        """Of the frames that are final now; takes its time. `remove` is to follow."""
        _require_format(format)
        session.note_use()
        recorded = _final(session)
        with self._making(), _telling(session), ExitStack() as unless_made:
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._folder))
            unless_made.callback(shutil.rmtree, folder, ignore_errors=True)
            made = Download(_make(session, recorded, format, folder), folder)
            unless_made.pop_all()
            return made

    def remove(self, download: Download) -> None:
        shutil.rmtree(download.folder, ignore_errors=True)
        with self._lock:
            self._num_kept -= 1

    @contextmanager
    def _making(self) -> Iterator[None]:
        with self._lock:
            if self._num_made >= _MOST_MADE or self._num_kept >= _MOST_KEPT:
                raise RequestError(
                    "too_many_downloads", "Too many downloads are under way; try again when one has ended.", status=429
                )
            self._num_made += 1
            self._num_kept += 1
        try:
            yield
        except BaseException:
            with self._lock:
                self._num_kept -= 1
            raise
        finally:
            with self._lock:
                self._num_made -= 1


def picture(session: ServedSession, number: int, side: int) -> bytes:
    """A frame as it was taken, as JPEG with a longer side of at most so many pixels."""
    folder = session.shelf.folder / PICTURES_NAME
    jpeg = None
    if number < session.record.num_frames:
        jpeg = read_jpeg(folder, number)
        if jpeg is None:
            session.settle()
            jpeg = read_jpeg(folder, number)
    if jpeg is None:
        raise RequestError("unknown_frame", f"There is no picture of frame {number} in this session.", status=404)
    return smaller(jpeg, side)


def _require_format(name: str) -> None:
    """A client names formats of ours alone: another would be a module to import."""
    offered = [known.name for known in FORMATS.values() if known.package is None or find_spec(known.package)]
    if name not in offered:
        raise RequestError("unknown_format", f"Expected format as {', '.join(offered)}, but got {name[:40]!r}.")


def _final(session: ServedSession) -> Recorded:
    """What is in its take by now, one frame at least."""
    if session.record.spec.model is None:
        raise RequestError(
            "wrong_kind", "This session answers questions and has no map; open one with both.", status=409
        )
    session.settle()
    recorded = session.recorded
    if not recorded.num_frames and recorded.why_stopped is not None:
        raise RequestError(
            "not_recorded",
            f"Recording of this session stopped before a frame had its final place, so that there is nothing to "
            f"download: {recorded.why_stopped} When that is mended, open another session and send its frames again.",
            status=409,
        )
    if not recorded.num_frames:
        raise RequestError(
            "no_frames", "No frame of this session has a final place yet; send more, or finish it.", status=409
        )
    return recorded


@contextmanager
def _telling(session: ServedSession) -> Iterator[None]:
    """What goes wrong, without the names of the server's files."""
    try:
        yield
    except (InputError, OSError) as error:
        if session.state is SessionState.CLOSED:
            raise RequestError("unknown_session", "This session was closed meanwhile.", status=404) from error
        if isinstance(error, SavedSessionError):
            raise
        _log.warning("a download of session %s failed: %s", session.id, error)
        if isinstance(error, StorageError | OSError):
            raise RequestError(
                "storage",
                "The server's disk has no room to make this; the session is as it was: try again when its operator has "
                "made room.",
                status=507,
            ) from error
        raise RequestError("not_made", "This cannot be made of the session's take.", status=409) from error


def _make(session: ServedSession, recorded: Recorded, format: str, folder: Path) -> Path:
    place = session.shelf.folder.resolve()
    take = _snapshot(place / TAKE_NAME, recorded.num_frames, folder / TAKE)
    if session.record.recorded.num_frames == recorded.num_frames:  # else it was in memory a moment ago
        require_whole_files(take.folder, session.kept_lines)
    names = {str(path.relative_to(take.folder)) for path in _files_of(take)}
    digests = pixel_digests(place / DIGESTS_NAME)
    require_whole_files(take.folder, {name: digest for name, digest in digests.items() if name in names})
    if recorded.corrections is not None:
        take = correct_take(take.folder, recorded.corrections)
    if format == TAKE:
        (take.folder / SUMMARY_NAME).write_bytes(take_summary(session, recorded, take))
        return _zipped(folder / "take.zip", _files_of(take), folder)
    made = folder / "made" / FORMATS[format].file
    export_take(take, made.parent, ExportSettings(formats=(format,)))
    if made.is_file():
        return made
    files = sorted(path for path in made.rglob("*") if path.is_file())
    return _zipped(folder / f"{format}.zip", files, made.parent)


def _snapshot(take: Path, num_frames: int, folder: Path) -> Take:
    """The first frames of a take that may grow meanwhile, as a take of its own; their pixels, which stay, by links."""
    header = read_header(take)
    lines = (FRAMES_NAME, POSES_NAME, *([] if header.descriptor_channels is None else [DESCRIPTORS_NAME]))
    with ExitStack() as opened:
        wholes = {name: opened.enter_context(_opened(take / name)) for name in lines}
        folder.mkdir()
        (folder / HEADER_NAME).write_text(replace(header, num_frames=num_frames).to_json())
        for name, whole in wholes.items():
            with (folder / name).open("wb") as first:
                first.writelines(islice(whole, num_frames))
    for name in PIXEL_FOLDERS:
        (folder / name).symlink_to(take / name)
    return read_take(folder)


def _files_of(take: Take) -> Iterator[Path]:
    lines = (FRAMES_NAME, POSES_NAME, ONLINE_POSES_NAME, CORRECTIONS_NAME, DESCRIPTORS_NAME)
    for name in (HEADER_NAME, SUMMARY_NAME, *lines):
        if (take.folder / name).is_file():
            yield take.folder / name
    for record in take.records:
        for pattern in take.header.patterns:
            yield take.folder / pattern.format(index=record.index)


def _zipped(path: Path, files: Iterable[Path], root: Path) -> Path:
    """Stored as they are, for most of them do not shrink; the same bytes for the same files."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for file in files:
            entry = zipfile.ZipInfo(file.relative_to(root).as_posix(), _UNDATED)
            with _opened(file) as content:
                entry.file_size, entry.external_attr = file.stat().st_size, 0o644 << 16
                with archive.open(entry, "w") as packed:
                    shutil.copyfileobj(content, packed)
    return path


def _opened(path: Path) -> BinaryIO:
    """To read; where that fails, it is no want of room."""
    try:
        return path.open("rb")
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from error
