"""Cameras and network streams: frames as they arrive, reconnected when they break off."""

import logging
import time
from collections.abc import Generator
from contextlib import closing
from functools import partial
from urllib.parse import urlsplit

import av
from av.container import InputContainer

from longtake.errors import InputError
from longtake.video.addresses import shown_address
from longtake.video.decoding import Address, Decoder, LostFrame, RgbConverter, note_on, video_stream
from longtake.video.files import VideoFile
from longtake.video.frame import PendingFrame
from longtake.video.reading import EVERY_FRAME, Source
from longtake.video.sampling import Extent, FrameSampling
from longtake.video.timeouts import DEFAULT_TIMEOUTS, StreamTimeouts

_SMALLEST_STEP_S = 0.001
# Before there was a picture, these will not get better by waiting.
_FINAL_ERRORS = (
    av.HTTPClientError,
    av.ProtocolNotFoundError,
    av.DemuxerNotFoundError,
    av.DecoderNotFoundError,
    av.FileNotFoundError,
    av.PermissionError,
)

# FFmpeg looks at a stream before it hands out frames, which then come all at once; our clock needs no frame rate.
_STREAM_OPTIONS = {"fpsprobesize": "0", "analyzeduration": "2000000", "rtsp_transport": "tcp"}
# FFmpeg itself goes on where a file on a server broke off, if the server can begin in the middle.
_HTTP_OPTIONS = {"reconnect": "1", "reconnect_delay_max": "8"}

_log = logging.getLogger(__name__)


class LiveStream(Source):
    """A stream that goes on while nobody watches. Times are those of arrival, counted from the first frame.

    When it ends or breaks off it is opened again; the first frame afterwards is preceded by one without a picture that
    tells how long the gap was.
    """

    def __init__(
        self,
        address: Address,
        sampling: FrameSampling = EVERY_FRAME,
        *,
        threads: int = 0,
        timeouts: StreamTimeouts = DEFAULT_TIMEOUTS,
        opened: InputContainer | None = None,
    ) -> None:
        """`opened` is the address where it is open already, and is read first."""
        super().__init__(address.name, sampling, is_live=True)
        self._address, self._threads, self._timeouts = address, threads, timeouts
        self._opened = opened

    @property
    def extent(self) -> Extent:
        return Extent()

    def all_frames(self) -> Generator[PendingFrame, None, None]:
        clock = _ArrivalClock()
        pause_s = self._timeouts.first_pause_s
        while not self._stopped.is_set():
            num_before = clock.num_pictures
            try:
                has_end = yield from self._connected(clock)
                reason = "it ended"
            except av.FFmpegError as error:
                if not clock.num_pictures and isinstance(error, _FINAL_ERRORS):
                    raise _no_video(self.name, error) from None
                has_end, reason = False, _reason(error)
            if has_end:
                return
            if clock.num_pictures > num_before:
                pause_s = self._timeouts.first_pause_s
            self._wait(clock, pause_s, reason)
            pause_s = min(2 * pause_s, self._timeouts.longest_pause_s)

    def _connected(self, clock: "_ArrivalClock") -> Generator[PendingFrame, None, bool]:
        """Frames of one connection; returns whether that was all there is, as in a recording that a server plays."""
        container, self._opened = self._opened or self._address.open(), None
        with container:
            clock.has_answered = True
            # Frames that are decoded side by side would come late.
            stream = video_stream(container, self.name)
            decoder = Decoder(container, stream, threads=self._threads, ahead="SLICE")
            converter = RgbConverter(self._threads, stream.sample_aspect_ratio)
            num_before = clock.num_pictures
            with closing(decoder.frames()) as frames:
                for frame in frames:
                    has_begun = clock.num_pictures > num_before
                    # Who joins in the middle cannot decode anything before the next keyframe, and has lost nothing.
                    if isinstance(frame, LostFrame) and has_begun:
                        yield PendingFrame.unreadable(clock.stamp(), f"A frame of {self.name} came in damaged.")
                    elif isinstance(frame, av.VideoFrame):
                        if clock.num_pictures and not has_begun:
                            problem = f"{self.name} broke off and was reconnected after {clock.silence_s:.1f} s."
                            yield PendingFrame.unreadable(clock.stamp(), problem)
                        clock.num_pictures += 1
                        self.note = self.note or note_on(frame, self.name)
                        yield PendingFrame(clock.stamp(), partial(converter.convert, frame))
                        clock.listen()
            return container.format.name == "rtsp" and container.duration is not None

    def _wait(self, clock: "_ArrivalClock", pause_s: float, reason: str) -> None:
        most_s = self._timeouts.max_silence_s
        if not clock.has_answered:
            most_s = min(most_s, self._timeouts.open_timeout_s)
        left_s = most_s - clock.silence_s
        if left_s <= 0:
            raise _silent(self.name, clock.silence_s, reason)
        _log.info("%s broke off (%s); trying again in %.1f s.", self.name, reason, pause_s)
        self._stopped.wait(min(pause_s, left_s))


