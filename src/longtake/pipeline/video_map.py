"""A whole video mapped into a folder: begun, gone on with after a break, summed up at the end."""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from longtake import __version__
from longtake.attention.backend import Backend
from longtake.errors import SettingError
from longtake.export.cloud import CloudSettings
from longtake.export.frame import FrameStatus, MappedFrame
from longtake.export.kitti import KittiSink
from longtake.export.lines import LineFile
from longtake.export.ply import PlySink
from longtake.export.report.folder import EVENTS_NAME, PROGRESS_NAME, SUMMARY_NAME
from longtake.export.report.page import CLOUD_NAME, REPORT_NAME, write_report
from longtake.export.sink import OpenSink, SinkState
from longtake.export.take import TakeSettings, TakeSink
from longtake.export.tee import Tee
from longtake.geometry.model import GeometryModel
from longtake.pipeline.ahead import WhenFull
from longtake.pipeline.checkpoint import Checkpoint, Checkpoints
from longtake.pipeline.mapper import Mapper
from longtake.pipeline.run import KEPT, Job, Run, Unreadable
from longtake.pipeline.status import StatusJudge
from longtake.runtime.build import SessionSettings, open_session
from longtake.runtime.session import GeometrySession
from longtake.runtime.steps import VideoSession
from longtake.runtime.windowed import WindowedSession, resume_session
from longtake.takes.durable import replacing, writing
from longtake.takes.header import is_take
from longtake.video.preprocess import Preprocessor
from longtake.video.reading import Source
from longtake.video.resize import Fit

