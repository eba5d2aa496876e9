"""Writes a take while its frames come; a killed writer leaves a take of the frames before."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from longtake.errors import ChangedFileError, InputError
from longtake.takes.atomic_files import (
    GrowingFile,
    Grown,
    changed_file,
    replacing,
    require_unchanged,
    sync_path,
    writing,
)
from longtake.takes.corrections import restore_online
from longtake.takes.depth_files import CONFIDENCE_FILES, write_array
from longtake.takes.descriptors import descriptor_line
from longtake.takes.fields import require_file
from longtake.takes.frames import FrameRecord, TakeFrame
from longtake.takes.header import (
    ANSWERS_NAME,
    CORRECTIONS_NAME,
    DESCRIPTORS_NAME,
    FRAMES_NAME,
    HEADER_NAME,
    NUMBERED_FOLDERS,
    ONLINE_POSES_NAME,
    POSES_NAME,
    QUESTIONS_NAME,
    TakeHeader,
    is_take,
    read_header,
)
from longtake.takes.images import ImageFiles, ImageWriter, open_image_writer, require_writable_size
from longtake.takes.tum import tum_line

_MOST_UNSYNCED = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """Where a resumed take goes on: the lines that stay, and index and time of the last frame."""

    records: Grown | None = None
    poses: Grown | None = None
    descriptors: Grown | None = None
    last: tuple[int, float] | None = None


class TakeWriter:
    """A take that grows in a `with` block: `writer.write(frame)` for each frame, in order."""

    def __init__(self, folder: Path, header: TakeHeader, *, overwrite: bool = False, has_room: bool = False) -> None:
        """The folder must be new or empty, or with `overwrite` a take, which is deleted when the block begins.

        With `has_room`, it is one that `make_room_for_take` has prepared, whatever was put there since.
        """
        if header.images is not None:
            require_writable_size(header.images, header.size)
        self.num_pixels_too_far = 0
        """Depth so far that 16 bits could not hold it, written as invalid."""
        self._folder, self._header, self._overwrite, self._has_room = folder, header, overwrite, has_room
        self._header_text = header.to_json()
        self._num_kept: int | None = None
        self._num_frames = 0
        self._digests: Mapping[str, str] = {}
        self._open: _OpenFiles | None = None
        self._last: tuple[int, float] | None = None
        self._unsynced: list[int] = []

    @classmethod
    def resume(cls, folder: Path, num_frames: int, digests: Mapping[str, str] | None = None) -> "TakeWriter":
        """Goes on after so many frames of a take; what was written after them is deleted when the block begins.

        Their lines must have the digests that a writer had after them, where they are given.
        """
        header = read_header(folder)
        if header.images is ImageFiles.VIDEO:
            raise InputError(f"The images of {folder} are a video, which cannot be gone on with; make the take again.")
        writer = cls(folder, replace(header, num_frames=None))
        writer._num_kept, writer._digests = num_frames, digests or {}
        return writer

    def __enter__(self) -> "TakeWriter":
        assert self._open is None, "a writer writes one take"
        with _one_sentence(self._folder):
            kept = self._begin() if self._num_kept is None else self._cut_off(self._num_kept)
            _replace_text(self._folder / HEADER_NAME, self._header_text)
            self._open, self._last = _OpenFiles(self._folder, self._header, kept), kept.last
        self._num_frames = self._num_kept or 0
        return self

    @property
    def header(self) -> TakeHeader:
        return self._header

    @property
    def digests(self) -> Mapping[str, str]:
        """Of all lines so far, by their files."""
        if self._open is None:
            raise _closed(self._folder)
        files = {
            FRAMES_NAME: self._open.records,
            POSES_NAME: self._open.poses,
            DESCRIPTORS_NAME: self._open.descriptors,
        }
        return {name: str(file.grown.sha256) for name, file in files.items() if file is not None}

    def _begin(self) -> _Kept:
        if not self._has_room:
            make_room_for_take(self._folder, overwrite=self._overwrite)
        return _Kept()

    def _cut_off(self, num_frames: int) -> _Kept:
        """Delete what came after the first frames, of which the take must have so many; their lines stay as yet."""
        restore_online(self._folder)
        records, last_line = _first_lines(self._folder / FRAMES_NAME, num_frames)
        poses, _ = _first_lines(self._folder / POSES_NAME, num_frames)
        descriptors = None
        if self._header.descriptor_channels is not None:
            descriptors, _ = _first_lines(self._folder / DESCRIPTORS_NAME, num_frames)
        for name, grown in ((FRAMES_NAME, records), (POSES_NAME, poses), (DESCRIPTORS_NAME, descriptors)):
            if grown is not None:
                require_unchanged(self._folder / name, self._digests.get(name), str(grown.sha256))
        if num_frames == 0:
            _delete_numbered(self._folder, after=-1)
            return _Kept()
        last = FrameRecord.parse(last_line, f"{self._folder / FRAMES_NAME} line {num_frames}")
        _delete_numbered(self._folder, after=last.index)
        return _Kept(records=records, poses=poses, descriptors=descriptors, last=(last.index, last.timestamp_s))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Say in the header how many frames there are, so that a reader notices where some are lost later."""
        is_whole = self._open is not None
        self._close()
        if is_whole:
            with _one_sentence(self._folder):
                finished = replace(self._header, num_frames=self._num_frames)
                _replace_text(self._folder / HEADER_NAME, finished.to_json())

    def write(self, frame: TakeFrame) -> None:
        """Add a frame: its pixels first, then its two lines, without which a reader does not see it."""
        self._require_fit(frame)
        try:
            self.write_lines(frame, self.write_pixels(frame))
        except InputError:
            self._close()
            raise

    def write_pixels(self, frame: TakeFrame) -> int:
        """The files of a frame, before its lines; says how many pixels are too far for 16 bits.

        Frames to come may be written so in any order and by several threads, unless the images are a video.
        """
        self._require_fit(frame)
        if self._open is None:
            raise _closed(self._folder)
        try:
            with _one_sentence(self._folder):
                return self._write_pixels(self._open, frame)
        except InputError:
            self._delete_pixels(frame.index)
            raise

    def write_lines(self, frame: TakeFrame, num_pixels_too_far: int) -> None:
        """The lines of the next frame, whose pixels are written."""
        self._require_fit(frame)
        if self._open is None:
            raise _closed(self._folder)
        try:
            with _one_sentence(self._folder):
                if self._open.descriptors is not None:  # before the lines without which nobody reads it
                    self._open.descriptors.append(descriptor_line(frame.descriptor))
                self._open.records.append(f"{FrameRecord.of(frame).line()}\n".encode())
                pose = tum_line(float(frame.timestamp_s), frame.world_from_camera.cpu())
                self._open.poses.append(f"{pose}\n".encode())
        except InputError:
            self._close()  # one of the two lines may be there without the other, and nothing may follow it
            self._delete_pixels(frame.index)
            raise
        self.num_pixels_too_far += num_pixels_too_far
        self._last = frame.index, frame.timestamp_s
        self._num_frames += 1
        self._unsynced.append(frame.index)
        if len(self._unsynced) >= _MOST_UNSYNCED:
            self.sync()

    def sync(self) -> None:
        """Return when every frame written so far is on the disk."""
        if self._open is None:
            raise _closed(self._folder)
        with _one_sentence(self._folder):
            for index in self._unsynced:
                for path in self._numbered_files(index):
                    sync_path(path)
            self._unsynced.clear()
            for name in {(self._folder / pattern).parent for pattern in self._header.patterns} | {self._folder}:
                sync_path(name)
            self._open.records.sync()
            self._open.poses.sync()
            if self._open.descriptors is not None:
                self._open.descriptors.sync()

    def write_questions(self, questions: Sequence[Mapping[str, Any]]) -> None:
        """Add what was asked about the take, at any time."""
        with _one_sentence(self._folder):
            _replace_text(self._folder / QUESTIONS_NAME, json.dumps(list(questions), indent=2, allow_nan=False) + "\n")

    def _write_pixels(self, files: "_OpenFiles", frame: TakeFrame) -> int:
        num_too_far = 0
        if files.images is not None and frame.image is not None:
            files.images.write(frame.index, frame.timestamp_s, frame.image)
        if self._header.depth is not None and frame.depth is not None:
            num_too_far = self._header.depth.write(self._folder, frame.index, frame.depth)
        if frame.confidence is not None:
            write_array(self._folder / CONFIDENCE_FILES.format(index=frame.index), "confidence", frame.confidence)
        return num_too_far

    def _delete_pixels(self, index: int) -> None:
        """Delete the pixel files of a frame that could not be written whole; if that fails, no line names them."""
        with suppress(OSError):
            for path in self._numbered_files(index):
                path.unlink(missing_ok=True)

    def _numbered_files(self, index: int) -> list[Path]:
        patterns = [pattern for pattern in self._header.patterns if pattern != ImageFiles.VIDEO]
        return [self._folder / pattern.format(index=index) for pattern in patterns]

    def _require_fit(self, frame: TakeFrame) -> None:
        """Refuse, before anything is written, a frame that is not what the header says or comes out of order."""
        frame.require_camera()
        if self._last is not None and (frame.index <= self._last[0] or frame.timestamp_s <= self._last[1]):
            raise InputError(
                f"Expected a frame after index {self._last[0]} at {self._last[1]} s, but got index {frame.index} at "
                f"{frame.timestamp_s} s; write frames in order."
            )
        for name, promised, pixels in (
            ("image", self._header.images is not None, frame.image),
            ("depth", self._header.depth is not None, frame.depth),
            ("confidence", self._header.confidence, frame.confidence),
        ):
            found = None if pixels is None else pixels.shape[:2]
            expected = self._header.size if promised else None
            if found != expected:
                raise InputError(
                    f"Expected {_described(name, expected)} with frame {frame.index}, as the header says, but got "
                    f"{_described(name, found)}."
                )
        channels = self._header.descriptor_channels
        if frame.descriptor is not None and len(frame.descriptor) != channels:
            raise InputError(
                f"Expected {channels or 'no'} numbers as the descriptor of frame {frame.index}, as the header says, "
                f"but got {len(frame.descriptor)}."
            )

    def _close(self) -> None:
        files, self._open = self._open, None
        if files is not None:
            with _one_sentence(self._folder):
                files.close()


