"""One source from its first frame to its last: decoded, prepared, looked at, asked about and written side by side.

source ─▶ decode ─▶ prepare ─▶ step, and answers between frames ─▶ tell ─▶ write, and events to the caller
          a thread each, the last the caller's; a bounded queue between two
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from pathlib import Path

from longtake.exports.frame import FrameStatus, MappedFrame
from longtake.exports.reexport import ProgressCallback, no_progress
from longtake.exports.sink import ReplacingSink, Sink
from longtake.exports.tracking import TrackingSummary
from longtake.pipeline.checkpoint import CheckpointRule, Checkpoints, Reached
from longtake.pipeline.continuing import EarlierTake
from longtake.pipeline.events import Dropped, Ended, Event, Exported, Frame, MapSummary, Moved, Noted, Saved, Unreadable
from longtake.pipeline.interleaving import Interleaving
from longtake.pipeline.live import LiveSession, Looked, Waited
from longtake.pipeline.map_results import Prepared, Stepped
from longtake.pipeline.notes import notes_on, unreadable_note
from longtake.pipeline.prefetch import Prefetcher, WhenFull
from longtake.pipeline.question_schedule import Asked, Due, QuestionSchedule, When
from longtake.pipeline.run_folder import RunFolder
from longtake.pipeline.tracked import count_tracking, tracking_summary
from longtake.pipeline.writer_process import WriterProcess, forget_peak, peak_bytes, resident_bytes
from longtake.places.loop_choice import LoopChoice
from longtake.runtime.answers import DialogueInfo
from longtake.runtime.execution import Execution
from longtake.takes.atomic_files import writing
from longtake.takes.corrections import Corrections
from longtake.takes.take import read_take
from longtake.types import FrameKind
from longtake.video.frame import VideoFrame
from longtake.video.reading import Source

QUEUED = 4
"""Frames that wait between two stages; of a live source only before the first, for the newest matters most."""
PROGRESS_EVERY = 50
"""Frames between two lines on time and memory."""
KEPT = "kept"
_ADVICE = "; --fit pad (fit='pad') shows all"
"""To whom maps a video into a folder; elsewhere there is no choice."""
_SAVED_BYTES_PER_S = 1e9
"""How fast a session is thought to be saved before one was."""
_Stepped = Stepped | Looked | Waited | Event | Reached
_Told = MappedFrame | Event | Reached


class Run(Iterator[Event]):
    """A source under way through a session: iterate, once, for what happens. `stop` ends it after the frames begun.

    With a folder, results are written there, and a run that is stopped or killed can go on; with a sink they are
    written alone; without either they come as events only. `close`, or leaving a `with` block, ends it where it is,
    also before its first event.
    """

    def __init__(
        self,
        source: Source,
        session: LiveSession,
        asked: Sequence[Asked] = (),
        *,
        output: RunFolder | Sink | None = None,
        model_name: str = "",
        notes: tuple[str, ...] = (),
        execution: Execution | None = None,
        loops: LoopChoice | None = None,
        checkpoints: CheckpointRule | None = None,
        when_full: WhenFull = WhenFull.NEWEST_WINS,
        on_export: ProgressCallback = no_progress,
        writer_process: WriterProcess | None = None,
        earlier: EarlierTake | None = None,
    ) -> None:
        """`when_full` says what happens to a new frame of a live source while the sessions are busy; others wait."""
        self.source, self.session = source, session
        self._schedule = QuestionSchedule(asked)
        self._model_name, self._notes, self._execution = model_name, notes, execution or Execution()
        self._loops = loops or LoopChoice()
        self._folder = output if isinstance(output, RunFolder) else None
        self._replacing = output if isinstance(output, ReplacingSink) else None
        self._keeping = output if self._replacing is None else None
        self._checkpoint_rule, self._on_export = checkpoints or CheckpointRule(), on_export
        self._when_full = when_full if source.is_live else WhenFull.BLOCK
        self._writer_process, self._earlier = writer_process, earlier
        self._stop = threading.Event()
        self._is_complete = False
        self._decoded: Prefetcher[VideoFrame] | None = None
        checkpoint = None if self._folder is None else self._folder.checkpoint
        self._first_owed, self._num_before = (
            (0, 0) if checkpoint is None else (checkpoint.first_owed, checkpoint.num_frames)
        )
        self._num_taken = self._num_saved = self._num_before
        self._num_told_before = self._num_told = self._num_told_dropped = 0
        self._has_noted = False
        self._unreadable: str | None = None
        """Why the last frame that gave no picture gave none: of a video that is cut off, that it is."""
        self._started_s = self._saved_s = 0.0
        self._saving_s = self._writing_checkpoint_s = 0.0
        self.counts: Counter[str] = Counter({} if checkpoint is None else checkpoint.counts)
        """Frames by status, `KEPT` ones, and those of each state of tracking."""
        self._closing = ExitStack()
        if output is not None:
            self._closing.callback(output.close)
        self._events = self._happening()

    @property
    def out(self) -> Path | None:
        """The folder, where there is one."""
        return None if self._folder is None else self._folder.path

    @property
    def summary(self) -> MapSummary | None:
        """What came of the folder, once the frames have ended."""
        return None if self._folder is None else self._folder.summary

    @property
    def notes(self) -> tuple[str, ...]:
        """What is known so far that a reader should know of the model and the video before trusting the results."""
        return self._notes

    @property
    def owes_export(self) -> bool:
        """Whether it was stopped when its last frame had come: it then has to go on for the files of the whole."""
        return self._is_put_off and self._folder is not None and self._folder.wants_export

    @property
    def dialogue_info(self) -> DialogueInfo | None:
        """What the language model has seen and holds, where there is one."""
        return None if self.session.dialogue is None else self.session.dialogue.info

    @property
    def has_map(self) -> bool:
        return self.session.mapper is not None

    @property
    def num_told(self) -> int:
        """Frames of the source that were told so far, also before it was broken off where it goes on."""
        return self._num_told_before + self._num_told

    @property
    def num_dropped(self) -> int:
        """Frames of a live source that came while the sessions were busy."""
        return 0 if self._decoded is None else self._decoded.num_dropped

    @property
    def resident_bytes(self) -> int:
        """That this process holds now, and the one that writes where there is one."""
        return resident_bytes() + (0 if self._writer_process is None else self._writer_process.resident_bytes)

    @property
    def _peak_bytes(self) -> int:
        """The most that both held for this run so far, each at its own time."""
        return peak_bytes() + (0 if self._writer_process is None else self._writer_process.peak_bytes)

    def _forget_peak(self) -> None:
        """Of videos before this one, which the same processes may have mapped."""
        forget_peak()
        if self._writer_process is not None:
            self._writer_process.forget_peak()

    def stop(self) -> None:
        """Take no more frames; what was begun is finished and written."""
        self._stop.set()
        self.source.stop()

    def close(self) -> None:
        """Leave whole files; what was begun is not finished."""
        try:
            self._events.close()
        finally:
            self._closing.close()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> Event:
        return next(self._events)

    def _happening(self) -> Generator[Event, None, None]:
        with self._closing:
            self._forget_peak()
            if self.summary is None:
                yield from self._watch()
            yield self._ended()
            if self._folder is not None and self._folder.wants_export and not self.owes_export:
                record = self._folder.export(self._on_export, lambda: self._peak_bytes)
                assert self.summary is not None
                yield Exported(
                    record=record,
                    peak_resident_bytes=self.summary.peak_resident_bytes,
                    finishing_s=self.summary.finishing_s,
                )

    def _watch(self) -> Iterator[Event]:
        self._started_s, num_before = time.monotonic(), self._num_mapped
        self._saved_s = self._started_s
        num_ahead, num_queued = max(QUEUED, self.session.most_together), 1 if self.source.is_live else QUEUED
        with ExitStack() as stages:
            frames = self.source.frames(self._first_owed)
            self._decoded = stages.enter_context(Prefetcher(frames, num_ahead, self._when_full))
            prepared = stages.enter_context(Prefetcher(self._prepare(self._decoded), num_queued))
            stepped = stages.enter_context(Prefetcher(self._step(prepared), num_queued))
            told = stages.enter_context(Prefetcher(self._tell(stepped), num_queued))
            stages.callback(self.source.stop)  # first of all, so that no stage waits for frames nobody wants
            for item in told:
                yield from self._written(item)
        if self._folder is not None:
            seconds = time.monotonic() - self._started_s
            self._folder.close_files()
            yield from self._saved()
            summary = self._summarise(self._folder, seconds, (self._num_mapped - num_before) / seconds)
            corrections = self._corrections if summary.is_complete else None
            if self._earlier is not None and summary.is_complete and self._num_mapped:
                apart = () if summary.tracking is None else summary.tracking.apart
                continued = self._earlier.continued_by(read_take(self._folder.path), corrections, apart)
                summary = replace(summary, continued=continued.record, notes=(*summary.notes, continued.note))
                corrections = continued.corrections
                yield Noted(continued.note)
            self._folder.finish(summary, corrections)

    def _prepare(self, frames: Iterable[VideoFrame]) -> Generator[Prepared | Unreadable, None, None]:
        for frame in frames:
            if frame.problem is None:
                yield self.session.prepare(frame)
            else:
                yield Unreadable(frame.index, frame.timestamp_s, frame.problem)

    def _step(self, prepared: Iterable[Prepared | Unreadable]) -> Generator[_Stepped, None, None]:
        """Frames and questions in the order of time; of a live source frames go on while answers are made."""
        if not self.source.is_live or self.session.dialogue is None:
            yield from self._step_in_turn(prepared)
            return
        interleaving = Interleaving[_Stepped](lambda work: self._drive(work, prepared), capacity=1)
        with closing(interleaving.items()) as items:
            yield from items

    def _drive(self, work: Interleaving[_Stepped], prepared: Iterable[Prepared | Unreadable]) -> None:
        """Hand out the frames and questions of a live source as they come; nothing of it can be gone on with."""
        beside: deque[_Stepped] = deque()
        for item in self._schedule.through(self._readable(prepared, beside), lambda: self.session.chunk_size):
            work.emit(_drained(beside))
            if not isinstance(item, tuple):
                work.frame(iter(self.session.step(*item)))
            elif all(isinstance(due.asked, When) for due in item):
                work.frame(iter(self._answer(item)))  # about what was just looked at
            else:
                work.answer(iter(self._answer(item)))
        work.emit(_drained(beside))

    def _step_in_turn(self, prepared: Iterable[Prepared | Unreadable]) -> Generator[_Stepped, None, None]:
        """A frame waits for the answers that were due before it, so that results can be repeated."""
        beside: deque[_Stepped] = deque()
        for item in self._schedule.through(self._readable(prepared, beside), lambda: self.session.chunk_size):
            yield from _drained(beside)
            if isinstance(item, tuple):
                yield from self._answer(item)
            else:
                yield from self.session.step(*item)
                if self._is_checkpoint_due:
                    yield from self._save()
        yield from _drained(beside)
        if self._stop.is_set():
            yield from self._save()

    def _readable(self, prepared: Iterable[Prepared | Unreadable], beside: deque[_Stepped]) -> Iterator[Prepared]:
        """New frames with pictures; others, and the results that come last, go beside them."""
        for item in prepared:
            index = item.frame.index if isinstance(item, Prepared) else item.index
            if index < self._num_before:
                beside.extend(self._read_again(item))
                continue
            self._num_taken = index + 1
            if isinstance(item, Prepared):
                yield item
            else:
                beside.append(item)
        if not self._is_put_off:  # what is stopped and can go on has not ended
            beside.extend(self._finish())
            self._is_complete = True

    def _read_again(self, item: Prepared | Unreadable) -> Iterator[Stepped]:
        """A frame from before the checkpoint, whose result is still to come."""
        assert self.session.mapper is not None
        if isinstance(item, Prepared):
            yield self.session.mapper.recall(item)

    def _finish(self) -> Iterator[_Stepped]:
        """The last results; before them the session is saved where it is wanted, for no frame may follow those."""
        path = None if self._folder is None else self._folder.session_path
        mapper = self.session.mapper
        if path is not None and mapper is not None and mapper.session is not None:
            with writing(str(path)):
                mapper.save(path)
            yield Saved(path=path, num_frames=self._num_taken)
        yield from self.session.finish()

    def _answer(self, together: tuple[Due, ...]) -> Iterator[Event]:
        """Questions of one moment, all of which stand, or none."""
        standing = [due for due in together if isinstance(due.asked, When)]
        for due in standing:
            yield from self.session.answer_standing(due, self._schedule)
        if not standing:
            yield from self.session.answer(*together)

    @property
    def _checkpoints(self) -> Checkpoints | None:
        """None where nothing can be gone on with: without a folder, and with a live source."""
        return None if self._folder is None else self._folder.checkpoints

    @property
    def _is_put_off(self) -> bool:
        """Whether it was asked to stop and can go on."""
        return self._checkpoints is not None and self._stop.is_set()

    @property
    def _is_checkpoint_due(self) -> bool:
        mapper = self.session.mapper
        expected_s = 0.0 if mapper is None else mapper.memory_bytes / _SAVED_BYTES_PER_S
        return self._checkpoint_rule.is_due(
            num_frames=self._num_taken - self._num_saved,
            seconds=time.monotonic() - self._saved_s,
            cost_s=max(expected_s, self._saving_s + self._writing_checkpoint_s),
        )

    def _save(self) -> Iterator[Reached]:
        """The session now, the rest when the results before it are written."""
        mapper, self._num_saved, started_s = self.session.mapper, self._num_taken, time.monotonic()
        if self._checkpoints is None or mapper is None or mapper.session is None:
            return
        path = self._checkpoints.session_path(self._num_taken)
        with writing(f"The checkpoint {path.parent}"):
            mapper.save(path)
        reached = Reached(num_frames=self._num_taken, taken=self.source.taken, session=path)
        self._saved_s = time.monotonic()
        self._saving_s = self._saved_s - started_s
        yield reached

    def _tell(self, stepped: Iterable[_Stepped]) -> Generator[_Told, None, None]:
        """Steps as results and events; a checkpoint with what the results before it have come to."""
        for item in stepped:
            if isinstance(item, Reached):
                assert self.session.mapper is not None
                results = self.session.mapper.results
                owed = item.num_frames if results.first_owed is None else results.first_owed
                yield replace(item, first_owed=owed, results=results.state())
            else:
                yield from self.session.tell(item)

    def _written(self, item: _Told) -> Iterator[Event]:
        """What the caller gets of an item, once it is handed to those who write."""
        if self._decoded is not None and self._decoded.num_dropped > self._num_told_dropped:
            before, self._num_told_dropped = self._num_told_dropped, self._decoded.num_dropped
            yield Dropped(num_frames=self._num_told_dropped - before)
        match item:
            case MappedFrame():
                self._write(item)
            case Reached():
                assert self._folder is not None
                self._folder.write_checkpoint(item, self.counts)
            case Frame() | Unreadable():
                yield from self._note_on(item)
                self._count(item)
                yield item
            case Noted():
                self._notes += (item.text,)
                yield item
            case Moved():
                if self._replacing is not None:
                    self._replacing.correct(item.correction)
                yield item
            case _:
                yield item
        yield from self._saved()

    def _saved(self) -> Iterator[Saved]:
        """Checkpoints that are complete by now; frames are mapped and written while they are on their way."""
        for reached, seconds in () if self._folder is None else self._folder.saved():
            self._writing_checkpoint_s = seconds
            yield Saved(path=reached.session.parent, num_frames=reached.num_frames)

    def _write(self, frame: MappedFrame) -> None:
        """A final result."""
        if self._keeping is not None:
            self._keeping.write(frame)
        self.counts[frame.status] += 1
        self.counts[KEPT] += frame.kind is not FrameKind.PASSING
        count_tracking(self.counts, frame.tracking)

    def _note_on(self, event: Frame | Unreadable) -> Iterator[Noted]:
        """With the first frame that has a picture, what is to be known of all; what a folder holds says so too."""
        if self._has_noted or isinstance(event, Unreadable):
            return
        self._has_noted = True
        for noted in notes_on(self.source, event, "" if self._folder is None else _ADVICE):
            self._notes += (noted.text,)
            yield noted

    def _count(self, event: Frame | Unreadable) -> None:
        """Count what is told now, and write its lines."""
        if self._num_told == 0 and not self.source.is_live:
            self._num_told_before = event.index
        self._num_told += 1
        if isinstance(event, Unreadable):
            self.counts[FrameStatus.UNREADABLE] += 1
            self._unreadable = event.problem
        elif self._replacing is not None and event.mapped is not None:
            self._replacing.write(event.mapped)
        if self._folder is None:
            return
        if isinstance(event, Unreadable):
            self._folder.write_unreadable(event)
        if self._num_told % PROGRESS_EVERY == 1:
            self._folder.write_progress(event.index, time.monotonic() - self._started_s, self.resident_bytes)

    @property
    def _num_counted(self) -> int:
        return sum(self.counts[status] for status in FrameStatus)

    @property
    def _num_mapped(self) -> int:
        return self._num_counted - self.counts[FrameStatus.UNREADABLE]

    def _ended(self) -> Ended:
        dialogue = self.session.dialogue
        return Ended(
            num_dropped=self.num_dropped,
            never_due=self._schedule.never_due,
            summary=self.summary,
            tracking=self._tracking if self.summary is None else self.summary.tracking,
            dialogue=None if dialogue is None else dialogue.info,
        )

    @property
    def _tracking(self) -> TrackingSummary | None:
        mapper = self.session.mapper
        progress = None if mapper is None else mapper.progress
        use = None if progress is None else progress.loops
        return None if use is None else tracking_summary(self.counts, num_sub_maps=use.num_sub_maps, apart=use.apart)

    @property
    def _corrections(self) -> Corrections | None:
        """What became of frames after they were written."""
        assert self.session.mapper is not None
        return self.session.mapper.results.corrections

    def _summarise(self, folder: RunFolder, seconds: float, frames_per_s: float) -> MapSummary:
        mapper = self.session.mapper
        assert mapper is not None
        loops = None if mapper.progress is None else mapper.progress.loops
        return MapSummary(
            source=self.source.name,
            model=self._model_name,
            notes=(*self._notes, *unreadable_note(self.counts[FrameStatus.UNREADABLE], self._unreadable)),
            execution=asdict(self._execution),
            is_complete=self._is_complete,
            num_frames=self._num_counted,
            statuses={status.value: self.counts[status] for status in FrameStatus if self.counts[status]},
            num_keyframes=self.counts[KEPT],
            num_dropped=self.num_dropped,
            num_windows=1 if mapper.progress is None else mapper.progress.num_windows,
            provisional=asdict(mapper.results.ages),
            unlikeness=mapper.results.unlikeness,
            seconds=seconds,
            frames_per_s=frames_per_s,
            settings=folder.settings,
            memory_bytes=mapper.memory_bytes,
            loops=self._loops.told | ({} if loops is None else asdict(loops)),
            tracking=self._tracking,
            peak_resident_bytes=self._peak_bytes,
        )


def _drained(items: deque[_Stepped]) -> Iterator[_Stepped]:
    while items:
        yield items.popleft()
