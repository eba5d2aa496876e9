"""Events of a run for people and programs: a bar and lines of text, or a JSON object for each event."""

import json
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from rich.text import Text

from longtake.api.progress import plain_console
from longtake.cli.export import export_lines
from longtake.cli.program import UnreadError, silence_stdout
from longtake.cli.progress import TaskProgress
from longtake.cli.signals import INTERRUPTED, stopped_by_signal
from longtake.exports.frame import FrameStatus, MappedFrame, PosedFrame
from longtake.exports.sink import Correction
from longtake.memory.budget import format_bytes
from longtake.pipeline.events import (
    Answered,
    AnswerText,
    Asking,
    Begun,
    Dropped,
    Ended,
    Event,
    Exported,
    Forgotten,
    Found,
    Frame,
    Lost,
    MapSummary,
    Moved,
    Noted,
    Posed,
    Saved,
    Unreadable,
)
from longtake.pipeline.question_schedule import Due, Every, Once, When, format_time
from longtake.pipeline.run import KEPT, Run
from longtake.places.loop_choice import LoopChoice
from longtake.runtime.answers import DialogueInfo, Ending, Evidence
from longtake.runtime.execution import Execution
from longtake.types import FrameKind, Tracking, counted
from longtake.video.reading import Source


@runtime_checkable
class Watched(Protocol):
    """What a reporter has to know of a run."""

    source: Source
    counts: Counter[str]
    """Frames by status, and `KEPT` ones."""

    @property
    def out(self) -> Path | None: ...

    @property
    def num_told(self) -> int: ...

    @property
    def resident_bytes(self) -> int: ...

    @property
    def dialogue_info(self) -> DialogueInfo | None: ...

    @property
    def has_map(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSummary:
    """What came of a source that a server watched."""

    source: str
    server: str
    out: str | None
    is_complete: bool
    num_frames: int
    seconds: float
    frames_per_s: float


class Reporter(ABC):
    """Is given every event of a run, in order."""

    @abstractmethod
    @contextmanager
    def watching(self, run: Watched) -> Iterator[None]:
        """While a run goes on."""

    @abstractmethod
    def report(self, event: Event) -> None: ...

    @abstractmethod
    def uses(self, model: str, execution: Execution, why_portable: str | None, loops: LoopChoice | None = None) -> None:
        """Which model runs, how it is computed, and on a GPU why not on our kernels; before anything is watched.

        Of a map also whether it closes loops, or why it does not.
        """

    @abstractmethod
    def uses_server(self, model: str, server: str) -> None:
        """The same where the network is elsewhere."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Something to know that is no result."""

    @abstractmethod
    def report_dialogue(self, info: DialogueInfo) -> None:
        """What a language model has seen and holds."""

    def exporting(self, frames: Iterable[MappedFrame], num_frames: int) -> Iterable[MappedFrame]:
        """Hands on the frames of an export."""
        return self.finishing("Exporting", frames, num_frames)

    @abstractmethod
    def finishing(self, what: str, frames: Iterable[MappedFrame], num_frames: int) -> Iterable[MappedFrame]:
        """Hands on the frames of what is made when the last one has come."""

    @abstractmethod
    def skipped(self, source: str, out: Path) -> None: ...

    @abstractmethod
    def failed(self, source: str, problem: str) -> None: ...

    @abstractmethod
    def served(self, summary: ServedSummary) -> None:
        """The end of what a server watched."""


def report_run(run: Run, reporter: Reporter) -> bool:
    """A run to its end. The first Ctrl-C stops it, and what was begun is finished. Whether no question was refused."""
    with (
        run,
        _put_off_if_unread(run),
        reporter.watching(run),
        stopped_by_signal(partial(_stop, run)),
        _told_if_exporting(run, reporter),
    ):
        num_refused = 0
        for event in run:
            num_refused += is_refusal(event)
            reporter.report(event)
        if run.owes_export:
            raise KeyboardInterrupt
    return not num_refused


def is_refusal(event: Event) -> bool:
    """Whether a question was answered with what the model knows instead."""
    return isinstance(event, Answered) and event.answer is not None and event.answer.ending is Ending.REFUSED


@contextmanager
def _told_if_exporting(run: Run, reporter: Reporter) -> Iterator[None]:
    """An export that is broken off is told; the video is mapped by then."""
    try:
        yield
    except KeyboardInterrupt:
        if run.summary is None or not run.summary.is_complete:
            raise
        reporter.note("The export was interrupted; go on with --resume.")
        sys.exit(INTERRUPTED)


@contextmanager
def _put_off_if_unread(run: Run) -> Iterator[None]:
    """Where nobody reads any more what is printed, as behind `| head -1`, a run into a folder ends as by Ctrl-C."""
    try:
        yield
    except BrokenPipeError as error:
        silence_stdout()
        if run.out is None:
            raise UnreadError("Nobody reads what is printed any more, so the watching was ended.") from error
        run.stop()
        for _ in run:
            pass
        is_over = run.summary is not None and run.summary.is_complete and not run.owes_export
        end = "is complete." if is_over else "was stopped; go on with --resume."
        raise UnreadError(f"Nobody reads what is printed any more; the run in {run.out} {end}") from error


def _stop(run: Run) -> None:
    """End a run after the frames begun, or at once while it exports."""
    if run.summary is not None:
        raise KeyboardInterrupt
    run.stop()


class JsonReporter(Reporter):
    """A JSON object a line on stdout; its `event` names the kind."""

    def __init__(self) -> None:
        self._used: dict[str, Any] = {}

    def uses(self, model: str, execution: Execution, why_portable: str | None, loops: LoopChoice | None = None) -> None:
        self._used = {"model": model, **asdict(execution)}
        if why_portable is not None:
            self._used["why_portable"] = why_portable
        if loops is not None:
            self._used["loops"] = loops.told

    def uses_server(self, model: str, server: str) -> None:
        self._used = {"model": model, "server": server}

    @contextmanager
    def watching(self, run: Watched) -> Iterator[None]:
        out = {} if run.out is None else {"out": str(run.out)}
        self._emit("start", source=run.source.name, **out, num_frames=run.source.num_frames, **self._used)
        self._out, self._counts = out, run.counts
        yield

    def report(self, event: Event) -> None:
        match event:
            case Noted():
                self.note(event.text)
            case Frame(mapped=MappedFrame() as mapped):
                keyframe = mapped.kind is not FrameKind.PASSING
                self._emit("frame", **_pose_record(PosedFrame.of(mapped)), keyframe=keyframe, window=mapped.window)
            case Posed():
                self._emit("frame", **_server_pose_record(event))
            case Moved():
                self._emit("moved", **_correction_record(event.correction))
            case Lost():
                self._emit("lost", index=event.index, time_s=event.timestamp_s, reason=event.reason)
            case Begun() | Found():
                name = type(event).__name__.lower()
                self._emit(name, index=event.index, time_s=event.timestamp_s, sub_map=event.sub_map)
            case Unreadable():
                self._emit("unreadable", index=event.index, time_s=event.timestamp_s, problem=event.problem)
            case Forgotten():
                self._emit("forgotten", count=event.count)
            case Dropped():
                self._emit("dropped", num_frames=event.num_frames)
            case Asking():
                self._note_each(_notes_on(event))
            case Answered():
                self._emit("answer", **_answer_record(event))
            case Saved():
                self._emit("saved", path=str(event.path), num_frames=event.num_frames)
            case Ended():
                self._report_end(event)
            case Exported():
                totals = {"peak_resident_bytes": event.peak_resident_bytes, "finishing_s": event.finishing_s}
                self._emit("export", **asdict(event.record), **totals)
            case Frame() | AnswerText():
                pass

    def note(self, text: str) -> None:
        self._emit("note", text=text)

    def report_dialogue(self, info: DialogueInfo) -> None:
        self._emit("watched", **asdict(info))

    def finishing(self, what: str, frames: Iterable[MappedFrame], num_frames: int) -> Iterable[MappedFrame]:  # noqa: ARG002
        return frames

    def skipped(self, source: str, out: Path) -> None:
        self._emit("skipped", source=source, out=str(out))

    def failed(self, source: str, problem: str) -> None:
        self._emit("failed", source=source, problem=problem)

    def served(self, summary: ServedSummary) -> None:
        self._emit("done", **asdict(summary))

    def _report_end(self, ended: Ended) -> None:
        self._note_each(map(_never_due, ended.never_due))
        if ended.summary is not None:
            self._emit("done", **self._out, **asdict(ended.summary))
        if ended.dialogue is not None:
            self._emit(
                "watched",
                num_dropped=ended.num_dropped,
                num_unreadable=self._counts[FrameStatus.UNREADABLE],
                **asdict(ended.dialogue),
            )

    def _note_each(self, notes: Iterable[str]) -> None:
        for note in notes:
            self.note(note)

    def _emit(self, event: str, **values: Any) -> None:
        print(json.dumps({"event": event, **values}), flush=True)


class TerminalReporter(Reporter):
    """A bar, notes and a line at the end on one stream; answers on stdout."""

    def __init__(self, *, has_answers: bool = False, is_labelled: bool = True) -> None:
        """Where there are answers, stdout is for them alone; labels say which question each is the answer to."""
        self._console = plain_console(stderr=has_answers)
        self._is_labelled = is_labelled
        self._progress = TaskProgress(self._console)
        self._run: Watched | None = None
        self._is_watching = False
        self._has_told_known = False
        self._last_unreadable: Unreadable | None = None
        self._num_more_unreadable = 0
        self._used = ""

    def uses(self, model: str, execution: Execution, why_portable: str | None, loops: LoopChoice | None = None) -> None:
        self._used = f"{model}, {execution.precision} on {execution.device}, attention by {execution.backend}"
        if why_portable is not None:
            self._used += f" (portable path: {why_portable})"
        if loops is not None:
            self._used += f", {loops}"

    def uses_server(self, model: str, server: str) -> None:
        self._used = f"{model} on {server}"

    @contextmanager
    def watching(self, run: Watched) -> Iterator[None]:
        self._run, self._is_watching = run, True
        self._console.print(self._used, style="dim", soft_wrap=True)
        with TaskProgress(self._console) as self._progress:
            self._progress.begin(run.source.name, run.source.num_frames)
            try:
                yield
            finally:
                self._is_watching = False
                self._tell_unreadable()

    def _count_unreadable(self, event: Unreadable) -> None:
        """The first is told with its reason, of the others how many there were."""
        if self._last_unreadable is None:
            self.note(f"frame {event.index} at {event.timestamp_s:.3f} s: {event.problem}")
        else:
            self._num_more_unreadable += 1
        self._last_unreadable = event

    def _tell_unreadable(self) -> None:
        last, number = self._last_unreadable, self._num_more_unreadable
        if last is not None and number:
            more = f"{counted(number, 'more frame')} up to frame {last.index} at {last.timestamp_s:.3f} s"
            self.note(f"{more} could not be read; --json tells of each.")
        self._last_unreadable, self._num_more_unreadable = None, 0

    def report(self, event: Event) -> None:
        match event:
            case Noted():
                self.note(event.text)
            case Frame() | Posed():
                self._advance()
            case Unreadable():
                self._count_unreadable(event)
                self._advance()
            case Asking():
                self._begin_answer(event)
            case AnswerText():
                print(event.text, end="", flush=True)
            case Answered():
                self._end_answer(event)
            case Ended():
                self._report_end(event)
            case Exported():
                for line in export_lines(event.record):
                    self._console.print(line, soft_wrap=True)
                most, seconds = _megabytes(event.peak_resident_bytes), event.finishing_s
                self._console.print(f"at most {most} in all with the export, {seconds:.1f} s after the last frame")
            case Moved() | Lost() | Begun() | Found() | Forgotten() | Dropped() | Saved():
                pass

    def note(self, text: str) -> None:
        self._console.print(text, style="yellow", soft_wrap=True)

    def report_dialogue(self, info: DialogueInfo) -> None:
        self._console.print(
            f"{counted(info.num_frames, 'frame')} up to {format_time(info.seen_until_s or 0.0)}{self._unreadable}, "
            f"{counted(info.num_tokens, 'token')} in memory ({info.live_bytes / 1e6:.1f} of "
            f"{info.num_bytes / 1e6:.1f} MB), seen in {info.seeing_s:.1f} s",
            soft_wrap=True,
        )

    def finishing(self, what: str, frames: Iterable[MappedFrame], num_frames: int) -> Iterable[MappedFrame]:
        task = self._progress.begin(what, num_frames)
        for frame in frames:
            yield frame
            self._progress.advance(task)

    def skipped(self, source: str, out: Path) -> None:
        self._console.print(f"{source} is done, in {out}", soft_wrap=True)

    def failed(self, source: str, problem: str) -> None:
        self._console.print(Text(f"{source}: {problem}", style="red"), soft_wrap=True)

    def served(self, summary: ServedSummary) -> None:
        place = "" if summary.out is None else f"; in {summary.out}"
        end = "" if summary.is_complete else "; interrupted"
        rate = f"{counted(summary.num_frames, 'frame')} at {summary.frames_per_s:.1f} frames/s"
        self._console.print(f"{rate} on {summary.server}{place}{end}", soft_wrap=True)

    def _advance(self) -> None:
        assert self._run is not None
        task = self._progress.tasks[0]
        num_done, info = self._run.num_told, self._run.dialogue_info
        if info is not None:
            up_to = f"up to {format_time(info.seen_until_s or 0.0)}{self._unreadable}"
            state = f"{up_to}, {info.num_tokens} tokens in memory"
            num_done = max(num_done, info.num_frames)  # frames that were seen together are told one by one
        else:
            resident, counts = format_bytes(self._run.resident_bytes).partition(" (")[0], self._run.counts
            state = f"{task.speed or 0:.1f} frames/s, {resident}, {counts[KEPT]} kept{_troubles(counts)}"
        self._progress.update(task.id, completed=num_done, state=state)

    @property
    def _unreadable(self) -> str:
        """How many frames gave no picture; empty where all did."""
        name = FrameStatus.UNREADABLE
        return "" if self._run is None else _troubles({name: self._run.counts[name]})

    def _begin_answer(self, asking: Asking) -> None:
        for note in _notes_on(asking):
            self.note(note)
        self._progress.stop()  # it would be drawn into the text where both go to one terminal
        if self._is_labelled or not isinstance(asking.due.asked, Once):
            print(f"{_label(asking.due)} ", end="", flush=True)

    def _end_answer(self, answered: Answered) -> None:
        refusal = None if answered.answer is None else answered.answer.refusal
        if isinstance(answered.due.asked, When):
            self._progress.stop()
            print(f"{_label(answered.due)} {answered.text}", end="")
        elif answered.choices:
            scores = ", ".join(f"{choice.text} {choice.mean_log_likelihood:.2f}" for choice in answered.choices)
            print(f"{answered.text} ({scores})", end="")
        elif refusal is not None:
            print(refusal.why, end="")
        attended = looked_at(answered.evidence)
        if self._run is not None and self._run.has_map:
            print(f" ({'; '.join(filter(None, (_where(answered.pose), attended)))})", flush=True)
        else:
            print(flush=True)
            if attended:
                self._console.print(attended, style="dim", soft_wrap=True)
        if refusal is not None and not self._has_told_known:
            self._has_told_known = True
            self.note(refusal.known)
        if self._is_watching:
            self._progress.start()

    def _report_end(self, ended: Ended) -> None:
        for unasked in ended.never_due:
            self.note(_never_due(unasked))
        if ended.tracking is not None and ended.tracking.in_words is not None:
            style = "yellow" if ended.tracking.has_trouble else None
            self._console.print(ended.tracking.in_words, style=style, soft_wrap=True)
        if ended.summary is not None:
            self._console.print(_summary_line(ended.summary, self._run), soft_wrap=True)
        if ended.dialogue is not None:
            if ended.num_dropped:
                self.note(
                    f"{counted(ended.num_dropped, 'frame')} came while the sessions were busy, and had to be dropped."
                )
            self.report_dialogue(ended.dialogue)


def looked_at(evidence: Sequence[Evidence]) -> str:
    """Which times of the video an answer comes from, for people."""
    spans = [f"{_span(span)} {span.weight:.0%}" for span in evidence]
    return f"looked at {', '.join(spans)}" if spans else ""


def _span(span: Evidence) -> str:
    start, end = format_time(span.start_s), format_time(span.end_s)
    return start if start == end else f"{start}-{end}"


def _label(due: Due) -> str:
    return f"[{format_time(due.time_s or 0.0)}] {due.asked.text}"


def _where(pose: PosedFrame | None) -> str:
    if pose is None:
        return "no pose yet"
    x, y, z = pose.world_from_camera[:3, 3].tolist()
    return f"at {x:.2f} {y:.2f} {z:.2f}"


def _notes_on(asking: Asking) -> list[str]:
    """What to know before an answer comes."""
    asked, time_s = asking.due.asked, asking.due.time_s
    notes: list[str] = []
    if isinstance(asked, Once) and asked.at_s is not None and asking.due.is_late and time_s is not None:
        notes.append(
            f"The video ends at {format_time(time_s)}, before {format_time(asked.at_s)}; '{asked.text}' is answered "
            "at its end."
        )
    if asking.seen_until_s is None:
        notes.append(f"No frame has been seen; '{asked.text}' is answered without video.")
    return notes


def _never_due(asked: Every) -> str:
    return f"The video ended within {asked.every_s:g} s of its first frame; '{asked.text}' was never due."


def _pose_record(pose: PosedFrame) -> dict[str, Any]:
    return {
        "index": pose.index,
        "time_s": pose.timestamp_s,
        "status": pose.status,
        "world_from_camera": pose.world_from_camera.tolist(),
        "provisional": pose.provisional,
        "tracking": _tracking_record(pose.tracking),
    }


def _server_pose_record(posed: Posed) -> dict[str, Any]:
    return {
        "index": posed.index,
        "time_s": posed.timestamp_s,
        "world_from_camera": posed.world_from_camera.tolist(),
        "provisional": posed.provisional,
        "keyframe": posed.is_keyframe,
        "window": posed.window,
        "tracking": _tracking_record(posed.tracking),
    }


def _tracking_record(tracking: Tracking | None) -> dict[str, str | int | None] | None:
    return None if tracking is None else tracking.to_record()


def _correction_record(correction: Correction) -> dict[str, Any]:
    spans = [{**asdict(span), "now_from_before": span.now_from_before.tolist()} for span in correction.spans]
    frames = [_pose_record(PosedFrame.of(frame)) for frame in correction.frames]
    return {"version": correction.version, "spans": spans, "frames": frames}


def _answer_record(answered: Answered) -> dict[str, Any]:
    """Every key for every answer; null where it has no meaning."""
    answer = answered.answer
    return {
        "kind": type(answered.due.asked).__name__.lower(),
        "time_s": answered.due.time_s,
        "is_late": answered.due.is_late,
        "question": answered.due.asked.text,
        "text": answered.text,
        "choices": [asdict(choice) for choice in answered.choices] or None,
        "seen_until_s": answered.seen_until_s,
        "evidence": [asdict(span) for span in answered.evidence],
        "pose": None if answered.pose is None else _pose_record(answered.pose),
        "ending": None if answer is None else answer.ending,
        "tokens": None if answer is None else len(answer.ids),
        "first_token_s": None if answer is None else answer.timing.first_token_s,
        "tokens_per_s": None if answer is None else answer.timing.tokens_per_s,
        "total_s": answered.total_s,
    }


_IN_WORDS = {FrameStatus.WEAK: "that the network is unsure of"}
"""Statuses whose names tell something else where the camera's tracking is said."""


def _summary_line(summary: MapSummary, run: Watched | None) -> str:
    end = "" if summary.is_complete else "; interrupted, go on with --resume"
    dropped = f", {summary.num_dropped} dropped" if summary.num_dropped else ""
    windows = f", {summary.num_windows} windows" if summary.num_windows > 1 else ""
    num_loops = summary.loops.get("num_loops", 0) - summary.loops.get("num_withdrawn", 0)
    loops = f", {counted(num_loops, 'loop')} closed" if num_loops else ""
    place = "" if run is None else f"; in {run.out}"
    num_unreadable = summary.statuses.get(FrameStatus.UNREADABLE, 0)
    mapped = f"{summary.num_frames - num_unreadable} of " if num_unreadable else ""
    ages = summary.provisional
    is_moved = bool(ages.get("num_frames"))
    final_after = f", each pose final at most {ages['largest_s']:.1f} s of video after its frame" if is_moved else ""
    if loops and is_moved:
        final_after += " but for loops"
    finishing = f", {summary.finishing_s:.1f} s more after the last" if summary.finishing_s > 1.0 else ""
    return (
        f"{mapped}{counted(summary.num_frames, 'frame')} at {summary.frames_per_s:.1f} frames/s{finishing}, "
        f"{summary.num_keyframes} kept{windows}{loops}{final_after}{dropped}{_troubles(summary.statuses)}; "
        f"memory of {summary.memory_bytes / 1e6:.1f} MB, "
        f"at most {_megabytes(summary.peak_resident_bytes)} in all{place}{end}"
    )


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.0f} MB"


def _troubles(counts: Mapping[str, int]) -> str:
    """Statuses but `ok`, with how many frames have them."""
    return "".join(
        f", {counts[status]} {_IN_WORDS.get(status, status)}"
        for status in FrameStatus
        if status is not FrameStatus.OK and counts.get(status, 0)
    )
