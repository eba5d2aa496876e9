"""The folder of one run: begun, gone on with after a break, summed up, exported; locked while it is open.

run.json       what the run was asked to do, and which files are its own (`run_record.py`); before any of them
resume/        where it can go on (`checkpoint.py`)
events.jsonl   frames without a result      progress.jsonl   time and memory      summary.json   what came of it
"""

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from longtake.errors import InputError, SettingError, StorageError
from longtake.exports.formats import format_named
from longtake.exports.frame import FrameStatus, MappedFrame
from longtake.exports.record import EXPORT_FOLDER, RECORD_NAME, ExportRecord
from longtake.exports.reexport import ProgressCallback, export_take
from longtake.exports.report.asked import ASKED_NAME
from longtake.exports.report.folder import EVENTS_NAME, PROGRESS_NAME, RUN_NAME, SUMMARY_NAME
from longtake.exports.report.page import REPORT_NAME, write_report
from longtake.exports.report.truth import TRUTH_NAME
from longtake.exports.saved import saved_frames
from longtake.exports.sink import AppendSink, OpenAppendSink, SinkState
from longtake.exports.take import DepthKind
from longtake.pipeline.checkpoint import FOLDER as CHECKPOINT_FOLDER
from longtake.pipeline.checkpoint import Checkpoint, Checkpoints, Reached
from longtake.pipeline.events import MapSummary, Unreadable
from longtake.pipeline.outputs import SESSION_NAME, Outputs, open_anew, open_sinks
from longtake.pipeline.run_record import RunRecord, numbered
from longtake.pipeline.writer_process import WriterProcess, WriterProcessSink, save
from longtake.records import parse_json, record_from
from longtake.takes.atomic_files import UNFINISHED, Grown, LineFile, replace_file
from longtake.takes.correcting import correct_take
from longtake.takes.corrections import Corrections, read_corrections
from longtake.takes.depth_files import CONFIDENCE_FILES, DepthFiles
from longtake.takes.fields import content_of
from longtake.takes.folder_lock import locked
from longtake.takes.header import (
    CORRECTIONS_NAME,
    DESCRIPTORS_NAME,
    FRAMES_NAME,
    HEADER_NAME,
    ONLINE_POSES_NAME,
    POSES_NAME,
)
from longtake.takes.take import read_take

_NO_FRAMES = SinkState(values={"take": {"num_frames": 0, "num_pixels_too_far": 0}})
"""Where a run begins: the record has seen to the room for the take."""

FinishCallback = Callable[[str, Iterable[MappedFrame], int], Iterable[MappedFrame]]
"""Is told what is made when the last frame has come; hands on the frames of which it is made, so many of them."""


def tell_nothing(what: str, frames: Iterable[MappedFrame], num_frames: int) -> Iterable[MappedFrame]:  # noqa: ARG001
    """Hands on the frames and says nothing."""
    return frames


