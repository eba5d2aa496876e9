"""A whole video mapped into a folder: begun, gone on with after a break, summed up and exported at the end."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

from longtake import __version__
from longtake.attention.backend import Backend
from longtake.errors import SettingError
from longtake.export.frame import FrameStatus, MappedFrame
from longtake.export.lines import LineFile
from longtake.export.names import CLOUD_NAME, EXPORT_FOLDER, KITTI_NAME, SESSION_NAME
from longtake.export.record import ExportRecord
from longtake.export.reexport import ProgressCallback, clear_export, no_progress
from longtake.export.report.folder import EVENTS_NAME, PROGRESS_NAME, SUMMARY_NAME
from longtake.export.report.page import REPORT_NAME, write_report
from longtake.export.report.truth import TRUTH_NAME
from longtake.export.sink import Sink, SinkState
from longtake.geometry.model import GeometryModel
from longtake.pipeline.afterwards import SavingMapper, export_mapped, is_exported
from longtake.pipeline.checkpoint import Checkpoint, Checkpoints
from longtake.pipeline.mapper import Mapper
from longtake.pipeline.measures import memory_bytes, progress_line
from longtake.pipeline.outputs import Outputs, open_sinks
from longtake.pipeline.prefetch import WhenFull
from longtake.pipeline.resident import peak_bytes, resident_bytes
from longtake.pipeline.run import KEPT, Job, Run, Unreadable
from longtake.pipeline.status import StatusJudge
from longtake.pipeline.writer_process import WriterProcess, WriterProcessSink
from longtake.runtime.build import SessionSettings, open_session
from longtake.runtime.steps import VideoSession
from longtake.runtime.windowed import WindowedSession, resume_session
from longtake.takes.atomic_files import replacing, writing
from longtake.takes.header import is_take
from longtake.video.reading import Source
from longtake.video.resize import Fit, Preprocessor

_BESIDE_THE_TAKE = (
    EVENTS_NAME,
    CLOUD_NAME,
    KITTI_NAME,
    SESSION_NAME,
    SUMMARY_NAME,
    PROGRESS_NAME,
    TRUTH_NAME,
    REPORT_NAME,
)
PROGRESS_EVERY = 50
"""Frames between two lines on time and memory."""


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
    """Of this process, and of the one that writes where there is one."""
    longtake: str = __version__


class VideoMap:
    """Iterate to map: frames come after they were written. Afterwards `summary` and `exported` say what came of it."""

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
        on_export: ProgressCallback = no_progress,
        writer_process: WriterProcess | None = None,
    ) -> None:
        """Opens everything but the session, which waits for the first frame unless it is resumed.

        A `writer_process` writes the files as soon as it is ready. Of a video that was mapped to its end, what is
        resumed is the export, if there is none.
        """
        self._source, self._model, self._out, self._settings, self._backend = source, model, out, settings, backend
        self._told_of_export, self._writer_process = on_export, writer_process
        self._asked = _asked(source, settings)
        self._checkpoints = None if source.is_live else Checkpoints(out)
        if settings.outputs.export is not None:
            settings.outputs.export.require_packages()
        self.exported: ExportRecord | None = None
        self.summary = self._summary_to_export() if resume else None
        self._run = None if self.summary is not None else self._open_run(overwrite=overwrite, resume=resume)

    @property
    def counts(self) -> Mapping[str, int]:
        """Frames so far by status, and `kept` ones."""
        return {} if self._run is None else self._run.counts

    @property
    def session(self) -> VideoSession | None:
        """Once there was a frame."""
        return None if self._run is None or self._run.mapper is None else self._run.mapper.session

    @property
    def resident_bytes(self) -> int:
        """That this process holds now, and the one that writes where there is one."""
        return resident_bytes() + (0 if self._writer_process is None else self._writer_process.resident_bytes)

    def stop(self) -> None:
        """Take no more frames; what was begun is finished and written, and can be resumed."""
        if self._run is not None:
            self._run.stop()

    def __iter__(self) -> Iterator[MappedFrame | Unreadable]:
        if self._run is not None:
            yield from self._map(self._run)
        assert self.summary is not None
        export = self._settings.outputs.export
        if export is not None and self.summary.is_complete:
            self.exported = export_mapped(self._out, export, self._told_of_export)
            write_report(self._out)

    def _map(self, run: Run) -> Iterator[MappedFrame | Unreadable]:
        started_s = time.monotonic()
        before = _num_frames(run)
        with ExitStack() as opened:
            items = opened.enter_context(closing(iter(run)))
            for count, item in enumerate(items):
                if count == 0:
                    progress = opened.enter_context(closing(self._progress_file()))
                if count % PROGRESS_EVERY == 0:
                    progress.append(progress_line(item.index, time.monotonic() - started_s, self.resident_bytes))
                yield item
        seconds = time.monotonic() - started_s
        self.summary = self._summarise(run, seconds, (_num_frames(run) - before) / seconds)
        with writing(str(self._out / SUMMARY_NAME)), replacing(self._out / SUMMARY_NAME) as file:
            file.write(json.dumps(asdict(self.summary), indent=1).encode())
        if self.summary.is_complete:
            Checkpoints(self._out).clear()
        write_report(self._out)

    def _progress_file(self) -> LineFile:
        """Goes on after what an earlier run of the same video wrote."""
        path = self._out / PROGRESS_NAME
        return LineFile(path, num_bytes=path.stat().st_size if path.exists() else None)

    def _summary_to_export(self) -> MapSummary | None:
        """Of a run that came to its end, of which nothing but the export is missing; None while it has not."""
        if not is_done(self._out):
            return None
        summary = _read_summary(self._out)
        if summary is None or is_done(self._out, self._settings.outputs):
            raise SettingError(f"{self._out} is complete; there is nothing to resume. Use --overwrite to map it again.")
        self._require_same(summary.settings)
        return summary

    def _checkpoint_to_resume(self) -> Checkpoint | None:
        """None for a run that ended before its first checkpoint."""
        if self._checkpoints is None:
            raise SettingError(f"{self._source.name} is live and cannot be read again, so nothing can be resumed.")
        checkpoint = self._checkpoints.newest()
        if checkpoint is not None:
            self._require_same(checkpoint.settings)
        return checkpoint

    def _require_same(self, settings: Mapping[str, str]) -> None:
        changed = [name for name in self._asked if settings.get(name) != self._asked[name]]
        if changed:
            raise SettingError(
                f"The run in {self._out} was begun with other settings ({', '.join(changed)}); resume it with the "
                "same, or start again with --overwrite."
            )

    def _open_run(self, *, overwrite: bool, resume: bool) -> Run:
        checkpoint = self._checkpoint_to_resume() if resume else None
        if checkpoint is None and (overwrite or resume):
            _clear(self._out)
        job = self._job(checkpoint, overwrite=overwrite or resume)
        if checkpoint is None:
            return Run(job)
        mapper = self._mapper(resume_session(checkpoint.session, self._model, self._backend))
        mapper.judge.restore(checkpoint.judge)
        return Run(job, (checkpoint, mapper))

    def _mapper(self, session: VideoSession) -> Mapper:
        if self._settings.outputs.session:
            return SavingMapper(session, StatusJudge(), self._out / SESSION_NAME)
        return Mapper(session, StatusJudge())

    def _job(self, checkpoint: Checkpoint | None, *, overwrite: bool) -> Job:
        model, settings = self._model, self._settings

        def open_mapper(size: tuple[int, int]) -> Mapper:
            return self._mapper(open_session(model, settings.session, size, self._backend))

        state = None if checkpoint is None else SinkState(values=checkpoint.sinks, arrays=checkpoint.arrays)
        return Job(
            source=self._source,
            prepare=Preprocessor(fit=settings.fit, size=settings.session.image_size, patch=model.config.patch),
            open_mapper=open_mapper,
            sinks=self._sinks(state, overwrite=overwrite),
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

    def _sinks(self, state: SinkState | None, *, overwrite: bool) -> Sink:
        opening = partial(open_sinks, self._out, self._settings.outputs, overwrite=overwrite)
        return (
            opening(state) if self._writer_process is None else WriterProcessSink(self._writer_process, opening, state)
        )

    def _summarise(self, run: Run, seconds: float, frames_per_s: float) -> MapSummary:
        session = self.session
        return MapSummary(
            source=self._source.name,
            is_complete=run.is_complete,
            num_frames=_num_frames(run),
            statuses={status.value: run.counts[status] for status in FrameStatus if run.counts[status]},
            num_keyframes=run.counts[KEPT],
            num_dropped=run.num_dropped,
            num_windows=len(session.windows) if isinstance(session, WindowedSession) else 1,
            seconds=seconds,
            frames_per_s=frames_per_s,
            settings=self._asked,
            memory_bytes=memory_bytes(session),
            peak_resident_bytes=peak_bytes() + (0 if self._writer_process is None else self._writer_process.peak_bytes),
        )


def is_done(out: Path, outputs: Outputs | None = None) -> bool:
    """Whether a video was mapped into this folder, to its end, and exported where that was asked for."""
    try:
        is_mapped = bool(json.loads((out / SUMMARY_NAME).read_text(encoding="utf-8"))["is_complete"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    has_export = outputs is not None and outputs.export is not None
    return is_mapped and (is_exported(out) or not has_export)


def _read_summary(out: Path) -> MapSummary | None:
    """None for one of another version."""
    try:
        return MapSummary(**json.loads((out / SUMMARY_NAME).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _clear(out: Path) -> None:
    """Delete what an earlier run left beside its take; other files stay."""
    if is_take(out) or (out / EVENTS_NAME).exists():
        Checkpoints(out).clear()
        clear_export(out / EXPORT_FOLDER)
        for name in _BESIDE_THE_TAKE:
            (out / name).unlink(missing_ok=True)


def _num_frames(run: Run) -> int:
    return sum(run.counts[status] for status in FrameStatus)


def _asked(source: Source, settings: MapSettings) -> dict[str, str]:
    """What must be the same when a run goes on; an export is made afterwards, and may be another."""
    return {
        "source": source.name,
        "sampling": repr(source.sampling),
        "session": repr(settings.session),
        "fit": settings.fit.value,
        "outputs": repr(replace(settings.outputs, export=None)),
    }
