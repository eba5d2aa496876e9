"""Videos, cameras, folders and worlds as frames that know their time."""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from longtake.api.arguments import checked_arguments
from longtake.types import counted
from longtake.video.frame import VideoFrame
from longtake.video.raw import Pixels, RawFrames
from longtake.video.sampling import FrameSampling, parse_time
from longtake.video.source import Source, SourceOptions, open_source

_log = logging.getLogger(__name__)


class Video:
    """Iterate for its frames; files, folders and worlds can be gone through again and again."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @property
    def name(self) -> str:
        return self._source.name

    @property
    def num_frames(self) -> int | None:
        """About how many frames will come; None where nobody can know."""
        return self._source.num_frames

    @property
    def is_live(self) -> bool:
        """Whether it does not wait for its reader."""
        return self._source.is_live

    def stop(self) -> None:
        """End the iteration soon, from any thread, and for good."""
        self._source.stop()

    def __iter__(self) -> Iterator[VideoFrame]:
        """Every frame that has a picture; one that cannot be read is left out and logged, as is what is to be known."""
        for place, frame in enumerate(self._source.frames()):
            if place == 0 and self._source.note is not None:
                _log.warning(self._source.note)
            if frame.problem is None:
                yield frame
            else:
                _log.warning("Frame %d is left out: %s", frame.index, frame.problem)

    def __repr__(self) -> str:
        count = "" if self.num_frames is None else f", about {counted(self.num_frames, 'frame')}"
        return f"Video({self.name}{count})"


@checked_arguments
def open_video(
    source: str | Path | Iterable[Pixels],
    *,
    start: str | float | None = None,
    end: str | float | None = None,
    fps: float | None = None,
    stride: int = 1,
    picture_fps: float | None = None,
    follow: bool = False,
) -> Video:
    """A video file, folder of pictures, take, `camera:0`, `rtsp://…`, `http://…` or `world:7` as frames.

    Also frames that a program has: numpy arrays, height x width x 3, or pairs of one and its time in seconds.

        for frame in longtake.open_video("walk.mp4", start="00:42", fps=10):
            print(frame.index, frame.timestamp_s, frame.image.shape)

    Times are seconds or texts such as "00:42". `fps` takes at most so many frames a second, `stride` every n-th of
    these; `picture_fps` is the rate of pictures that have no times, by default `fps`, or else 30; `follow` waits for
    more of them in a folder.
    """
    options = SourceOptions(follow=follow, picture_fps=picture_fps)
    return Video(open_any(source, frame_sampling(start, end, fps, stride), options))


def open_any(source: str | Path | Iterable[Pixels], sampling: FrameSampling, options: SourceOptions) -> Source:
    """What a text names, or the frames themselves."""
    if isinstance(source, str | Path):
        return open_source(str(source), sampling, options)
    return RawFrames(source, sampling, fps=options.rate_of_pictures(sampling))


def frame_sampling(start: str | float | None, end: str | float | None, fps: float | None, stride: int) -> FrameSampling:
    """Which frames are wanted, times as seconds or as people write them."""
    return FrameSampling(
        start_s=0.0 if start is None else _seconds(start),
        end_s=None if end is None else _seconds(end),
        fps=fps,
        stride=stride,
    )


def _seconds(time: str | float) -> float:
    return parse_time(time) if isinstance(time, str) else float(time)
