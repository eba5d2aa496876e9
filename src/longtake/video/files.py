"""Video files, each frame at its own presentation time."""

from collections.abc import Generator
from contextlib import closing, nullcontext
from fractions import Fraction
from functools import partial
from itertools import islice
from pathlib import Path

import av
from av.container import InputContainer
from av.video.stream import VideoStream

from longtake.errors import InputError
from longtake.video.addresses import address_digest
from longtake.video.decoding import Address, Decoder, LostFrame, RgbConverter, note_on, video_stream
from longtake.video.frame import PendingFrame
from longtake.video.matroska import num_missing_bytes
from longtake.video.reading import EVERY_FRAME, Source
from longtake.video.sampling import Extent, FrameSampling

_NOMINAL_FPS = Fraction(25)
_SMALLEST_STEP_S = 0.001
_LARGEST_SLIP_S = 1.0
_MICROSECONDS = 1_000_000
# These have an index of their keyframes, so that a jump lands where it should.
_INDEXED_FORMATS = ("mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm")
_SHORTEST_JUMP_S = 4.0
_RUN_UP_S = 1.0
"""How much earlier than asked for a jump aims, because keyframes are indexed by when they are decoded."""


class FileClock:
    """Seconds since a file's first frame, from timestamps that may be missing or wrong; they always increase.

    A frame without a timestamp comes one average interval after the one before. One that is not after the one before
    follows it by a millisecond, unless time goes back by more than a second: then the file's clock has started anew,
    as in recordings that were joined, and goes on one average interval after the last frame.
    """

    def __init__(self, time_base: Fraction, fps: Fraction) -> None:
        self._time_base, self._interval_s = time_base, float(1 / fps)
        self._first: int | None = None
        self._shift_s = 0.0
        self._last_s: float | None = None

    def read(self, pts: int | None) -> float:
        self._last_s = self._after(self._last_s, pts)
        return self._last_s

    def pts_at(self, elapsed_s: float) -> int:
        """The file's own timestamp of a moment."""
        return (self._first or 0) + round(elapsed_s / self._time_base)

    def _after(self, last_s: float | None, pts: int | None) -> float:
        if pts is None:
            return 0.0 if last_s is None else last_s + self._interval_s
        if self._first is None:
            # Frames without timestamps may have come before.
            self._first, self._shift_s = pts, 0.0 if last_s is None else last_s + self._interval_s
        elapsed_s = float((pts - self._first) * self._time_base) + self._shift_s
        if last_s is None or elapsed_s > last_s:
            return elapsed_s
        if elapsed_s > last_s - _LARGEST_SLIP_S:
            return last_s + _SMALLEST_STEP_S
        self._shift_s += last_s + self._interval_s - elapsed_s
        return last_s + self._interval_s


class VideoFile(Source):
    """A video that has an end, on disk or behind an address; read as far as it can be."""

    def __init__(
        self,
        place: Path | Address,
        sampling: FrameSampling = EVERY_FRAME,
        *,
        threads: int = 0,
        opened: InputContainer | None = None,
    ) -> None:
        """Looks into the file, and refuses what is no video. `threads` decode it; 0 lets FFmpeg choose.

        `opened` is the place where it is open already, and is read first.
        """
        self._address = Address.of_file(place) if isinstance(place, Path) else place
        digest = None if isinstance(place, Path) else address_digest(place.url)
        super().__init__(self._address.name, sampling, digest=digest)
        self._threads, self._opened = threads, opened
        with nullcontext(opened) if opened is not None else self._open() as container:
            self._extent = _extent(container, video_stream(container, self.name))

    @property
    def extent(self) -> Extent:
        return self._extent

    def all_frames(self) -> Generator[PendingFrame, None, None]:
        opened, self._opened = self._opened, None
        with opened or self._open() as container:
            stream = video_stream(container, self.name)
            decoder = Decoder(container, stream, threads=self._threads, ahead="AUTO")
            clock = FileClock(stream.time_base or Fraction(1, _MICROSECONDS), _fps(stream))
            pending = partial(self._pending, clock, RgbConverter(self._threads, stream.sample_aspect_ratio))
            jumps = self.sampling.start_s >= _SHORTEST_JUMP_S and container.format.name in _INDEXED_FORMATS
            try:
                with closing(decoder.frames()) as frames:
                    yield from map(pending, islice(frames, 1))
                    if jumps:
                        decoder.jump(clock.pts_at(self.sampling.start_s - _RUN_UP_S))
                    yield from map(pending, frames)
            except av.FFmpegError as error:
                if decoder.num_packets == stream.frames:
                    return  # a server that hangs up after the last frame
                problem = f"{self.name} cannot be read to its end ({error.strerror}); frames are missing."
                yield PendingFrame.unreadable(clock.read(None), problem)
                return
            num_missing = 0 if jumps else _num_indexed(stream) - decoder.num_packets
            if num_missing > 0:
                problem = f"{self.name} is damaged or cut off; {num_missing} of its frames are missing."
                yield PendingFrame.unreadable(clock.read(None), problem)
            elif num_bytes := self._num_missing_bytes:
                problem = f"{self.name} is cut off, its last {num_bytes} bytes are not there; frames are missing."
                yield PendingFrame.unreadable(clock.read(None), problem)

    @property
    def _num_missing_bytes(self) -> int:
        path = Path(self._address.url)
        return num_missing_bytes(path) if path.is_file() else 0

    def _open(self) -> InputContainer:
        try:
            return self._address.open()
        except av.FFmpegError as error:
            reason = "its index is missing" if _is_unfinished_mp4(self._address.url) else error.strerror
            raise InputError(  # without its cause, which says the whole address
                f"Expected a video in {self.name}, but it cannot be opened ({reason}); check that it plays."
            ) from None

    def _pending(self, clock: FileClock, converter: RgbConverter, frame: av.VideoFrame | LostFrame) -> PendingFrame:
        timestamp_s = clock.read(frame.pts)
        if isinstance(frame, LostFrame):
            return PendingFrame.unreadable(
                timestamp_s, f"The frame at {timestamp_s:.3f} s of {self.name} is damaged and cannot be decoded."
            )
        self.note = self.note or note_on(frame, self.name)
        return PendingFrame(timestamp_s, partial(converter.convert, frame))


def _extent(container: InputContainer, stream: VideoStream) -> Extent:
    fps = float(_fps(stream))
    if stream.frames:
        return Extent(num_frames=stream.frames, fps=fps)
    if container.duration is None:
        return Extent(fps=fps)
    return Extent(num_frames=round(container.duration / _MICROSECONDS * fps), fps=fps)


def _is_unfinished_mp4(path: str) -> bool:
    """Whether a file that cannot be opened begins like an MP4, whose index comes last and is lost when it is cut."""
    try:
        with Path(path).open("rb") as file:
            return file.read(8)[4:] == b"ftyp"
    except OSError:
        return False


def _fps(stream: VideoStream) -> Fraction:
    return stream.average_rate or stream.guessed_rate or _NOMINAL_FPS


def _num_indexed(stream: VideoStream) -> int:
    """Frames that the file's index promises; for some containers it names only a few. An empty entry is no frame."""
    return sum(entry.size > 0 for entry in stream.index_entries)
