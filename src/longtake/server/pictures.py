"""The pictures of a session's frames on disk, one after the other as JPEG, small enough to look at.

pictures/
  index.bin     a row for each frame: where its JPEG begins in its file and how long it is, u32 each, and its time, f64
  000000.jpegs  the JPEGs of frames 0 to 255
  000256.jpegs  the next ones
"""

import struct
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from longtake.errors import SavedSessionError
from longtake.takes.atomic_files import GrowingFile, Grown, sync_path, writing
from longtake.takes.fields import JsonObject
from longtake.takes.images import encode_image

LARGEST_SIDE = 640
PER_FILE = 256
"""Frames: what was kept is read when a session comes back, so it must not grow without end."""
_INDEX_NAME = "index.bin"
_ROW = struct.Struct("<IId")
_QUALITY = 85


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPictures:
    """How far the pictures have grown."""

    index: Grown = field(default_factory=lambda: Grown(num_bytes=0))
    newest: Grown = field(default_factory=lambda: Grown(num_bytes=0))
    """The file of the newest one; nothing where that is full."""

    @property
    def num_pictures(self) -> int:
        return self.index.num_bytes // _ROW.size

    def to_record(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_record(cls, record: JsonObject) -> "KeptPictures":
        return cls(index=_grown(record.object("index")), newest=_grown(record.object("newest")))


class PictureLog:
    """Grows by a picture a frame; goes on after what is kept of an earlier one."""

    def __init__(self, folder: Path, kept: KeptPictures) -> None:
        self._folder, self._num_pictures = folder, kept.num_pictures
        with writing(str(folder)), ExitStack() as opened:
            folder.mkdir(exist_ok=True)
            for path in folder.glob("*.jpegs"):
                if int(path.stem) >= self._num_pictures:
                    path.unlink()
            self._index = opened.enter_context(GrowingFile(folder / _INDEX_NAME, kept=kept.index))
            self._newest: GrowingFile | None = None
            if self._num_pictures % PER_FILE:
                self._newest = GrowingFile(file_of(folder, self._num_pictures), kept=kept.newest)
            opened.pop_all()

    @property
    def kept(self) -> KeptPictures:
        newest = Grown(num_bytes=0) if self._newest is None else self._newest.grown
        return KeptPictures(index=self._index.grown, newest=newest)

    def add(self, jpeg: bytes, time_s: float) -> None:
        """The next frame's; who reads sees it when its row is there."""
        with writing(str(self._folder)):
            if self._newest is None:
                self._newest = GrowingFile(file_of(self._folder, self._num_pictures))
            start = self._newest.num_bytes
            self._newest.append(jpeg)
            self._index.append(_ROW.pack(start, len(jpeg), time_s))
            self._num_pictures += 1
            if self._num_pictures % PER_FILE == 0:
                self._newest.sync()
                self._newest.close()
                self._newest = None

    def sync(self) -> None:
        """Return when all of them are on the disk."""
        with writing(str(self._folder)):
            for file in (self._index, self._newest):
                if file is not None:
                    file.sync()
            sync_path(self._folder)

    def close(self) -> None:
        for file in (self._index, self._newest):
            if file is not None:
                file.close()


def file_of(folder: Path, number: int) -> Path:
    """The file that the picture of a frame is in."""
    return folder / f"{number // PER_FILE * PER_FILE:06d}.jpegs"


def is_full(path: Path, num_pictures: int) -> bool:
    """Whether a file of pictures never changes again, when so many are kept."""
    return int(path.stem) + PER_FILE <= num_pictures


def read_jpeg(folder: Path, number: int) -> bytes | None:
    """The picture of a frame as it was written; None where there is none."""
    try:
        with (folder / _INDEX_NAME).open("rb") as index:
            index.seek(number * _ROW.size)
            row = index.read(_ROW.size)
        if len(row) < _ROW.size:
            return None
        start, num_bytes, _ = _ROW.unpack(row)
        with file_of(folder, number).open("rb") as file:
            file.seek(start)
            return file.read(num_bytes)
    except FileNotFoundError:
        return None


def read_times(folder: Path) -> list[float]:
    """When each frame that has a picture was taken, in seconds."""
    try:
        rows = (folder / _INDEX_NAME).read_bytes()
    except FileNotFoundError:
        return []
    return [time_s for _, _, time_s in _ROW.iter_unpack(rows[: len(rows) // _ROW.size * _ROW.size])]


def frame_at(folder: Path, time_s: float) -> int | None:
    """The frame that was taken at this time and has a picture, by halving; None where there is none."""
    try:
        with (folder / _INDEX_NAME).open("rb") as index:
            first, after = 0, index.seek(0, 2) // _ROW.size
            while first < after:
                middle = (first + after) // 2
                index.seek(middle * _ROW.size)
                _, _, found_s = _ROW.unpack(index.read(_ROW.size))
                if found_s == time_s:
                    return middle
                first, after = (middle + 1, after) if found_s < time_s else (first, middle)
    except FileNotFoundError:
        pass
    return None


def as_jpeg(picture: UInt8[np.ndarray, "height width 3"]) -> bytes:
    """As it is kept."""
    return _encode(Image.fromarray(picture), LARGEST_SIDE)


def smaller(jpeg: bytes, side: int) -> bytes:
    """The same picture with a longer side of at most so many pixels."""
    try:
        with Image.open(BytesIO(jpeg), formats=["JPEG"]) as image:
            return jpeg if max(image.size) <= side else _encode(image, side)
    except (OSError, SyntaxError, ValueError) as error:
        raise SavedSessionError(
            f"This picture was damaged or changed on the server's disk ({error}); the session's others may be whole."
        ) from error


def _encode(image: Image.Image, side: int) -> bytes:
    if max(image.size) > side:
        scale = side / max(image.size)
        size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
        image = image.resize(size, Image.Resampling.BILINEAR, reducing_gap=1.0)
    return encode_image(image, ".jpg", quality=_QUALITY)


def _grown(record: JsonObject) -> Grown:
    return Grown(num_bytes=record.integer("num_bytes"), sha256=record.optional("sha256", record.text))
