"""The base of all sources: sampled frames become pictures of one size, or say why they cannot."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from longtake.errors import InputError
from longtake.video.contents import contents_of
from longtake.video.frame import PendingFrame, VideoFrame
from longtake.video.sampling import Extent, FrameSampling

EVERY_FRAME = FrameSampling()


class Source(ABC):
    """A video, wherever it comes from."""

    def __init__(
        self,
        name: str,
        sampling: FrameSampling = EVERY_FRAME,
        *,
        is_live: bool = False,
        shows_world: bool = False,
        digest: str | None = None,
    ) -> None:
        self.name = name
        """The name that people see."""
        self.digest = digest
        """Of an address, by which it differs from others of this name."""
        self.sampling = sampling
        self.is_live = is_live
        """Whether frames come whether or not they are read, and cannot be read again: a camera, a stream."""
        self.note: str | None = None
        """What a viewer should know of the frames read so far."""
        self.shows_world = shows_world
        """Whether it shows one of our procedural worlds, as far as that is known."""
        self._stopped = threading.Event()

    @property
    @abstractmethod
    def extent(self) -> Extent:
        """Number of frames and frame rate before sampling, as far as they are known."""

    @property
    def files(self) -> Sequence[Path]:
        """All that it is read from, where that is known beforehand: the file of its name, unless it says otherwise."""
        path = Path(self.name)
        return [path] if path.is_file() else []

    @property
    def identity(self) -> Mapping[str, Any]:
        """What tells it from others with its name and extent, as plain values."""
        return contents_of(self.files)

    @property
    def taken(self) -> Mapping[str, Any]:
        """By what another of its name can go on after it, as plain values; nothing where it gives the same anyway."""
        return {}

    def go_on_after(self, taken: Mapping[str, Any]) -> None:  # noqa: B027
        """Give first what another of its name has taken, in its order; refused where that is not there any more."""

    @abstractmethod
    def all_frames(self) -> Generator[PendingFrame, None, None]:
        """Every frame in the order of time, also those that cannot be read.

        What is opened is closed when the frames end or the generator is closed. Frames between the first one and
        `sampling.start_s` may be left out.
        """

    @property
    def num_frames(self) -> int | None:
        """About how many frames will come, None where nobody can know."""
        return self.sampling.estimate(self.extent)

    def stop(self) -> None:
        """End `frames` soon, whatever it waits for; from any thread, and for good."""
        self._stopped.set()

    def frames(self, skip: int = 0) -> Generator[VideoFrame, None, None]:
        """The sampled frames from number `skip` on; those before are counted, but only the first picture is made.

        A file, folder or world gives the same frames each time. A frame that cannot be read, or not in the size of the
        first, comes with its problem; only where there is no picture at all an InputError says so.
        """
        reader = _Reader(self.name)
        with closing(self.all_frames()) as found:
            for index, pending in enumerate(self.sampling.pick(found)):
                if self._stopped.is_set():
                    break
                if index < skip and reader.has_picture:
                    continue
                frame = reader.read(index, pending)
                if index >= skip:
                    yield frame
        if not reader.has_picture and not self._stopped.is_set():
            raise InputError(reader.nothing(self.sampling))


class _Reader:
    """Reads pictures, and refuses those of another size than the first."""

    def __init__(self, name: str) -> None:
        self._first_problem: str | None = None
        self._name = name
        self._size: tuple[int, int] | None = None

    @property
    def has_picture(self) -> bool:
        return self._size is not None

    def read(self, index: int, pending: PendingFrame) -> VideoFrame:
        frame = self._read(index, pending)
        self._first_problem = self._first_problem or frame.problem
        return frame

    def nothing(self, sampling: FrameSampling) -> str:
        """The sentence for a source without a single picture."""
        if self._first_problem is not None:
            return f"Not one frame of {self._name} can be read: {self._first_problem}"
        if sampling.start_s == 0:
            return f"Expected frames in {self._name}, but there are none."
        return f"Expected frames from {sampling.start_s:g} s on in {self._name}, but it ends before; start earlier."

    def _read(self, index: int, pending: PendingFrame) -> VideoFrame:
        if pending.read is None:
            return VideoFrame(index, pending.timestamp_s, None, pending.problem)
        try:
            image = pending.read()
        except InputError as error:
            return VideoFrame(index, pending.timestamp_s, None, str(error))
        height, width, _ = image.shape
        self._size = self._size or (height, width)
        if self._size == (height, width):
            return VideoFrame(index, pending.timestamp_s, image, name=pending.name)
        problem = (
            f"The {_called(pending)} in {self._name} is of another size ({width}x{height}; the first is "
            f"{self._size[1]}x{self._size[0]}) and is left out; make all one size, or give each size as its own source."
        )
        return VideoFrame(index, pending.timestamp_s, None, problem)


def _called(pending: PendingFrame) -> str:
    """By its file, where it has one, and by its time."""
    name = "frame" if pending.name is None else f"picture '{pending.name}'"
    return f"{name} at {pending.timestamp_s:.3f} s"
