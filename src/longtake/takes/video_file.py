"""Images of a take in one MP4 that can be read up to where its writer was killed; of `takes`, this alone loads PyAV."""

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.video.reformatter import ColorRange, Colorspace, Interpolation
from jaxtyping import UInt8

from longtake.errors import InputError
from longtake.takes.images import require_size

_TICKS_PER_S = 90_000
_LARGEST_GAP_TICKS = 6 * 3600 * _TICKS_PER_S
"""An MP4 has 31 bits for the time between two frames."""
_TIME_BASE = Fraction(1, _TICKS_PER_S)
_NOMINAL_FPS = 30
# Nothing waits for later frames and one thread codes them, so that each frame reaches the disk when the next one is
# written, and the same frames make the same file.
_ENCODER = {
    "preset": "veryfast",
    "tune": "zerolatency",
    "crf": "12",
    "threads": "1",
    "g": "30",
    "chroma_sample_location": "center",  # where the converter puts colours; a reader assumes the left otherwise
}
# A fragment for each frame while the file grows; closing it adds the index of an ordinary MP4.
_CONTAINER = {"movflags": "hybrid_fragmented+frag_every_frame", "flush_packets": "1"}
# The converter's defaults repeat colours over two pixels and darken by two levels.
_COLOURS = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT


class VideoWriter:
    """H.264 in an MP4 whose clock starts with the first frame; frames need not be evenly spaced."""

    def __init__(self, path: Path, size: tuple[int, int], fps: float | None) -> None:
        height, width = size
        self._first_s: float | None = None
        self._last_tick = -1
        with _as_os_error():
            self._container = av.open(str(path), "w", format="mp4", options=_CONTAINER)
        # The rate is a hint to the encoder, which refuses extremes; each frame has its own time.
        rate = Fraction(min(max(fps or _NOMINAL_FPS, 1), 1000)).limit_denominator(1001)
        self._stream = self._container.add_stream("libx264", rate=rate, options=_ENCODER)
        self._stream.width, self._stream.height, self._stream.pix_fmt = width, height, "yuv420p"
        self._stream.time_base = self._stream.codec_context.time_base = _TIME_BASE
        self._stream.codec_context.colorspace = Colorspace.ITU601
        self._stream.codec_context.color_range = ColorRange.MPEG

    def write(self, index: int, timestamp_s: float, image: UInt8[np.ndarray, "height width 3"]) -> None:
        if self._first_s is None:
            self._first_s = timestamp_s
        tick = round((timestamp_s - self._first_s) * _TICKS_PER_S)
        if not 0 < tick - self._last_tick <= _LARGEST_GAP_TICKS:
            raise InputError(
                f"Expected frame {index} from 1/{_TICKS_PER_S} s to 6 hours after the one before, but it came at "
                f"{timestamp_s} s; write the images as PNG instead."
            )
        self._last_tick = tick
        rgb = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
        frame = rgb.reformat(
            format="yuv420p",
            interpolation=_COLOURS,
            dst_colorspace=Colorspace.ITU601,
            dst_color_range=ColorRange.MPEG,
        )
        frame.pts, frame.time_base = tick, _TIME_BASE
        with _as_os_error():
            self._container.mux(self._stream.encode(frame))

    def close(self) -> None:
        with _as_os_error():
            try:
                self._container.mux(self._stream.encode(None))
            finally:
                self._container.close()


@contextmanager
def _as_os_error() -> Iterator[None]:
    """What the disk does not take is an OSError, whoever writes it."""
    try:
        yield
    except av.FFmpegError as error:
        raise OSError(error.errno, error.strerror) from error


def read_video(path: Path, size: tuple[int, int]) -> Iterator[UInt8[np.ndarray, "height width 3"]]:
    """The video's images in order, one in memory at a time."""
    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            require_size((stream.height, stream.width), size, path)  # before there is room for a frame
            for frame in container.decode(stream):
                require_size((frame.height, frame.width), size, path)
                yield frame.to_ndarray(format="rgb24", interpolation=_COLOURS)
    except (av.FFmpegError, OSError, IndexError) as error:
        raise InputError(f"Expected a video in {path}, but it cannot be read ({error}).") from error
