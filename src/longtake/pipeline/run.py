"""One video from its source to its files: decode, prepare, map and write side by side.

source ─▶ decode ─▶ prepare ─▶ map ─▶ write          a thread each, the last the caller's; a bounded queue between two
"""

import json
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from longtake.export.frame import FrameStatus, MappedFrame
from longtake.export.lines import LineFile
from longtake.export.sink import Sink
from longtake.pipeline.checkpoint import Checkpoint, Checkpoints
from longtake.pipeline.mapper import Mapper, Prepared
from longtake.pipeline.prefetch import Prefetcher, WhenFull
from longtake.takes.atomic_files import writing
from longtake.types import FrameKind
from longtake.video.frame import VideoFrame
from longtake.video.reading import Source
from longtake.video.resize import Preprocessor

QUEUED = 4
"""Frames that wait between two stages."""
KEPT = "kept"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A frame that gave no picture."""

    index: int
    timestamp_s: float
    problem: str


@dataclass(frozen=True, slots=True)
class _Reached:
    """Travels behind the results it covers: the session is saved, the sinks are not yet."""

    num_frames: int
    first_owed: int
    judge: Mapping[str, Any]
    session: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a run is made of."""

    source: Source
    prepare: Preprocessor
    open_mapper: Callable[[tuple[int, int]], Mapper]
    """For images of this height and width."""
    sinks: Sink
    events: LineFile
    """A line for each frame without a result."""
    when_full: WhenFull = WhenFull.BLOCK
    """What happens to a new frame while the rest is busy; only a live source may lose some."""
    checkpoints: Checkpoints | None = None
    checkpoint_every: int = 250
    settings: Mapping[str, Any]


class Run:
    """A job under way: iterate to do it. Items come after they were written; `stop` ends it after the frames begun."""

    def __init__(self, job: Job, resumed: tuple[Checkpoint, Mapper] | None = None) -> None:
        """Begins, or goes on from a checkpoint with the session that was saved there."""
        self._job = job
        self._checkpoint: Checkpoint | None = None
        self._mapper: Mapper | None = None
        if resumed is not None:
            self._checkpoint, self._mapper = resumed
        self._stop = threading.Event()
        self._is_complete = False
        self._decoded: Prefetcher[VideoFrame] | None = None
        self.counts: Counter[str] = Counter({} if self._checkpoint is None else self._checkpoint.counts)
        """Frames by status, and `KEPT` ones."""

    @property
    def is_complete(self) -> bool:
        """Whether the source came to its end, and every frame has been written."""
        return self._is_complete

    @property
    def num_dropped(self) -> int:
        return 0 if self._decoded is None else self._decoded.num_dropped

    @property
    def mapper(self) -> Mapper | None:
        """The session and its state, once there was a frame."""
        return self._mapper

    def stop(self) -> None:
        """Take no more frames; what was begun is finished and written, and can be resumed."""
        self._stop.set()
        self._job.source.stop()

    def __iter__(self) -> Generator[MappedFrame | Unreadable, None, None]:
        with ExitStack() as stages:
            stages.callback(self._job.events.close)
            stages.callback(self._job.sinks.close)
            self._decoded = stages.enter_context(Prefetcher(self._decode(), QUEUED, self._job.when_full))
            prepared = stages.enter_context(Prefetcher(self._prepare(self._decoded), QUEUED))
            mapped = stages.enter_context(Prefetcher(self._map(prepared), QUEUED))
            stages.callback(self._job.source.stop)  # first of all, so that no stage waits for frames nobody wants
            for item in mapped:
                if isinstance(item, _Reached):
                    self._publish(item)
                else:
                    self._write(item)
                    yield item

    def _decode(self) -> Generator[VideoFrame, None, None]:
        yield from self._job.source.frames(self._checkpoint.first_owed if self._checkpoint else 0)

    def _prepare(self, frames: Iterable[VideoFrame]) -> Generator[Prepared | Unreadable, None, None]:
        for frame in frames:
            if frame.image is None:
                assert frame.problem is not None
                yield Unreadable(frame.index, frame.timestamp_s, frame.problem)
            else:
                yield Prepared(frame, self._job.prepare(frame.image))

    def _map(
        self, prepared: Iterable[Prepared | Unreadable]
    ) -> Generator[MappedFrame | Unreadable | _Reached, None, None]:
        already = num_frames = saved_at = self._checkpoint.num_frames if self._checkpoint else 0
        for item in prepared:
            index = item.frame.index if isinstance(item, Prepared) else item.index
            if index < already:
                self._read_again(item)
                continue
            num_frames = index + 1
            if isinstance(item, Unreadable):
                yield item
            else:
                yield from self._mapper_for(item).step(item)
            if num_frames - saved_at >= self._job.checkpoint_every:
                yield from self._save(num_frames)
                saved_at = num_frames
        if self._stop.is_set():
            yield from self._save(num_frames)
            return
        if self._mapper is not None:
            yield from self._mapper.finish()
        self._is_complete = True

    def _read_again(self, item: Prepared | Unreadable) -> None:
        """A frame from before the checkpoint, needed only if its result is still to come."""
        assert self._mapper is not None
        if isinstance(item, Prepared):
            self._mapper.recall(item)

    def _mapper_for(self, prepared: Prepared) -> Mapper:
        if self._mapper is None:
            _, height, width = prepared.resized.pixels.shape
            self._mapper = self._job.open_mapper((height, width))
        return self._mapper

    def _save(self, num_frames: int) -> Iterator[_Reached]:
        """The session now, the rest when the results before it are written."""
        if self._job.checkpoints is None or self._mapper is None:
            return
        path = self._job.checkpoints.session_path(num_frames)
        with writing(f"The checkpoint {path.parent}"):
            self._mapper.session.save(path)
        first_owed = num_frames if self._mapper.first_owed is None else self._mapper.first_owed
        yield _Reached(num_frames, first_owed, self._mapper.judge.state(), path)

    def _publish(self, reached: _Reached) -> None:
        assert self._job.checkpoints is not None
        state = self._job.sinks.checkpoint()
        self._job.checkpoints.publish(
            Checkpoint(
                num_frames=reached.num_frames,
                first_owed=reached.first_owed,
                settings=self._job.settings,
                judge=reached.judge,
                sinks=state.values,
                arrays=state.arrays,
                counts=dict(self.counts),
                num_event_bytes=self._job.events.sync(),
                session=reached.session,
            )
        )

    def _write(self, item: MappedFrame | Unreadable) -> None:
        if isinstance(item, MappedFrame):
            self._job.sinks.write(item)
            self.counts[item.status] += 1
            self.counts[KEPT] += item.kind is not FrameKind.PASSING
        else:
            self._job.events.append(json.dumps({**asdict(item), "status": FrameStatus.UNREADABLE}))
            self.counts[FrameStatus.UNREADABLE] += 1
