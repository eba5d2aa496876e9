"""`--server URL`: the same commands with the network elsewhere; frames go there as they are, and results come back."""

import inspect
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from longtake.api.live_session import LiveAnswer
from longtake.cli import options
from longtake.cli.reporting import Reporter, ServedSummary, is_refusal
from longtake.cli.signals import INTERRUPTED, stopped_by_signal
from longtake.errors import SettingError
from longtake.exports.frame import FrameStatus
from longtake.exports.sink import Correction
from longtake.pipeline.events import Answered, AnswerText, Asking, Event, Frame, Moved, Posed, Unreadable
from longtake.pipeline.question_schedule import Asked, Due, Once, QuestionSchedule
from longtake.pipeline.run import KEPT
from longtake.pipeline.tracked import TrackingTeller
from longtake.pipeline.writer_process import resident_bytes
from longtake.runtime.answers import DialogueInfo
from longtake.server.client import Client, RemoteSession
from longtake.takes.tum import as_written
from longtake.types import FrameKind, Geometry
from longtake.video.frame import VideoFrame
from longtake.video.reading import Source

_EVERYWHERE = frozenset({"server", "token", "certificate", "as_json", "start", "end", "fps", "picture_fps"})
"""Options that mean the same with a server and without."""
_LONGEST_TITLE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedServer:
    """Which server, and what it wants to see."""

    url: str
    token: str | None
    certificate: Path | None

    def client(self) -> Client:
        token = self.token or os.environ.get(options.TOKEN_VARIABLE) or None
        return Client(self.url, token=token, certificate=self.certificate)


def named_server(command: Callable[..., None], values: Mapping[str, Any], meant: Collection[str]) -> NamedServer | None:
    """The server that a command's options name, None where they do not; with one, all that it is not told is refused.

    `values` are the command's, by the names of its parameters.
    """
    url, token, certificate = (values[name] for name in ("server", "token", "certificate"))
    if url is None:
        if token is not None or certificate is not None:
            alone = "--certificate" if token is None else "--token"
            raise SettingError(f"{alone} has no meaning without --server; leave it out, or name the server.")
        return None
    defaults = inspect.signature(command).parameters
    given = {name for name in defaults if values[name] != defaults[name].default}
    if strange := sorted(given - _EVERYWHERE - set(meant)):
        option = strange[0].replace("_", "-")
        raise SettingError(f"--{option} has no meaning with --server, which decides that by itself; leave it out.")
    return NamedServer(url=url, token=token, certificate=certificate)


def title_of(source: Source) -> str:
    """What a session of this source is called on a server: a file by its name, without where it is here."""
    return (Path(source.name).name or source.name)[:_LONGEST_TITLE]


@dataclass(slots=True, eq=False)
class ServedRun:
    """A source on its way to a server, as a reporter knows it."""

    source: Source
    session: RemoteSession
    url: str
    out: Path | None = None
    counts: Counter[str] = field(default_factory=Counter)
    num_told: int = 0
    last_s: float | None = None
    is_stopped: bool = False
    _started_s: float = field(default_factory=time.perf_counter)
    _indices: list[int] = field(default_factory=list)
    """Of frames that were sent, in the source's count."""
    _noted: set[str] = field(default_factory=set)
    _tracking: TrackingTeller = field(default_factory=TrackingTeller)

    @property
    def resident_bytes(self) -> int:
        return resident_bytes()

    @property
    def dialogue_info(self) -> DialogueInfo | None:
        """Only the server knows."""
        return None

    @property
    def has_map(self) -> bool:
        return self.out is not None

    def new_notes(self) -> Iterator[str]:
        """What to know before the server's models are trusted with this source, each once."""
        for note in self.session.notes:
            if note not in self._noted:
                self._noted.add(note)
                yield note

    def pass_over_notes(self) -> None:
        """Those there are: of a world it need not be said that a model knows nothing else."""
        self._noted.update(self.session.notes)

    def stop(self) -> None:
        """End after the current frame."""
        self.is_stopped = True
        self.source.stop()

    def readable(self, tell: Callable[[Event], None]) -> Generator[VideoFrame, None, None]:
        """Frames with a picture; of others it is told."""
        with closing(self.source.frames()) as frames:
            for frame in frames:
                if self.is_stopped:
                    return
                self.num_told += 1
                if frame.image is None:
                    self.counts[FrameStatus.UNREADABLE] += 1
                    tell(Unreadable(frame.index, frame.timestamp_s, frame.problem or "there is no picture"))
                else:
                    self.last_s = frame.timestamp_s
                    yield frame

    def step(self, frame: VideoFrame) -> Geometry | None:
        self._indices.append(frame.index)
        return self.session.step(frame)

    def events_of(self, geometry: Geometry | None) -> Iterator[Event]:
        """What a result says, in the source's count of frames."""
        if geometry is None:
            return
        if geometry.moved is not None:
            spans = tuple(
                replace(span, first_frame=self._indices[span.first_frame], last_frame=self._indices[span.last_frame])
                for span in geometry.moved.spans
            )
            yield Moved(correction=Correction(version=geometry.moved.version, spans=spans))
            yield from self._tracking_of(geometry.moved.geometry)
        for place, number in enumerate(geometry.frame_index):
            is_keyframe = geometry.kind[place] is not FrameKind.PASSING
            self.counts[KEPT] += is_keyframe
            yield Posed(
                index=self._indices[number],
                timestamp_s=geometry.timestamp_s[place],
                world_from_camera=as_written(geometry.world_from_camera[place].double().cpu()),
                provisional=bool(geometry.provisional[place]),
                is_keyframe=is_keyframe,
                window=geometry.window[place],
                tracking=None if geometry.tracking is None else geometry.tracking[place],
            )
        yield from self._tracking_of(geometry)

    def _tracking_of(self, geometry: Geometry) -> Iterator[Event]:
        """When the camera was lost, went on and was found."""
        for number, time_s, tracking in zip(
            geometry.frame_index, geometry.timestamp_s, geometry.tracking or (), strict=False
        ):
            yield from self._tracking.take(self._indices[number], time_s, tracking)

    @property
    def summary(self) -> ServedSummary:
        seconds = time.perf_counter() - self._started_s
        return ServedSummary(
            source=self.source.name,
            server=self.url,
            out=None if self.out is None else str(self.out),
            is_complete=not self.is_stopped,
            num_frames=len(self._indices),
            seconds=seconds,
            frames_per_s=len(self._indices) / seconds,
        )