class _OpenFiles:
    """The files that grow."""

    def __init__(self, folder: Path, header: TakeHeader, kept: _Kept) -> None:
        for pattern in header.patterns:
            (folder / pattern).parent.mkdir(exist_ok=True)
        with ExitStack() as opened:
            self.records = opened.enter_context(GrowingFile(folder / FRAMES_NAME, kept=kept.records))
            self.poses = opened.enter_context(GrowingFile(folder / POSES_NAME, kept=kept.poses))
            self.descriptors: GrowingFile | None = None
            if header.descriptor_channels is not None:
                path = folder / DESCRIPTORS_NAME
                self.descriptors = opened.enter_context(GrowingFile(path, kept=kept.descriptors))
            self.images: ImageWriter | None = None
            if header.images is not None:
                self.images = open_image_writer(folder, header.images, header.size, header.fps)
                opened.callback(self.images.close)
            self._opened = opened.pop_all()

    def close(self) -> None:
        self._opened.close()


def make_room_for_take(folder: Path, *, overwrite: bool) -> None:
    """Make the folder; it must be new or empty, or with `overwrite` a take, which is deleted."""
    with _one_sentence(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.iterdir()):
            return
        if not is_take(folder):
            raise InputError(
                f"Expected a new or empty folder for a take, but {folder} holds other files; name another."
            )
        if not overwrite:
            raise InputError(
                f"{folder} holds a take already; name another folder, or replace it with --overwrite (overwrite=True)."
            )
        _delete_take(folder)


