"""Folders of pictures, a frame each: in natural order, finished or still being written."""

import math
import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from longtake.errors import InputError, SettingError
from longtake.types import counted
from longtake.video.contents import contents_of
from longtake.video.frame import PendingFrame
from longtake.video.reading import EVERY_FRAME, Source
from longtake.video.resize import open_image
from longtake.video.sampling import Extent, FrameSampling

PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp", ".ppm", ".pgm", ".pnm", ".jp2", ".avif")
VIDEO_SUFFIXES = (
    *(".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".ts", ".mts", ".m2ts"),
    *(".mpg", ".mpeg", ".flv", ".wmv", ".3gp", ".ogv"),
)
DONE_NAME = ".done"
"""An empty file of this name says that a folder will get no more pictures."""
NOMINAL_FPS = 30.0


class Pictures(Source):
    """Pictures in files, a frame each, evenly spaced in time."""

    def __init__(
        self,
        name: str,
        paths: Sequence[Path],
        sampling: FrameSampling = EVERY_FRAME,
        *,
        fps: float = NOMINAL_FPS,
        note: str | None = None,
    ) -> None:
        super().__init__(name, sampling)
        _require_rate(fps)
        self._paths, self._fps = tuple(paths), fps
        notes = (note, _note_left_out(self.name, len(paths), self.num_frames, fps))
        self.note = " ".join(filter(None, notes)) or None

    @property
    def extent(self) -> Extent:
        return Extent(num_frames=len(self._paths), fps=self._fps)

    @property
    def files(self) -> Sequence[Path]:
        return self._paths

    def all_frames(self) -> Generator[PendingFrame, None, None]:
        for place, path in enumerate(self._paths):
            yield PendingFrame(place / self._fps, partial(read_picture, path), name=path.stem)


def open_folder(folder: Path, sampling: FrameSampling = EVERY_FRAME, *, fps: float = NOMINAL_FPS) -> Pictures:
    """The pictures that lie in a folder now, img2 before img10."""
    paths, videos = pictures_in(folder), videos_in(folder)
    if not paths and videos:
        raise InputError(
            f"Expected pictures in the folder {folder}, but it holds videos ({len(videos)}, {videos[0].name} first); "
            "name one of them, or give the folder to longtake map, which takes them all."
        )
    if not paths:
        raise InputError(
            f"Expected pictures in the folder {folder}, but found none; they end in {', '.join(PICTURE_SUFFIXES)}."
        )
    return Pictures(str(folder), paths, sampling, fps=fps, note=_note_beside(folder, len(paths), videos))


def _note_left_out(name: str, num_pictures: int, num_taken: int | None, fps: float) -> str | None:
    """What is said of pictures that sampling does not take, for whoever meant all of them."""
    if num_taken in (None, num_pictures):
        return None
    return (
        f"Of {counted(num_pictures, 'picture')} in {name} {num_taken} are taken, as fps, stride, start and end ask; "
        f"they count as {fps:g} pictures a second, which --picture-fps (picture_fps=...) changes."
    )


def _note_beside(folder: Path, num_pictures: int, videos: Sequence[Path]) -> str | None:
    """What is said of videos that lie beside pictures, for whoever meant those."""
    if not videos:
        return None
    return (
        f"{folder} holds {counted(num_pictures, 'picture')} and {counted(len(videos), 'video')}; only pictures are "
        f"read of it: name a video itself, as {videos[0]}, or move them into a folder of their own."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowSettings:
    """How a folder that is still being written is polled."""

    poll_s: float = 0.2
    idle_s: float = 10.0
    """If nothing is written for so long, the folder is taken to be finished."""
    damaged_s: float = 2.0
    """A file that has not changed for so long and cannot be read will not get better."""

    def __post_init__(self) -> None:
        for name, value in (("poll", self.poll_s), ("idle", self.idle_s), ("damaged", self.damaged_s)):
            if not value > 0:
                raise SettingError(f"Expected a time greater than 0 s for '{name}', but got {value} s.")


DEFAULT_FOLLOWING = FollowSettings()


class FollowedFolder(Source):
    """Pictures that appear in a folder, each taken once it is complete, until a file `.done` or too long a wait.

    Pictures that are there together come in natural order; one that is not complete holds up those behind it. Those
    that were taken stay in the order in which they were, however often they are read.
    """

    def __init__(
        self,
        folder: Path,
        sampling: FrameSampling = EVERY_FRAME,
        *,
        fps: float = NOMINAL_FPS,
        following: FollowSettings = DEFAULT_FOLLOWING,
    ) -> None:
        super().__init__(str(folder), sampling)
        _require_rate(fps)
        if not folder.is_dir():
            raise InputError(f"Expected a folder to follow at {folder}, but there is none; make it first.")
        self._folder, self._fps, self._following = folder, fps, following
        self._taken: list[Path] = []

    @property
    def extent(self) -> Extent:
        return Extent(fps=self._fps)

    @property
    def taken(self) -> Mapping[str, Any]:
        """The names of its pictures so far, and what tells whether they are still the same."""
        paths = list(self._taken)
        return {"pictures": [path.name for path in paths], **contents_of(paths)}

    def go_on_after(self, taken: Mapping[str, Any]) -> None:
        self._taken = [self._folder / name for name in taken["pictures"]]
        if self.taken != taken:
            gone = [path.name for path in self._taken if not path.exists()]
            found = f"{gone[0]} is gone" if gone else "they are others"
            raise InputError(
                f"Expected the pictures in {self.name} that the run has taken already, but {found}; put them back, or "
                "start again with --overwrite (overwrite=True)."
            )

    def all_frames(self) -> Generator[PendingFrame, None, None]:
        for place, path in enumerate(tuple(self._taken)):
            yield PendingFrame(place / self._fps, partial(read_picture, path), name=path.stem)
        yield from self._new_frames()

    def _new_frames(self) -> Generator[PendingFrame, None, None]:
        watched, taken = _Watched(), set(self._taken)
        idle_since_s = time.monotonic()
        while not self._stopped.is_set():
            # Asked before looking, so that what was there at the end is not missed.
            is_done = (self._folder / DONE_NAME).exists()
            new = [path for path in pictures_in(self._folder) if path not in taken]
            if watched.look(new):
                idle_since_s = time.monotonic()
            is_over = is_done or time.monotonic() - idle_since_s > self._following.idle_s
            for path in new:
                read = self._reader(path, watched.unchanged_s(path), is_over=is_over)
                if read is None:
                    break
                taken.add(path)
                self._taken.append(path)
                yield PendingFrame((len(taken) - 1) / self._fps, read, name=path.stem)
                idle_since_s = time.monotonic()
            if is_over:
                return
            self._stopped.wait(self._following.poll_s)

    def _reader(
        self, path: Path, unchanged_s: float, *, is_over: bool
    ) -> Callable[[], UInt8[np.ndarray, "height width 3"]] | None:
        """What gives the picture, None while it is not complete."""
        if is_over:
            return partial(read_picture, path)
        if unchanged_s < self._following.poll_s:
            return None
        try:
            picture = read_picture(path)
        except InputError:
            return partial(read_picture, path) if unchanged_s >= self._following.damaged_s else None
        return lambda: picture


class _Watched:
    """How long files have not changed."""

    def __init__(self) -> None:
        self._changed: dict[Path, tuple[tuple[int, int] | None, float]] = {}
        self._looked_s = 0.0

    def look(self, paths: Sequence[Path]) -> bool:
        """Look at these, and forget all others; returns whether any has changed or is new."""
        self._looked_s = time.monotonic()
        before, self._changed = self._changed, {}
        for path in paths:
            state = _state(path)
            then = before.get(path)
            self._changed[path] = then if then is not None and then[0] == state else (state, self._looked_s)
        return any(changed_s == self._looked_s for _, changed_s in self._changed.values())

    def unchanged_s(self, path: Path) -> float:
        """Between the looks at it; a file that was seen once may be changing."""
        return self._looked_s - self._changed[path][1]


def _state(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def pictures_in(folder: Path) -> list[Path]:
    """Files whose names say that they are pictures, in natural order; hidden ones are none."""
    return _files_in(folder, PICTURE_SUFFIXES)


def videos_in(folder: Path) -> list[Path]:
    """The same of videos."""
    return _files_in(folder, VIDEO_SUFFIXES)


def _files_in(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    try:
        paths = [
            path
            for path in folder.iterdir()
            if path.suffix.lower() in suffixes and not path.name.startswith(".") and not path.is_dir()
        ]
    except OSError as error:
        raise InputError(f"The folder {folder} cannot be read ({error.strerror}); check its permissions.") from error
    return sorted(paths, key=lambda path: natural_order(path.name))


def natural_order(name: str) -> tuple[list[str | int], str]:
    """Sorts numbers within names by their value, 07 before 7, and capitals like small letters."""
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if place % 2 else part.casefold() for place, part in enumerate(parts)], name


def read_picture(path: Path) -> UInt8[np.ndarray, "height width 3"]:
    """A file's picture, or an InputError that says why there is none."""
    if path.exists() and not path.is_file():
        raise InputError(f"Expected a picture, but '{path}' is a pipe or a device.")
    return np.asarray(open_image(path))


def _require_rate(fps: float) -> None:
    if not (math.isfinite(fps) and fps > 0):
        raise SettingError(f"Expected more than 0 pictures a second in a folder, but got {fps}.")
