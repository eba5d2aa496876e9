"""Writes a take while its frames come; a killed writer leaves a take of the frames before."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any

from longtake.errors import InputError
from longtake.takes.depth_files import CONFIDENCE_FILES, write_array
from longtake.takes.frames import FrameRecord, TakeFrame
from longtake.takes.header import (
    ANSWERS_NAME,
    FRAMES_NAME,
    HEADER_NAME,
    POSES_NAME,
    QUESTIONS_NAME,
    TakeHeader,
    is_take,
)
from longtake.takes.images import WRITE_ERRORS, ImageFiles, ImageWriter, open_image_writer, require_writable_size
from longtake.takes.tum import tum_line

_NUMBERED_FOLDERS = ("images", "depth", "confidence")


class TakeWriter:
    """A take that grows in a `with` block: `writer.write(frame)` for each frame, in order."""

    def __init__(self, folder: Path, header: TakeHeader, *, overwrite: bool = False) -> None:
        """The folder must be new or empty, or with `overwrite` a take, which is deleted when the block begins."""
        if header.images is not None:
            require_writable_size(header.images, header.size)
        self.num_pixels_too_far = 0
        """Depth so far that 16 bits could not hold it, written as invalid."""
        self._folder, self._header, self._overwrite = folder, header, overwrite
        self._header_text = header.to_json()
        self._open: _OpenFiles | None = None
        self._last: tuple[int, float] | None = None

    def __enter__(self) -> "TakeWriter":
        assert self._open is None, "a writer writes one take"
        with _one_sentence(self._folder):
            _make_room(self._folder, overwrite=self._overwrite)
            _replace_text(self._folder / HEADER_NAME, self._header_text)
            self._open = _OpenFiles(self._folder, self._header)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close()

    def write(self, frame: TakeFrame) -> None:
        """Add a frame; it counts once its two lines are on their way to the disk, after everything they name."""
        self._require_fit(frame)
        if self._open is None:
            raise InputError(f"The take {self._folder} is closed; write frames inside its with block.")
        try:
            with _one_sentence(self._folder):
                self._write_pixels(self._open, frame)
                _append(self._open.records, FrameRecord.of(frame).line())
                _append(self._open.poses, tum_line(float(frame.timestamp_s), frame.world_from_camera.cpu()))
        except InputError:
            self._close()  # a line may be torn, and nothing may follow it
            raise
        self._last = frame.index, frame.timestamp_s

    def write_questions(self, questions: Sequence[Mapping[str, Any]]) -> None:
        """Add what was asked about the take, at any time."""
        with _one_sentence(self._folder):
            _replace_text(self._folder / QUESTIONS_NAME, json.dumps(list(questions), indent=2, allow_nan=False) + "\n")

    def _write_pixels(self, files: "_OpenFiles", frame: TakeFrame) -> None:
        if files.images is not None and frame.image is not None:
            files.images.write(frame.index, frame.timestamp_s, frame.image)
        if self._header.depth is not None and frame.depth is not None:
            self.num_pixels_too_far += self._header.depth.write(self._folder, frame.index, frame.depth)
        if frame.confidence is not None:
            write_array(self._folder / CONFIDENCE_FILES.format(index=frame.index), "confidence", frame.confidence)

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

    def _close(self) -> None:
        files, self._open = self._open, None
        if files is not None:
            with _one_sentence(self._folder):
                files.close()


class _OpenFiles:
    """The files that grow."""

    def __init__(self, folder: Path, header: TakeHeader) -> None:
        for pattern in header.patterns:
            (folder / pattern).parent.mkdir(exist_ok=True)
        with ExitStack() as opened:
            self.records = opened.enter_context((folder / FRAMES_NAME).open("wb", buffering=0))
            self.poses = opened.enter_context((folder / POSES_NAME).open("wb", buffering=0))
            self.images: ImageWriter | None = None
            if header.images is not None:
                self.images = open_image_writer(folder, header.images, header.size, header.fps)
                opened.callback(self.images.close)
            self._opened = opened.pop_all()

    def close(self) -> None:
        self._opened.close()


@contextmanager
def _one_sentence(folder: Path) -> Iterator[None]:
    try:
        yield
    except WRITE_ERRORS as error:
        raise InputError(
            f"The take {folder} cannot be written ({error.strerror or error}); make room there or name another folder."
        ) from error


def _make_room(folder: Path, *, overwrite: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        return
    if not is_take(folder):
        raise InputError(f"Expected a new or empty folder for a take, but {folder} holds other files; name another.")
    if not overwrite:
        raise InputError(f"{folder} holds a take already; name another folder, or ask for it to be overwritten.")
    _delete_take(folder)


def _delete_take(folder: Path) -> None:
    """Delete a take's files, those that make it one last; whatever else lies in its folder stays."""
    for name in _NUMBERED_FOLDERS:
        for path in (folder / name).glob("*"):
            if re.fullmatch(r"\d{6,}\.(png|jpg|npz)", path.name):
                path.unlink()
    for name in (ImageFiles.VIDEO, QUESTIONS_NAME, ANSWERS_NAME, FRAMES_NAME, POSES_NAME, HEADER_NAME):
        (folder / name).unlink(missing_ok=True)


def _replace_text(path: Path, text: str) -> None:
    """Write a small file that is complete or absent."""
    unfinished = path.with_name(path.name + ".unfinished")
    with unfinished.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def _append(file: FileIO, line: str) -> None:
    """One write, unbuffered: the line leaves at once, and no rest of it is left to a later close."""
    data = f"{line}\n".encode()
    if file.write(data) != len(data):
        raise OSError("the disk took only a part of a line")


def _described(name: str, size: tuple[int, ...] | None) -> str:
    return f"no {name}" if size is None else f"{name} of {size[1]}x{size[0]}"