def _one_sentence(folder: Path) -> AbstractContextManager[None]:
    return writing(f"The take {folder}")


def _closed(folder: Path) -> InputError:
    return InputError(f"The take {folder} is closed; write frames inside its with block.")


def _first_lines(path: Path, num_lines: int) -> tuple[Grown, bytes]:
    """The first so many lines of a file, and the last of them."""
    num_bytes, line, digest = 0, b"", hashlib.sha256()
    require_file(path)
    if not path.exists():
        raise _lacks_lines(path, num_lines, "it is gone")
    with path.open("rb") as file:
        for number in range(num_lines):
            line = file.readline()
            if not line.endswith(b"\n"):
                raise _lacks_lines(path, num_lines, f"it has {number}")
            num_bytes += len(line)
            digest.update(line)
    return Grown(num_bytes=num_bytes, sha256=digest.hexdigest()), line


def _lacks_lines(path: Path, num_lines: int, found: str) -> ChangedFileError:
    return changed_file(f"Expected {num_lines} frames to go on after in {path}, but {found}")


def _delete_take(folder: Path) -> None:
    """Delete a take's files, those that make it one last; whatever else lies in its folder stays."""
    _delete_numbered(folder, after=-1)
    lines = (DESCRIPTORS_NAME, FRAMES_NAME, CORRECTIONS_NAME, ONLINE_POSES_NAME, POSES_NAME)
    for name in (ImageFiles.VIDEO, QUESTIONS_NAME, ANSWERS_NAME, *lines, HEADER_NAME):
        (folder / name).unlink(missing_ok=True)


def _delete_numbered(folder: Path, *, after: int) -> None:
    """Delete the pixels of all frames after one; links to folders elsewhere are not followed."""
    for name in NUMBERED_FOLDERS:
        for path in () if (folder / name).is_symlink() else (folder / name).glob("*"):
            if re.fullmatch(r"\d{6,}\.(png|jpg|npz)", path.name) and int(path.stem) > after:
                path.unlink()


def _replace_text(path: Path, text: str) -> None:
    """Write a small file that is complete or absent."""
    with replacing(path) as file:
        file.write(text.encode())


def _described(name: str, size: tuple[int, ...] | None) -> str:
    return f"no {name}" if size is None else f"{name} of {size[1]}x{size[0]}"