class RunFolder:
    """Takes the results of a run and all that it says of itself. Only what its record names is ever removed."""

    def __init__(
        self,
        out: Path,
        settings: Mapping[str, Any],
        outputs: Outputs,
        *,
        source: Path | None = None,
        is_live: bool = False,
        overwrite: bool = False,
        resume: bool = False,
        writer_process: WriterProcess | None = None,
        on_finish: FinishCallback = tell_nothing,
    ) -> None:
        """Begins a run in a new or empty folder or, with `overwrite`, in place of another; or goes on with it.

        Nothing is removed before all is checked. `source` is the video's path, where it has one; of a live one there
        are no checkpoints. Where only the export is missing, there is a `summary` and nothing to write.
        `on_finish` is told of what takes long when the last frame has come.
        """
        self._out, self._settings, self._outputs = out, settings, outputs
        self._checkpoints = None if is_live else Checkpoints(out)
        self._source, self._writer_process, self._on_finish = source, writer_process, on_finish
        self._ended_s: float | None = None
        """When the last frame had come; None before."""
        self._progress: LineFile | None = None
        self._reached: deque[Reached] = deque()
        """Checkpoints that were not told to be complete."""
        self._saved_s: deque[float] = deque()
        self._files, self._is_blank = ExitStack(), False
        self.checkpoint: Checkpoint | None = None
        """Where to go on; None for a run that begins."""
        self.summary: MapSummary | None = None
        """What came of the run, once it has ended."""
        with ExitStack() as opened:
            opened.enter_context(locked(out))
            opened.callback(self._leave_nothing_blank)
            before = RunRecord.read(out)
            if before is not None:
                _refuse_links_out_of(out, files=resume)
            if resume and (before is not None or _holds_files(out)):
                self._find_where_to_go_on(before)
            else:
                self._require_room(before, overwrite=overwrite)
            if self.summary is None:
                self._begin(before)
                self._open_files(opened)
            self._opened = opened.pop_all()

    @property
    def path(self) -> Path:
        return self._out

    @property
    def settings(self) -> Mapping[str, Any]:
        return self._settings

    @property
    def session_path(self) -> Path | None:
        """Where the session goes when the video has ended; None where nobody wants it."""
        return self._out / SESSION_NAME if self._outputs.session else None

    @property
    def checkpoints(self) -> Checkpoints | None:
        return self._checkpoints

    @property
    def wants_export(self) -> bool:
        return self._outputs.export is not None and self.summary is not None and self.summary.is_complete

    def write(self, frame: MappedFrame) -> None:
        """Take the next final result."""
        self._is_blank = False
        self._sink.write(frame)

    def write_unreadable(self, frame: Unreadable) -> None:
        """A line on a frame without a result."""
        self._events.append(json.dumps({**asdict(frame), "status": FrameStatus.UNREADABLE}))

    def write_progress(self, index: int, seconds: float, resident_bytes: int) -> None:
        """A line on how far the run is, how long it took and what it holds; after those of an earlier part of it."""
        if self._progress is None:
            path = self._out / PROGRESS_NAME
            self._progress = LineFile(path, kept=Grown(num_bytes=path.stat().st_size) if path.exists() else None)
            self._files.callback(self._progress.close)
        line = {"index": index, "seconds": round(seconds, 3), "resident_bytes": resident_bytes}
        self._progress.append(json.dumps(line))

    def write_checkpoint(self, reached: Reached, counts: Mapping[str, int]) -> None:
        """Bring all results so far to the disk; once that is done, which `saved` tells, the run can go on here."""
        assert self._checkpoints is not None
        self._is_blank = False
        checkpoint = Checkpoint(
            num_frames=reached.num_frames,
            first_owed=reached.first_owed,
            taken=reached.taken,
            results=reached.results,
            sinks={},
            arrays={},
            counts=dict(counts),
            events=self._events.sync(),
            session=reached.session,
        )
        self._reached.append(reached)
        publish = partial(self._checkpoints.publish_with, checkpoint)
        if isinstance(self._sink, WriterProcessSink):
            self._sink.save(publish, self._saved_s.append)
        else:
            self._saved_s.append(save(self._sink, publish))

    def saved(self) -> Iterator[tuple[Reached, float]]:
        """The checkpoints that are complete since this was asked last, and how many seconds each took."""
        while self._saved_s:
            yield self._reached.popleft(), self._saved_s.popleft()

    def close_files(self) -> None:
        """The frames have ended, or were stopped: return when all results and checkpoints are written."""
        self._is_blank = False
        self._ended_s = time.monotonic() if self._ended_s is None else self._ended_s
        self._files.close()

    def finish(self, summary: MapSummary, corrections: Corrections | None = None) -> None:
        """Sum up what was written, and move what later became of it; broken off in this, a run goes on with it."""
        self.close_files()
        if corrections is not None:
            ending = self._out / CHECKPOINT_FOLDER
            ending.mkdir(exist_ok=True)
            replace_file(ending / SUMMARY_NAME, _summary_content(summary))
            replace_file(ending / CORRECTIONS_NAME, corrections.content())
            self._correct(corrections)
        self._end(summary)

    def _end(self, summary: MapSummary) -> None:
        assert self._ended_s is not None
        self._write_summary(replace(summary, finishing_s=time.monotonic() - self._ended_s))
        if summary.is_complete:
            Checkpoints(self._out).clear()
        write_report(self._out)

    def _correct(self, corrections: Corrections) -> None:
        """Move the take, and make of it anew what was written while the video ran, where that was written."""
        take = correct_take(self._out, corrections)
        has_depth = take.header.depth is not None  # without, points are made of nothing, and stay as they were said
        names = tuple(name for name in self._outputs.formats if has_depth or not format_named(name).has_points)
        if not names:
            return
        files = " and ".join(format_named(name).file for name in names)
        with self._open(partial(open_anew, self._out, replace(self._outputs, formats=names)), None) as sink:
            for frame in self._on_finish(f"Making {files} anew", saved_frames(take), len(take)):
                sink.write(frame)

    def export(self, on_export: ProgressCallback, peak_resident_bytes: Callable[[], int]) -> ExportRecord:
        """Export the whole take into a folder below it, in place of what an earlier try left there.

        The summary has the most memory that the run held, so it is asked for afterwards.
        """
        assert self._outputs.export is not None
        assert self.summary is not None
        before = RunRecord.read(self._out)
        assert before is not None
        (self._out / REPORT_NAME).unlink(missing_ok=True)  # where there is one, it tells of the export too
        before.remove_files(self._out, below=EXPORT_FOLDER)
        before.with_files(_own_files(self._outputs)).write(self._out)
        started_s = time.monotonic()
        record = export_take(read_take(self._out), self._out / EXPORT_FOLDER, self._outputs.export, on_export)
        peak = max(self.summary.peak_resident_bytes, peak_resident_bytes())
        finishing_s = self.summary.finishing_s + time.monotonic() - started_s
        self._write_summary(replace(self.summary, peak_resident_bytes=peak, finishing_s=finishing_s))
        write_report(self._out)
        return record

    def close(self) -> None:
        """Leave whole files, and let others in. A run that came to nothing leaves nothing."""
        self._opened.close()

    def _write_summary(self, summary: MapSummary) -> None:
        self.summary = summary
        replace_file(self._out / SUMMARY_NAME, _summary_content(summary))

    def _leave_nothing_blank(self) -> None:
        if self._is_blank:
            with suppress(OSError, StorageError):  # the folder is gone, or something else is in its place
                self._record.remove_files(self._out)
                (self._out / RUN_NAME).unlink(missing_ok=True)

    def _find_where_to_go_on(self, before: RunRecord | None) -> None:
        if before is None:
            raise InputError(
                f"Expected a run to go on with in {self._out}, but its files are of something else, or of an earlier "
                "version of longtake; name another folder, or delete this one."
            )
        if differences := before.differences(self._settings):
            raise SettingError(
                f"The run in {self._out} was begun with other settings ({'; '.join(differences)}); resume it with the "
                "same, or start again with --overwrite (overwrite=True)."
            )
        ending = self._out / CHECKPOINT_FOLDER
        corrections = read_corrections(ending)
        if corrections is not None and not is_done(self._out):
            self._ended_s = time.monotonic()
            summary = _read_summary(ending)
            if summary is None:
                raise InputError(
                    f"{ending / SUMMARY_NAME} is damaged or of another version of longtake; start again with "
                    "--overwrite (overwrite=True)."
                )
            self._correct(corrections)
            self._end(summary)
        elif is_done(self._out):
            mend_end(self._out)
            self.summary = _read_summary(self._out)
            if self.summary is None or is_done(self._out, self._outputs):
                raise SettingError(
                    f"{self._out} is complete; there is nothing to resume; --overwrite (overwrite=True) maps it again."
                )
        elif self._checkpoints is None:
            raise SettingError(
                "The source is live and cannot be read again, so nothing can be resumed; name another folder, or "
                "replace the run with --overwrite (overwrite=True)."
            )
        else:
            self.checkpoint = self._checkpoints.newest()

    def _require_room(self, before: RunRecord | None, *, overwrite: bool) -> None:
        if before is None:
            if _holds_files(self._out):
                raise InputError(
                    f"Expected a new or empty folder for a run, but {self._out} holds other files, which no run of "
                    "this version of longtake has on record; name another folder, or delete this one."
                )
        elif before.present(self._out) and not overwrite:
            resume = " go on with --resume (resume=True)," if self._can_go_on_with(before) else ""
            raise InputError(
                f"{self._out} holds a run already; name another folder,{resume} or replace it with --overwrite "
                "(overwrite=True)."
            )
        elif self._source is not None and _lies_in(self._source, self._out):
            raise InputError(
                f"Expected another folder than the one of the source {self._source}, which would be "
                "replaced; name another."
            )

    def _can_go_on_with(self, before: RunRecord) -> bool:
        is_same = not before.differences(self._settings)
        return is_same and self._checkpoints is not None and not is_done(self._out, self._outputs)

    def _begin(self, before: RunRecord | None) -> None:
        """Put the record there, in place of an earlier one and its files; one that goes on keeps them."""
        self._record = RunRecord(settings=self._settings, files=_own_files(self._outputs))
        if before is not None and self.checkpoint is not None:
            self._record = before.with_files(self._record.files)
        else:
            own = set() if before is None else set(before.present(self._out))
            foreign = [path for path in self._record.present(self._out) if path not in own]
            if foreign:
                raise InputError(
                    f"{foreign[0]} is not of the run to be replaced; move it away, or name another folder."
                )
            if before is not None:
                # by the order, what is half removed neither passes for done nor is gone on with
                for place in (SUMMARY_NAME, CHECKPOINT_FOLDER, ""):
                    before.remove_files(self._out, below=place)
        self._record.write(self._out)
        self._is_blank = self.checkpoint is None

    def _open_files(self, opened: ExitStack) -> None:
        checkpoint = self.checkpoint
        state = _NO_FRAMES if checkpoint is None else SinkState(values=checkpoint.sinks, arrays=checkpoint.arrays)
        self._sink = self._open(partial(open_sinks, self._out, self._outputs), state)
        opened.enter_context(self._files)
        self._files.callback(self._sink.close)
        self._events = LineFile(self._out / EVENTS_NAME, kept=None if checkpoint is None else checkpoint.events)
        self._files.callback(self._events.close)

    def _open(self, open_sink: OpenAppendSink, state: SinkState | None) -> AppendSink:
        """In the process that writes, where there is one."""
        if self._writer_process is None:
            return open_sink(state)
        return WriterProcessSink(self._writer_process, open_sink, state)


