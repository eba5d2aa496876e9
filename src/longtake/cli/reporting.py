"""How a long job tells what it does: a bar for people, a line of JSON for each event for programs."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from longtake.cli.export import tell_record
from longtake.export.frame import FrameStatus, MappedFrame
from longtake.export.record import ExportRecord
from longtake.memory.budget import format_bytes
from longtake.pipeline.run import KEPT, Unreadable
from longtake.pipeline.video_map import MapSummary, VideoMap
from longtake.types import FrameKind
from longtake.video.reading import Source


class Reporter(ABC):
    """Told of everything that happens."""

    @abstractmethod
    @contextmanager
    def telling(self, source: Source, out: Path) -> Iterator[None]:
        """While one source is mapped."""

    @abstractmethod
    def frame(self, item: MappedFrame | Unreadable, video: VideoMap) -> None:
        """A frame was written, or could not be read."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Something to know beforehand."""

    @abstractmethod
    def exporting(self, frames: Iterable[MappedFrame], num_frames: int) -> Iterable[MappedFrame]:
        """Hands on the frames of an export while the source is still told of."""

    @abstractmethod
    def done(self, summary: MapSummary, out: Path) -> None: ...

    @abstractmethod
    def exported(self, record: ExportRecord) -> None: ...

    @abstractmethod
    def skipped(self, source: str, out: Path) -> None: ...

    @abstractmethod
    def failed(self, source: str, problem: str) -> None: ...


class JsonReporter(Reporter):
    """A JSON object a line on stdout: `event` is note, start, frame, unreadable, done, export, skipped or failed."""

    @contextmanager
    def telling(self, source: Source, out: Path) -> Iterator[None]:
        self._say("start", source=source.name, out=str(out), num_frames=source.num_frames)
        yield

    def frame(self, item: MappedFrame | Unreadable, video: VideoMap) -> None:  # noqa: ARG002
        if isinstance(item, Unreadable):
            self._say("unreadable", **asdict(item))
            return
        self._say(
            "frame",
            index=item.index,
            timestamp_s=item.timestamp_s,
            status=item.status,
            keyframe=item.kind is not FrameKind.PASSING,
            window=item.window,
        )

    def note(self, text: str) -> None:
        self._say("note", text=text)

    def exporting(self, frames: Iterable[MappedFrame], num_frames: int) -> Iterable[MappedFrame]:  # noqa: ARG002
        return frames

    def done(self, summary: MapSummary, out: Path) -> None:
        self._say("done", out=str(out), **asdict(summary))

    def exported(self, record: ExportRecord) -> None:
        self._say("export", **asdict(record))

    def skipped(self, source: str, out: Path) -> None:
        self._say("skipped", source=source, out=str(out))

    def failed(self, source: str, problem: str) -> None:
        self._say("failed", source=source, problem=problem)

    def _say(self, event: str, **values: Any) -> None:
        print(json.dumps({"event": event, **values}), flush=True)


class TerminalReporter(Reporter):
    """A bar with frames a second, memory, keyframes and what went wrong; a line at the end."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._progress = self._new_progress()

    @contextmanager
    def telling(self, source: Source, out: Path) -> Iterator[None]:  # noqa: ARG002
        with self._new_progress() as self._progress:
            self._progress.add_task(source.name, total=source.num_frames, rate="", state="")
            yield

    def frame(self, item: MappedFrame | Unreadable, video: VideoMap) -> None:
        task = self._progress.tasks[0]
        if isinstance(item, Unreadable):
            self._console.print(Text(f"frame {item.index} at {item.timestamp_s:.3f} s: {item.problem}"), soft_wrap=True)
        resident = format_bytes(video.resident_bytes).partition(" (")[0]
        self._progress.update(
            task.id,
            advance=1,
            rate=f"{task.speed or 0:.1f} frames/s",
            state=f"{resident}, {video.counts[KEPT]} kept{_troubles(video.counts)}",
        )

    def exporting(self, frames: Iterable[MappedFrame], num_frames: int) -> Iterable[MappedFrame]:
        task = self._progress.add_task("Exporting", total=num_frames, rate="", state="")
        for frame in frames:
            yield frame
            self._progress.advance(task)

    def exported(self, record: ExportRecord) -> None:
        tell_record(record, self._console)

    def note(self, text: str) -> None:
        self._console.print(text, style="yellow", soft_wrap=True)

    def done(self, summary: MapSummary, out: Path) -> None:
        end = "" if summary.is_complete else "; interrupted, go on with --resume"
        dropped = f", {summary.num_dropped} dropped" if summary.num_dropped else ""
        windows = f", {summary.num_windows} windows" if summary.num_windows > 1 else ""
        self._console.print(
            f"{summary.num_frames} frames at {summary.frames_per_s:.1f} frames/s, {summary.num_keyframes} kept{windows}"
            f"{dropped}{_troubles(summary.statuses)}; memory of {summary.memory_bytes / 1e6:.1f} MB, at most "
            f"{summary.peak_resident_bytes / 1e6:.0f} MB in all; in {out}{end}",
            soft_wrap=True,
        )

    def skipped(self, source: str, out: Path) -> None:
        self._console.print(f"{source} is done, in {out}", soft_wrap=True)

    def failed(self, source: str, problem: str) -> None:
        self._console.print(Text(f"{source}: {problem}", style="red"), soft_wrap=True)

    def _new_progress(self) -> Progress:
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )


def _troubles(counts: Mapping[str, int]) -> str:
    """Statuses but `ok`, with how many frames have them."""
    return "".join(
        f", {counts[status]} {status}"
        for status in FrameStatus
        if status is not FrameStatus.OK and counts.get(status, 0)
    )
