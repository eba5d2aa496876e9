"""Compressed video to frames: what PyAV opens, its packets decoded, its frames converted to upright RGB."""

import heapq
import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import av
import numpy as np
from av.container import InputContainer
from av.packet import Packet
from av.sidedata.sidedata import SideData
from av.video.reformatter import Interpolation, VideoReformatter
from av.video.stream import VideoStream
from jaxtyping import Int, UInt8
from PIL import Image

from longtake.errors import InputError
from longtake.takes.picture_files import LARGEST_PIXELS, require_pixels
from longtake.video.resize import upright_rgb

if TYPE_CHECKING:
    _Packet: TypeAlias = Packet[VideoStream]
else:
    _Packet = Packet  # which takes no type while the program runs

# The converter's defaults repeat colours over two pixels and darken by two levels.
_COLOURS = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT
# It draws any text file as a terminal would show it.
_NO_VIDEO_FORMATS = ("tty",)

_LARGEST_PIXEL_ASPECT = 4
"""Beyond, what a file says of the shape of its pixels is damage."""
_NUM_REPORTED = 64
"""Timestamps of lost frames that are remembered, more than a decoder holds back."""
_WAIT_S, _LONGEST_WAIT_S = 0.005, 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """What PyAV opens, and how."""

    url: str = field(repr=False)
    name: str
    """The name that people see."""
    format: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    open_timeout_s: float | None = None
    read_timeout_s: float | None = None

    @classmethod
    def of_file(cls, path: Path) -> "Address":
        # A relative path such as a:b.mp4 would be taken for a protocol.
        return cls(url=str(path.absolute()), name=str(path))

    def open(self) -> InputContainer:
        """An open container, or one of PyAV's errors."""
        return av.open(
            self.url,
            "r",
            format=self.format,
            options=dict(self.options),
            metadata_errors="replace",
            timeout=(self.open_timeout_s, self.read_timeout_s),
        )


def video_stream(container: InputContainer, name: str) -> VideoStream:
    """The video track of a container; the cover of a music album does not count as one."""
    stream = container.streams.best("video")
    if not isinstance(stream, VideoStream) or stream.disposition & av.stream.Disposition.attached_pic:
        raise InputError(f"Expected a video in {name}, but it has no video track; choose another file.")
    if container.format.name in _NO_VIDEO_FORMATS:
        raise InputError(f"Expected a video in {name}, but it holds text; choose another file.")
    if not _is_decodable(stream.codec_context):
        raise InputError(f"Expected a video in {name}, but no decoder knows its codec; convert it to H.264.")
    require_pixels(stream.codec_context.width, stream.codec_context.height, name)
    return stream


def note_on(frame: av.VideoFrame, name: str) -> str | None:
    """What a viewer should know of a video with such a frame."""
    if not frame.interlaced_frame:
        return None
    return f"{name} is interlaced: each frame shows two moments, line by line; deinterlace it for better results."


def _is_decodable(codec_context: object) -> bool:
    """PyAV's types do not say that a stream may have none."""
    return codec_context is not None


@dataclass(frozen=True, slots=True)
class LostFrame:
    """A frame that is in the video but cannot be shown."""

    pts: int | None


class Decoder:
    """Decodes one track, and reports which frames were lost and when they should have come.

    A decoder that works on several frames at once tells of an error later than it happens, and not whose it is; frames
    that build on a damaged one may be missing without a word. So the times of packets wait in order until their frames
    come: after an error and up to the next keyframe, those that a later frame has overtaken are lost. At other times
    they were never meant to be shown.
    """

    def __init__(
        self, container: InputContainer, stream: VideoStream, *, threads: int, ahead: Literal["AUTO", "SLICE"]
    ) -> None:
        """`AUTO` decodes several frames at once where it can; `SLICE` holds none back."""
        stream.codec_context.thread_count = threads
        stream.codec_context.thread_type = ahead
        # The size of frames may change on the way.
        stream.codec_context.options = {"max_pixels": str(LARGEST_PIXELS)}
        self.num_packets = 0
        self._container, self._stream = container, stream
        self._waiting: list[int] = []
        self._damaged_until = -math.inf
        self._reported: deque[int] = deque(maxlen=_NUM_REPORTED)

    def frames(self) -> Generator[av.VideoFrame | LostFrame, None, None]:
        """Frames in the order of display. An error of the container comes after what could be decoded before it."""
        try:
            for packet in retry_demux(partial(self._container.demux, self._stream)):
                yield from self._decode(packet)
        except av.FFmpegError:
            yield from self._decode(None)
            yield from self._never_shown()
            raise
        yield from self._never_shown()

    def jump(self, pts: int) -> None:
        """Seek to the keyframe before this time; where there is none to be found, nothing changes."""
        with suppress(av.FFmpegError):
            self._container.seek(pts, stream=self._stream)
            self._waiting.clear()

    def _decode(self, packet: _Packet | None) -> Iterator[av.VideoFrame | LostFrame]:
        if packet is not None and packet.size:
            self.num_packets += 1
            if packet.pts is not None:
                heapq.heappush(self._waiting, packet.pts)
        try:
            frames = self._decoded(packet)
        except av.FFmpegError:
            frames = []
            if packet is not None and packet.size and packet.pts is None:
                yield LostFrame(None)
            else:
                self._damaged_until = math.inf if packet is None or packet.pts is None else packet.pts
        for frame in frames:
            if frame.pts is not None and frame.pts in self._reported:
                continue  # after damage some come late, when others have overtaken them
            yield from self._overtaken_by(frame)
            yield LostFrame(frame.pts) if frame.is_corrupt else frame

    def _decoded(self, packet: _Packet | None) -> list[av.VideoFrame]:
        # A transport stream suspects packets that are whole; elsewhere the file ends in the middle of this one.
        if packet is not None and packet.is_corrupt and self._container.format.name != "mpegts":
            raise av.InvalidDataError(0, "this packet is cut off")
        return self._stream.codec_context.decode(packet)

    def _overtaken_by(self, frame: av.VideoFrame) -> Iterator[LostFrame]:
        if frame.pts is None:
            return
        while self._waiting and self._waiting[0] <= frame.pts:
            earlier = heapq.heappop(self._waiting)
            if earlier < frame.pts and self._is_damaged:
                self._reported.append(earlier)
                yield LostFrame(earlier)
        if frame.is_corrupt:
            self._damaged_until = max(self._damaged_until, frame.pts)
        elif frame.key_frame and frame.pts > self._damaged_until:
            self._damaged_until = -math.inf

    @property
    def _is_damaged(self) -> bool:
        return self._damaged_until > -math.inf

    def _never_shown(self) -> Iterator[LostFrame]:
        """Frames whose packets came but which were never decoded, because of an error before the end."""
        if self._is_damaged:
            yield from (LostFrame(pts) for pts in sorted(self._waiting))