def is_done(out: Path, outputs: Outputs | None = None) -> bool:
    """Whether a video was mapped into this folder, to its end, and exported where that was asked for.

    One that cannot be read may be: it is refused, for whoever takes it for missing replaces it.
    """
    path, has_export = out / SUMMARY_NAME, outputs is not None and outputs.export is not None
    try:
        if path.exists() and not path.is_file():
            return False  # whoever writes to a pipe may never do
        is_mapped = bool(parse_json(path.read_bytes())["is_complete"])
        return is_mapped and ((out / EXPORT_FOLDER / RECORD_NAME).exists() or not has_export)
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return False
    except OSError as error:
        raise InputError(
            f"What was mapped into {out} before cannot be read ({error.strerror}), so it stays; check the disk and its "
            "permissions."
        ) from error


def is_whole(out: Path, outputs: Outputs | None = None) -> bool:
    """The same, and whether nothing of what comes last is missing, as where the process was killed in its end."""
    return is_done(out, outputs) and (out / REPORT_NAME).exists()


def mend_end(out: Path) -> None:
    """What a kill after the last frame has left to do in the folder of a video that is done."""
    Checkpoints(out).clear()
    if not (out / REPORT_NAME).exists():
        write_report(out)


def _holds_files(out: Path) -> bool:
    """And not only what a kill has left of the first one."""
    return any(not path.name.endswith(UNFINISHED) for path in out.iterdir())