def map_served(run: ServedRun, reporter: Reporter, fetch: Callable[[RemoteSession], None]) -> None:
    """Map a source on a server, and fetch what came of it; Ctrl-C ends it with the frames so far."""
    _tell_first_notes(run, reporter)
    with reporter.watching(run), stopped_by_signal(run.stop):
        for frame in run.readable(reporter.report):
            for event in run.events_of(run.step(frame)):
                reporter.report(event)
            _tell_notes(run, reporter)
        for event in run.events_of(run.session.finish()):
            reporter.report(event)
        _tell_notes(run, reporter)
    summary = run.summary
    fetch(run.session)
    reporter.served(summary)
    if run.is_stopped:
        sys.exit(INTERRUPTED)


def _tell_first_notes(run: ServedRun, reporter: Reporter) -> None:
    if run.source.shows_world:
        run.pass_over_notes()
    _tell_notes(run, reporter)


def _tell_notes(run: ServedRun, reporter: Reporter) -> None:
    for note in run.new_notes():
        reporter.note(note)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaking:
    """How answers are made."""

    temperature: float
    max_tokens: int


def ask_served(run: ServedRun, asked: Sequence[Asked], reporter: Reporter, speaking: Speaking) -> bool:
    """Watch a source on a server and answer what is due on the way. Whether no question was refused."""
    are_answered = True
    _tell_first_notes(run, reporter)
    with reporter.watching(run), stopped_by_signal(run.stop):
        for part in QuestionSchedule(asked).through(run.readable(reporter.report), lambda: 1):
            for one in part:
                if isinstance(one, Due):
                    are_answered &= _answer(run.session, one, reporter, speaking)
                else:
                    run.step(one)
                    reporter.report(Frame(index=one.index, timestamp_s=one.timestamp_s, mapped=None))
                    _tell_notes(run, reporter)
        run.session.finish()
        _tell_notes(run, reporter)
    reporter.served(run.summary)
    return are_answered


def converse_served(run: ServedRun, questions: Iterable[str], reporter: Reporter, speaking: Speaking) -> list[bool]:
    """Answer these about all that was seen; whether each was, and not refused."""
    dues = (Due(asked=Once(text=question), time_s=run.last_s) for question in questions)
    return [_answer(run.session, due, reporter, speaking) for due in dues]


def _answer(session: RemoteSession, due: Due, reporter: Reporter, speaking: Speaking) -> bool:
    started_s = time.perf_counter()
    reporter.report(Asking(due=due, seen_until_s=due.time_s))
    coming = session.ask_stream(due.asked.text, temperature=speaking.temperature, max_tokens=speaking.max_tokens)
    last = next(coming)
    for piece in coming:
        is_told_in_parts = isinstance(piece, LiveAnswer) and piece.answer.refusal is not None
        if isinstance(last, str) and not is_told_in_parts:
            reporter.report(AnswerText(last))
        last = piece
    assert isinstance(last, LiveAnswer)
    answered = _answered(due, last, time.perf_counter() - started_s)
    reporter.report(answered)
    return not is_refusal(answered)


def _answered(due: Due, said: LiveAnswer, total_s: float) -> Answered:
    plain = said.answer
    return Answered(
        due=due,
        text=plain.text,
        seen_until_s=plain.seen_until_s,
        evidence=plain.evidence,
        answer=plain,
        total_s=total_s,
    )