class _ArrivalClock:
    """Times of arrival, counted from the first picture, and how long there has been none."""

    def __init__(self) -> None:
        self.num_pictures = 0
        self.has_answered = False
        """Whether there was a connection."""
        self._first_s: float | None = None
        self._last_s = -_SMALLEST_STEP_S
        self._listening_since_s = time.monotonic()

    @property
    def silence_s(self) -> float:
        """How long the reader has waited since the last picture."""
        return time.monotonic() - self._listening_since_s

    def listen(self) -> None:
        """Called when the reader asks for the next picture: only from now on it can be late."""
        self._listening_since_s = time.monotonic()

    def stamp(self) -> float:
        now_s = time.monotonic()
        self._first_s = now_s if self._first_s is None else self._first_s
        self._last_s = max(now_s - self._first_s, self._last_s + _SMALLEST_STEP_S)
        return self._last_s


def open_stream(
    url: str, sampling: FrameSampling = EVERY_FRAME, *, threads: int = 0, timeouts: StreamTimeouts = DEFAULT_TIMEOUTS
) -> Source:
    """A stream, or a file that lies on a server: every frame of that is read, at the file's own times."""
    _require_address(url)
    is_http = url.lower().startswith("http")
    address = Address(
        url=url,
        name=shown_address(url),
        options={**_STREAM_OPTIONS, **(_HTTP_OPTIONS if is_http else {})},
        open_timeout_s=timeouts.open_timeout_s,
        read_timeout_s=timeouts.read_timeout_s,
    )
    opened = _open_now(address) if is_http else None
    if opened is not None and _is_file(opened):
        return VideoFile(address, sampling, threads=threads, opened=opened)
    return LiveStream(address, sampling, threads=threads, timeouts=timeouts, opened=opened)


def _require_address(url: str) -> None:
    try:
        urlsplit(url)
    except ValueError:
        raise InputError(f"Expected an address such as rtsp://host/path, but got '{shown_address(url)}'.") from None


def _open_now(address: Address) -> InputContainer | None:
    """What a server has there, to see whether it is a file; None for what may be a stream that is yet to start."""
    started_s = time.monotonic()
    try:
        return address.open()
    except _FINAL_ERRORS as error:
        raise _no_video(address.name, error) from None
    except av.FFmpegError as error:
        silence_s = time.monotonic() - started_s
        if address.open_timeout_s is not None and silence_s >= address.open_timeout_s:
            raise _silent(address.name, silence_s, _reason(error)) from None
        return None


def _no_video(name: str, error: av.FFmpegError) -> InputError:
    """To be raised without its cause, which says the whole address."""
    return InputError(f"Expected a video from {name}, but got none ({_reason(error)}).")


def _silent(name: str, silence_s: float, reason: str) -> InputError:
    return InputError(
        f"Expected pictures from {name}, but none came for {silence_s:.0f} s ({reason}); check that it is running."
    )


def _reason(error: av.FFmpegError) -> str:
    """FFmpeg's own, but for its words on a timeout."""
    return "it did not answer" if isinstance(error, av.ExitError) else error.strerror or type(error).__name__


def _is_file(container: InputContainer) -> bool:
    """Whether a server knows where it ends."""
    if container.format.name in ("hls", "dash"):
        return container.duration is not None
    return container.size > 0 or any(stream.frames for stream in container.streams.video)