def _refuse_links_out_of(out: Path, *, files: bool) -> None:
    """What lies elsewhere is not written: neither folders that are links, nor files that are, if they will be gone on
    with; any other file is replaced, and with it the link."""
    for folder, folders, names in os.walk(out):
        for path in (Path(folder, name) for name in (*folders, *(names if files else ()))):
            if path.is_symlink() and not path.resolve().is_relative_to(out.resolve()):
                raise InputError(
                    f"{path} is a link out of the folder of the run, which writes nothing elsewhere; remove the link, "
                    "or name another folder."
                )


def _lies_in(source: Path, out: Path) -> bool:
    """Whether a source, or a picture of its folder, is below another folder, links followed."""
    links = [path for path in source.iterdir() if path.is_symlink()] if source.is_dir() else []
    return any(path.resolve().is_relative_to(out.resolve()) for path in (source, *links))


def _read_summary(out: Path) -> MapSummary | None:
    """None for one of another version."""
    try:
        return record_from(MapSummary, parse_json(content_of(out / SUMMARY_NAME)))
    except (OSError, ValueError):
        return None


def _summary_content(summary: MapSummary) -> bytes:
    return json.dumps(asdict(summary), indent=1).encode()


def _own_files(outputs: Outputs) -> tuple[str, ...]:
    """Names, below its folder, of all that a run may write, and of what `longtake demo` adds about it."""
    take, export = outputs.take, outputs.export
    depth = DepthFiles(None if take.depth is DepthKind.NPZ else 1.0).pattern
    optional = {
        "" if take.images is None else numbered(take.images): take.images is not None,
        numbered(depth): take.depth is not None,
        numbered(CONFIDENCE_FILES): take.confidence,
        **{format_named(name).file: True for name in outputs.formats},
        SESSION_NAME: outputs.session,
        f"{EXPORT_FOLDER}/{RECORD_NAME}": export is not None,
        **{f"{EXPORT_FOLDER}/{known.file}": True for known in (() if export is None else export.known)},
    }
    always = (
        *(HEADER_NAME, FRAMES_NAME, POSES_NAME, ONLINE_POSES_NAME, CORRECTIONS_NAME, DESCRIPTORS_NAME),
        CHECKPOINT_FOLDER,
        *(EVENTS_NAME, PROGRESS_NAME, SUMMARY_NAME, REPORT_NAME, TRUTH_NAME, ASKED_NAME),
    )
    return (*always, *(name for name, is_written in optional.items() if is_written))
