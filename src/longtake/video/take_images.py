"""The images of a take as a source, at the take's timestamps."""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from longtake.errors import InputError
from longtake.takes.header import FRAMES_NAME
from longtake.takes.images import ImageFiles, read_image
from longtake.takes.take import Take, read_take
from longtake.video.frame import PendingFrame
from longtake.video.reading import EVERY_FRAME, Source
from longtake.video.sampling import Extent, FrameSampling


class TakeImages(Source):
    """The images of a take, frame by frame."""

    def __init__(self, folder: Path, sampling: FrameSampling = EVERY_FRAME, *, threads: int = 0) -> None:
        super().__init__(str(folder), sampling)
        self._take = read_take(folder)
        self._files = self._take.header.images
        world = self._take.header.world
        self.shows_world = world is not None and world.get("family", "house") == "house"
        if self._files is None:
            raise InputError(f"Expected images in the take {folder}, but it has none; make it with images.")
        self._video = _open_video(folder, threads) if self._files is ImageFiles.VIDEO else None

    @property
    def extent(self) -> Extent:
        return Extent(num_frames=len(self._take), fps=_average_fps(self._take))

    @property
    def files(self) -> Sequence[Path]:
        assert self._files is not None
        images = dict.fromkeys(self._files.format(index=record.index) for record in self._take.records)
        return [self._take.folder / name for name in (FRAMES_NAME, *images)]

    def all_frames(self) -> Generator[PendingFrame, None, None]:
        if self._video is not None:
            yield from self._from_video(self._video)
            return
        assert self._files is not None
        for record in self._take.records:
            path = self._take.folder / self._files.format(index=record.index)
            yield PendingFrame(record.timestamp_s, partial(read_image, path, self._take.header.size))

    def _from_video(self, video: Source) -> Generator[PendingFrame, None, None]:
        with closing(video.all_frames()) as shown:
            for record in self._take.records:
                frame = next(shown, None)
                if frame is None:
                    problem = f"{video.name} ends before the frame at {record.timestamp_s:.3f} s of its take."
                    yield PendingFrame.unreadable(record.timestamp_s, problem)
                else:
                    yield replace(frame, timestamp_s=record.timestamp_s)


def _open_video(folder: Path, threads: int) -> Source:
    from longtake.video.files import VideoFile

    return VideoFile(folder / ImageFiles.VIDEO, threads=threads)


def _average_fps(take: Take) -> float | None:
    if len(take) < 2:
        return take.header.fps
    return (len(take) - 1) / (take.records[-1].timestamp_s - take.records[0].timestamp_s)