KITTI_NAME = "poses.kitti"
PROGRESS_EVERY = 50
"""Frames between two lines on time and memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Which files are written beside the take."""

    take: TakeSettings = field(default_factory=TakeSettings)
    cloud: CloudSettings | None = field(default_factory=CloudSettings)
    kitti: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSettings:
    """How a video is mapped."""

    session: SessionSettings
    fit: Fit = Fit.CROP
    outputs: Outputs = field(default_factory=Outputs)
    when_full: WhenFull = WhenFull.BLOCK
    checkpoint_every: int = 250
    """Frames between two checkpoints of a source that can be read again."""

    def __post_init__(self) -> None:
        if self.checkpoint_every < 1:
            raise SettingError(f"Expected a checkpoint every 1 frame or more, but got {self.checkpoint_every}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSummary:
    """What came of it."""

    source: str
    is_complete: bool
    """Whether the video was mapped to its end."""
    num_frames: int
    statuses: Mapping[str, int]
    num_keyframes: int
    num_dropped: int
    num_windows: int
    seconds: float
    """Of the last run, where there were several."""
    frames_per_s: float
    settings: Mapping[str, str]
    memory_bytes: int
    """Of keys and values."""
    peak_resident_bytes: int
    longtake: str = __version__


class VideoMap:
    """Iterate to map: frames come after they were written. Afterwards `summary` says what came of it."""

    def __init__(
        self,
        source: Source,
        model: GeometryModel,
        out: Path,
        settings: MapSettings,
        *,
        backend: Backend | None = None,
        overwrite: bool = False,
        resume: bool = False,
    ) -> None:
        """Opens everything but the session, which waits for the first frame unless it is resumed."""
        self._source, self._model, self._out, self._settings, self._backend = source, model, out, settings, backend
        self._asked = _asked(source, settings)
        self._checkpoints = None if source.is_live else Checkpoints(out)
        self.summary: MapSummary | None = None
        checkpoint = self._checkpoint_to_resume() if resume else None
        if checkpoint is None and (overwrite or resume):
            _clear(out)
        job = self._job(checkpoint, overwrite=overwrite or resume)
        if checkpoint is None:
            self._run = Run(job)
        else:
            mapper = Mapper(resume_session(checkpoint.session, model, backend), StatusJudge())
            mapper.judge.restore(checkpoint.judge)
            self._run = Run(job, (checkpoint, mapper))

    @property
    def counts(self) -> Mapping[str, int]:
        """Frames so far by status, and `kept` ones."""
        return self._run.counts

    @property
    def session(self) -> VideoSession | None:
        """Once there was a frame."""
        return None if self._run.mapper is None else self._run.mapper.session

    def stop(self) -> None:
        """Take no more frames; what was begun is finished and written, and can be resumed."""
        self._run.stop()

    def __iter__(self) -> Iterator[MappedFrame | Unreadable]:
        started_s = time.monotonic()
        before = self._num_frames
        with ExitStack() as opened:
            items = opened.enter_context(closing(iter(self._run)))
            for count, item in enumerate(items):
                if count == 0:
                    progress = opened.enter_context(closing(self._progress_file()))
                if count % PROGRESS_EVERY == 0:
                    progress.append(_progress_line(item.index, time.monotonic() - started_s))
                yield item
        seconds = time.monotonic() - started_s
        self.summary = self._summarise(seconds, (self._num_frames - before) / seconds)
        with writing(str(self._out / SUMMARY_NAME)), replacing(self._out / SUMMARY_NAME) as file:
            file.write(json.dumps(asdict(self.summary), indent=1).encode())
        if self.summary.is_complete:
            Checkpoints(self._out).clear()
        write_report(self._out)

    def _progress_file(self) -> LineFile:
        """Goes on after what an earlier run of the same video wrote."""
        path = self._out / PROGRESS_NAME
        return LineFile(path, num_bytes=path.stat().st_size if path.exists() else None)

    @property
    def _num_frames(self) -> int:
        return sum(self.counts[status] for status in FrameStatus)

    def _checkpoint_to_resume(self) -> Checkpoint | None:
        """None for a run that ended before its first checkpoint."""
        if self._checkpoints is None:
            raise SettingError(f"{self._source.name} is live and cannot be read again, so nothing can be resumed.")
        if is_done(self._out):
            raise SettingError(f"{self._out} is complete; there is nothing to resume. Use --overwrite to map it again.")
        checkpoint = self._checkpoints.newest()
        if checkpoint is not None and checkpoint.settings != self._asked:
            changed = [name for name in self._asked if checkpoint.settings.get(name) != self._asked[name]]
            raise SettingError(
                f"The run in {self._out} was begun with other settings ({', '.join(changed)}); resume it with the "
                "same, or start again with --overwrite."
            )
        return checkpoint

    def _job(self, checkpoint: Checkpoint | None, *, overwrite: bool) -> Job:
        model, settings = self._model, self._settings

        def open_mapper(size: tuple[int, int]) -> Mapper:
            return Mapper(open_session(model, settings.session, size, self._backend), StatusJudge())

        state = None if checkpoint is None else SinkState(values=checkpoint.sinks, arrays=checkpoint.arrays)
        return Job(
            source=self._source,
            prepare=Preprocessor(fit=settings.fit, size=settings.session.image_size, patch=model.config.patch),
            open_mapper=open_mapper,
            sinks=open_sinks(self._out, settings.outputs, state, overwrite=overwrite),
            events=LineFile(
                self._out / EVENTS_NAME,
                overwrite=overwrite,
                num_bytes=None if checkpoint is None else checkpoint.num_event_bytes,
            ),
            when_full=settings.when_full if self._source.is_live else WhenFull.BLOCK,
            checkpoints=self._checkpoints,
            checkpoint_every=settings.checkpoint_every,
            settings=self._asked,
        )

    def _summarise(self, seconds: float, frames_per_s: float) -> MapSummary:
        session = self.session
        return MapSummary(
            source=self._source.name,
            is_complete=self._run.is_complete,
            num_frames=self._num_frames,
            statuses={status.value: self.counts[status] for status in FrameStatus if self.counts[status]},
            num_keyframes=self.counts[KEPT],
            num_dropped=self._run.num_dropped,
            num_windows=len(session.windows) if isinstance(session, WindowedSession) else 1,
            seconds=seconds,
            frames_per_s=frames_per_s,
            settings=self._asked,
            memory_bytes=_memory_bytes(session),
            peak_resident_bytes=_peak_resident_bytes(),
        )


def open_sinks(out: Path, outputs: Outputs, state: SinkState | None = None, *, overwrite: bool = False) -> Tee:
    """All files of a result, new or gone on with; the take first, for it sees to the folder."""
    sinks: dict[str, OpenSink] = {"take": lambda part: TakeSink(out, outputs.take, overwrite=overwrite, state=part)}
    if outputs.cloud is not None:
        cloud, unit = outputs.cloud, outputs.take.unit
        sinks["cloud"] = lambda part: PlySink(out / CLOUD_NAME, cloud, unit=unit, overwrite=overwrite, state=part)
    if outputs.kitti:
        sinks["kitti"] = lambda part: KittiSink(out / KITTI_NAME, overwrite=overwrite, state=part)
    return Tee(sinks, state=state)


def is_done(out: Path) -> bool:
    """Whether a video was mapped into this folder, to its end."""
    try:
        return bool(json.loads((out / SUMMARY_NAME).read_text(encoding="utf-8"))["is_complete"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _clear(out: Path) -> None:
    """Delete what an earlier run left beside its take; other files stay."""
    if is_take(out) or (out / EVENTS_NAME).exists():
        Checkpoints(out).clear()
        for name in (EVENTS_NAME, CLOUD_NAME, KITTI_NAME, SUMMARY_NAME, PROGRESS_NAME, REPORT_NAME):
            (out / name).unlink(missing_ok=True)


def _asked(source: Source, settings: MapSettings) -> dict[str, str]:
    """What must be the same when a run goes on."""
    return {
        "source": source.name,
        "sampling": repr(source.sampling),
        "session": repr(settings.session),
        "fit": settings.fit.value,
        "outputs": repr(settings.outputs),
    }


def _memory_bytes(session: VideoSession | None) -> int:
    inner = session.session if isinstance(session, WindowedSession) else session
    return inner.num_bytes if isinstance(inner, GeometrySession) else 0


def _progress_line(index: int, seconds: float) -> str:
    resident = psutil.Process().memory_info().rss
    return json.dumps({"index": index, "seconds": round(seconds, 3), "resident_bytes": resident})


def _peak_resident_bytes() -> int:
    """Of this process since it began; 0 where the system does not tell."""
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
