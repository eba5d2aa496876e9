"""Opens a video source from text: a file, a folder, a camera, a stream, a world.

Sources are imported where one is opened: PyAV only where video is decoded, worlds only where one is filmed.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path

from longtake.errors import InputError, SettingError
from longtake.extras import import_own
from longtake.takes.header import is_take
from longtake.video.addresses import shown_address
from longtake.video.folders import (
    DEFAULT_FOLLOWING,
    NOMINAL_FPS,
    PICTURE_SUFFIXES,
    FollowedFolder,
    FollowSettings,
    Pictures,
    open_folder,
    pictures_in,
    videos_in,
)
from longtake.video.reading import EVERY_FRAME, Source
from longtake.video.sampling import FrameSampling
from longtake.video.timeouts import DEFAULT_TIMEOUTS, StreamTimeouts

__all__ = ["Source", "SourceOptions", "open_source"]

SCHEMES = ("http://", "https://", "rtsp://", "rtsps://", "rtmp://", "srt://", "udp://")
"""How the address of a stream begins."""
_OWN = re.compile(r"([A-Za-z_][\w.]*:[A-Za-z_]\w*)(?:\?(.*))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """How sources are read; each kind uses what concerns it."""

    picture_fps: float | None = None
    """Frames a second of pictures that have no times; None takes the rate asked for, so that none is left out by it."""
    follow: bool = False
    """Whether a folder is still being written."""
    following: FollowSettings = DEFAULT_FOLLOWING
    timeouts: StreamTimeouts = DEFAULT_TIMEOUTS
    """With cameras and streams."""
    threads: int = 0
    """To decode with; 0 lets FFmpeg choose."""
    device: str = "cpu"
    """Where worlds are drawn."""

    def __post_init__(self) -> None:
        if self.picture_fps is not None and not (math.isfinite(self.picture_fps) and self.picture_fps > 0):
            raise SettingError(f"Expected more than 0 pictures a second, but got {self.picture_fps}.")
        if self.threads < 0:
            raise SettingError(f"Expected a number of threads from 1, or 0 for as many as fit, but got {self.threads}.")

    def rate_of_pictures(self, sampling: FrameSampling) -> float:
        """Frames a second of pictures that have no times."""
        given = (self.picture_fps, sampling.fps)
        return next((fps for fps in given if fps is not None), NOMINAL_FPS)


DEFAULT_OPTIONS = SourceOptions()


def open_source(text: str, sampling: FrameSampling = EVERY_FRAME, options: SourceOptions = DEFAULT_OPTIONS) -> Source:
    """The source that a text names.

    rtsp://…, http://…           a network stream, or a file on a server
    camera:0, /dev/video0        a camera
    world:7?frames=300           a walk through a procedural house
    world:7?family=outdoors      another family of worlds
    a folder                     a take, or pictures in natural order
    a file                       a picture, or whatever FFmpeg decodes
    my_package.rig:open_rig?left a source of one's own: `open_rig("left", sampling, options)` returns it
    """
    if not text:
        raise InputError("Expected a video, a folder or a stream, but got an empty text; name one.")
    if options.follow:
        return _follow(text, sampling, options)
    if text.lower().startswith(SCHEMES):
        from longtake.video.streams import open_stream

        return open_stream(text, sampling, threads=options.threads, timeouts=options.timeouts)
    if text.startswith(("camera:", "/dev/video")):
        from longtake.video.cameras import open_camera

        return open_camera(text, sampling, threads=options.threads, timeouts=options.timeouts)
    if text.startswith("world:"):
        from longtake.video.worlds import open_world

        return open_world(text, sampling, device=options.device)
    if (own := _OWN.fullmatch(text)) and not _exists(Path(text)):
        return _open_own(own[1], own[2] or "", sampling, options)
    return _open_path(Path(text), sampling, options)


def videos_of(text: str) -> list[str]:
    """What a text names, one by one: the videos of a folder that holds no pictures, and anything else itself."""
    folder = Path(text)
    if "://" in text or not (_exists(folder) and folder.is_dir()) or is_take(folder) or pictures_in(folder):
        return [text]
    return [str(video) for video in videos_in(folder)] or [text]


def _open_own(name: str, text: str, sampling: FrameSampling, options: SourceOptions) -> Source:
    """What the function of this name opens, given what stands behind the question mark."""
    opener = import_own(name, "a video, or a function that opens a source,")
    source = opener(text, sampling, options) if callable(opener) else opener
    if not isinstance(source, Source):
        raise SettingError(
            f"Expected '{name}' to return a longtake.video.reading.Source, but got {type(source).__name__}."
        )
    return source


def _open_path(path: Path, sampling: FrameSampling, options: SourceOptions) -> Source:
    if not _exists(path):
        raise InputError(
            f"Expected a video, a folder or a stream, but there is no '{shown_address(str(path))}'; check the path."
        )
    if path.is_dir():
        if is_take(path):
            from longtake.video.take_images import TakeImages

            return TakeImages(path, sampling, threads=options.threads)
        return open_folder(path, sampling, fps=options.rate_of_pictures(sampling))
    if not path.is_file():
        raise InputError(f"Expected a video, but '{path}' is a pipe or a device, which cannot be read; name a file.")
    if path.suffix.lower() in PICTURE_SUFFIXES:
        return Pictures(str(path), [path], sampling, fps=options.rate_of_pictures(sampling))
    from longtake.video.files import VideoFile

    return VideoFile(path, sampling, threads=options.threads)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise InputError(
            f"Expected a video, but '{shown_address(str(path))}' cannot be looked at ({error.strerror})."
        ) from None


def _follow(text: str, sampling: FrameSampling, options: SourceOptions) -> FollowedFolder:
    path = Path(text)
    if not (_exists(path) and path.is_dir()):
        raise InputError(
            f"Expected a folder to follow at {shown_address(text)}, but there is none; make it first, or open it "
            "without following."
        )
    if is_take(path):
        raise SettingError(f"Expected a folder of pictures to follow, but {path} is a take; open it without following.")
    return FollowedFolder(path, sampling, fps=options.rate_of_pictures(sampling), following=options.following)