def retry_demux(demux: Callable[[], Iterator[_Packet]]) -> Iterator[_Packet]:
    """All packets of a container; asks again where a camera has none yet and raises instead of waiting."""
    asked_since_s = time.monotonic()
    while True:
        try:
            for packet in demux():
                yield packet
                asked_since_s = time.monotonic()
            return
        except av.BlockingIOError:
            if time.monotonic() - asked_since_s > _LONGEST_WAIT_S:
                raise
            time.sleep(_WAIT_S)


class RgbConverter:
    """Converts decoded frames to upright RGB pictures of square pixels."""

    def __init__(self, threads: int, pixel_aspect: Fraction | None) -> None:
        """`pixel_aspect` is a pixel's width over its height, None where the video does not say."""
        self._threads = threads
        is_stated = pixel_aspect is not None and 1 <= _LARGEST_PIXEL_ASPECT * pixel_aspect <= _LARGEST_PIXEL_ASPECT**2
        self._pixel_aspect = pixel_aspect if pixel_aspect is not None and is_stated else Fraction(1)
        self._reformatter = VideoReformatter()
        self._turn: _Turn | None = None

    def convert(self, frame: av.VideoFrame) -> UInt8[np.ndarray, "height width 3"]:
        has_alpha = any(component.is_alpha for component in frame.format.components)
        colours = "rgba" if has_alpha else "rgb24"
        try:
            converted = self._reformatter.reformat(
                frame,
                # The narrower way is drawn out, so that nothing is lost.
                width=round(frame.width * max(self._pixel_aspect, Fraction(1))),
                height=round(frame.height / min(self._pixel_aspect, Fraction(1))),
                format=colours,
                interpolation=_COLOURS,
                threads=self._threads,
            )
        except av.FFmpegError as error:
            raise InputError(f"A frame in pixels of {frame.format.name} cannot be converted to RGB.") from error
        pixels = np.asarray(converted.to_ndarray(), np.uint8)
        if has_alpha:
            pixels = np.asarray(upright_rgb(Image.fromarray(pixels)))
        matrix = self._turn_of(frame).matrix
        return np.ascontiguousarray(pixels if matrix is None else turned(pixels, matrix))

    def _turn_of(self, frame: av.VideoFrame) -> "_Turn":
        """How the video asks for a picture to be turned and mirrored, which changes with its keyframes.

        A frame whose side data were looked at is part of a cycle, and stays until garbage is collected: a hundred of
        them or more, at full size. So the others are only asked for their angle.
        """
        if self._turn is None or frame.key_frame or frame.rotation != self._turn.degrees:
            found = frame.side_data.get("DISPLAYMATRIX")
            matrix = np.frombuffer(bytes(found), np.int32) if isinstance(found, SideData) else None
            self._turn = _Turn(frame.rotation, None if matrix is None else matrix.reshape(3, 3)[:2, :2])
        return self._turn


@dataclass(frozen=True, slots=True, eq=False)
class _Turn:
    """Of a frame that was looked at."""

    degrees: int
    matrix: Int[np.ndarray, "2 2"] | None
    """As `turned` takes it; None for pictures that are shown as they are."""


def turned(
    pixels: UInt8[np.ndarray, "height width 3"], matrix: Int[np.ndarray, "2 2"]
) -> UInt8[np.ndarray, "turned_height turned_width 3"]:
    """The picture whose point (x, y) is shown at (x, y) @ matrix, up to its scale and a shift."""
    (from_x_to_x, from_x_to_y), (from_y_to_x, from_y_to_y) = matrix.tolist()
    if abs(from_x_to_x) + abs(from_y_to_y) < abs(from_x_to_y) + abs(from_y_to_x):
        pixels, to_x, to_y = pixels.swapaxes(0, 1), from_y_to_x, from_x_to_y
    else:
        to_x, to_y = from_x_to_x, from_y_to_y
    return pixels[:: -1 if to_y < 0 else 1, :: -1 if to_x < 0 else 1]
