"""A map and a dialogue about one video, with either or both: frames go in one by one, questions between them.

                  ┌─ every frame ───▶ geometry session ─▶ Stepped ──┐
frame ─▶ prepare ─┤                                                 ├─▶ tell ─▶ events, and MappedFrame when it is final
                  └─ some a second ─▶ language model ───▶ Answered ─┘         an answer with the camera's pose
"""

import math
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from longtake.errors import MemoryFullError, SettingError
from longtake.exports.frame import MappedFrame, PosedFrame
from longtake.language.sampling import TextSampling
from longtake.pipeline.adaptive_chunking import Chunks
from longtake.pipeline.events import Answered, AnswerText, Asking, Event, Forgotten, Frame, Moved, Noted
from longtake.pipeline.map_results import Prepared, Stepped
from longtake.pipeline.mapper import Mapper
from longtake.pipeline.question_schedule import Due, QuestionSchedule, When, format_time
from longtake.runtime.answers import Answer, Choice, Evidence
from longtake.runtime.dialogue import DialogueSession
from longtake.video.frame import VideoFrame
from longtake.weights.familiarity import CLIP_GRIDS

# Containers round times to a millisecond, so that a frame may come that much before its tick.
_ROUNDING_S = 0.001
_ONE_TOKEN = TextSampling(max_new_tokens=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings:
    """How the language model looks and speaks."""

    ask_fps: float | None = 2.0
    """Frames a second that it sees at most, by their times; None for all. A map sees all."""
    speaking: TextSampling = field(default_factory=TextSampling)
    choices: tuple[str, ...] = ()
    """Answers to choose from; none for free speech."""
    when_full: str = "open the session with more memory, or show smaller pictures"
    """What to do where its memory has no room, said with the error."""

    unlike_note: str = ""
    """What to say of a video that is unlike what the language model knows; `{}` is how much."""

    def __post_init__(self) -> None:
        if self.ask_fps is not None and not 0 < self.ask_fps < math.inf:
            raise SettingError(f"Expected more than 0 frames a second for the dialogue, but got {self.ask_fps:g}.")


@dataclass(frozen=True, slots=True)
class Looked:
    """The language model has seen the video up to here; no later answer is about less."""

    until_s: float


@dataclass(frozen=True, slots=True)
class Waited:
    """A frame has no room before an answer under way has ended; it is tried again then."""


class LiveSession:
    """One video, watched by a geometry session, a language model, or both. Both stay the caller's, to be closed."""

    def __init__(
        self,
        mapper: Mapper | None = None,
        dialogue: DialogueSession | None = None,
        settings: LiveSettings | None = None,
        *,
        chunks: Chunks | None = None,
    ) -> None:
        """`chunks` says how many frames a language model without a map sees together; by default one by one."""
        assert mapper is None or chunks is None, "a map's frames come one by one"
        if mapper is None and dialogue is None:
            raise SettingError("Expected a map, a language model or both to watch with, but got neither.")
        self._mapper, self._dialogue = mapper, dialogue
        self._settings = settings or LiveSettings()
        self._chunks = chunks or Chunks(1)
        self._rate, self._trail = _Rate(self._settings.ask_fps), _Trail()
        self._num_forgotten = 0
        self._has_looked = self._has_judged = False
        self._num_answering = self._num_asking = 0

    @property
    def mapper(self) -> Mapper | None:
        return self._mapper

    @property
    def dialogue(self) -> DialogueSession | None:
        return self._dialogue

    @property
    def chunk_size(self) -> int:
        """Frames to be given to `step` together."""
        return self._chunks.size

    @property
    def most_together(self) -> int:
        """The most frames that may be seen together."""
        return self._chunks.most

    def prepare(self, frame: VideoFrame) -> Prepared:
        """A frame with a picture as `step` takes it; may be called from another thread."""
        return Prepared(frame, None) if self._mapper is None else self._mapper.prepare(frame)

    def step(self, *frames: Prepared) -> Iterator[Stepped | Looked | Waited | Event]:
        """Take the next frame, or several that are seen together; `tell` says what became known."""
        if self._mapper is not None:
            for prepared in frames:
                yield self._mapper.step(prepared)
        if self._dialogue is not None:
            yield from self._look(self._dialogue, frames)
        if self._mapper is None:
            for prepared in frames:
                yield Frame(index=prepared.frame.index, timestamp_s=prepared.timestamp_s, mapped=None)

    def finish(self) -> Iterator[Stepped | Noted]:
        """The results still owed when no more frames come; questions may follow."""
        stepped = None if self._mapper is None else self._mapper.finish()
        if stepped is not None:
            yield stepped
        if self._dialogue is not None:
            yield from self._judge(self._dialogue, has_ended=True)

    def tell(self, item: Stepped | Looked | Waited | Event) -> Iterator[MappedFrame | Event]:
        """What came of it: events, and before them results that are final now; may be called from another thread.

        An answer gets the pose of the last frame that it is about.
        """
        match item:
            case Stepped():
                assert self._mapper is not None
                for told in self._mapper.results.take(item):
                    if isinstance(told, MappedFrame | Moved | Frame):
                        self._trail.follow(told)
                    yield told
            case Looked():
                if not self._num_asking:  # an answer under way is about a moment that has passed
                    self._trail.up_to(item.until_s)
            case Waited():
                pass
            case Asking():
                self._num_asking += 1
                yield item
            case Answered():
                self._num_asking -= not isinstance(item.due.asked, When)  # those that stand are not told before
                until_s = item.seen_until_s
                yield item if until_s is None else replace(item, pose=self._trail.up_to(until_s))
            case _:
                yield item

    def answer(self, *together: Due) -> Iterator[Asking | AnswerText | Answered]:
        """The answers to questions that are due at one moment, one after another as they are made.

        Frames may be given to `step` in between, in the same thread.
        """
        self._num_answering += 1
        try:
            yield from self._answer_each(together)
        finally:
            self._num_answering -= 1

    def _answer_each(self, together: Sequence[Due]) -> Iterator[Asking | AnswerText | Answered]:
        if not self._settings.choices:
            yield from self._answer_freely(together)
            return
        for due in together:
            yield Asking(due=due, seen_until_s=self._seen_until_s)
            scored = self._choose(due.asked.text, self._settings.choices)
            yield self._answered(due, scored.best, choices=scored.choices, total_s=scored.seconds)

    def answer_standing(self, due: Due, schedule: QuestionSchedule) -> Iterator[Answered]:
        """The answer to a question that stands, where it was just looked at the video and the answer has turned."""
        assert isinstance(due.asked, When)
        if not self._has_looked:
            return
        scored = self._choose(due.asked.text, due.asked.choices)
        if schedule.became(due.asked, scored.best):
            # Choices are scored without a recorder; what an answer attends to is known from one word said freely.
            evidence = self._speaker.ask(due.asked.text, _ONE_TOKEN).evidence
            yield self._answered(due, scored.best, evidence=evidence, choices=scored.choices, total_s=scored.seconds)

    @property
    def _speaker(self) -> DialogueSession:
        if self._dialogue is None:
            raise SettingError("Expected a language model to ask, but this session has a map only; open it with both.")
        return self._dialogue

    @property
    def _seen_until_s(self) -> float | None:
        return self._speaker.info.seen_until_s

    def _judge(self, dialogue: DialogueSession, *, has_ended: bool) -> Iterator[Noted]:
        """Once, when enough was seen: that the video is unlike what the language model knows."""
        unlikeness = dialogue.unlikeness
        if self._has_judged or unlikeness is None or (dialogue.num_judged < CLIP_GRIDS and not has_ended):
            return
        self._has_judged = True
        if unlikeness > 1 and self._settings.unlike_note:
            yield Noted(self._settings.unlike_note.format(f"{unlikeness:.1f}"))

    def _look(
        self, dialogue: DialogueSession, frames: Sequence[Prepared]
    ) -> Iterator[Looked | Waited | Forgotten | Noted]:
        seen = [prepared.frame for prepared in frames if self._rate.takes(prepared.timestamp_s)]
        self._has_looked = bool(seen)
        if not seen:
            return
        pictures = np.stack([frame.image for frame in seen if frame.image is not None])
        times_s = [frame.timestamp_s for frame in seen]
        started = time.perf_counter()
        with self._room_for(f"the frames after {format_time(dialogue.info.seen_until_s or 0.0)}"):
            yield from self._see(dialogue, torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous(), times_s)
        self._chunks.seen(times_s, time.perf_counter() - started)
        yield Looked(times_s[-1])
        yield from self._judge(dialogue, has_ended=False)
        before, self._num_forgotten = self._num_forgotten, dialogue.info.num_forgotten
        if self._num_forgotten > before:
            yield Forgotten(count=self._num_forgotten - before)

    def _see(self, dialogue: DialogueSession, pictures: Tensor, times_s: Sequence[float]) -> Iterator[Waited]:
        """Where an answer under way still reads what should leave a full memory, its end is waited for."""
        while True:
            try:
                dialogue.see(pictures, times_s)
                return
            except MemoryFullError:
                if not self._num_answering:
                    raise
            while self._num_answering:
                yield Waited()

    def _answer_freely(self, together: Sequence[Due]) -> Iterator[Asking | AnswerText | Answered]:
        """Written side by side where that is faster; the text of one at a time is told."""
        questions = [due.asked.text for due in together]
        with closing(self._speaker.ask_together_stream(questions, self._settings.speaking)) as pieces:
            for due in together:
                yield Asking(due=due, seen_until_s=self._seen_until_s)
                answer = yield from self._told(pieces)
                seconds = answer.timing.total_s
                yield self._answered(due, answer.text, evidence=answer.evidence, total_s=seconds, answer=answer)

    def _told(self, pieces: Iterator[str | Answer]) -> Generator[AnswerText, None, Answer]:
        """The text of the next answer; returned is the whole of it."""
        with self._room_for("the question and its answer"):
            while isinstance(piece := next(pieces), str):
                yield AnswerText(piece)
        return piece

    def _choose(self, question: str, choices: Sequence[str]) -> "_Scored":
        started = time.perf_counter()
        with self._room_for("the question"):
            scored = self._speaker.ask_choice(question, choices)
        best = max(scored, key=lambda choice: choice.mean_log_likelihood)
        return _Scored(best.text, tuple(scored), time.perf_counter() - started)

    def _answered(
        self,
        due: Due,
        text: str,
        *,
        total_s: float,
        evidence: tuple[Evidence, ...] = (),
        choices: tuple[Choice, ...] = (),
        answer: Answer | None = None,
    ) -> Answered:
        return Answered(
            due=due,
            text=text,
            seen_until_s=self._seen_until_s if answer is None else answer.seen_until_s,
            evidence=evidence,
            choices=choices,
            answer=answer,
            total_s=total_s,
        )

    @contextmanager
    def _room_for(self, what: str) -> Iterator[None]:
        try:
            yield
        except MemoryFullError as error:
            raise MemoryFullError(f"The memory has no room for {what}; {self._settings.when_full}.") from error


@dataclass(frozen=True, slots=True)
class _Scored:
    """Choices with their likelihoods, and the likeliest."""

    best: str
    choices: tuple[Choice, ...]
    seconds: float


def interval_at(seconds: float, fps: float) -> int:
    """Which interval of 1/fps a frame so long after the first one belongs to."""
    return math.floor((seconds + min(_ROUNDING_S, 0.25 / fps)) * fps)


class _Rate:
    """Takes the first frame in each interval of 1/fps, counted from the first frame; all where there is no rate."""

    def __init__(self, fps: float | None) -> None:
        self._fps = fps
        self._first_s: float | None = None
        self._taken = -1

    def takes(self, time_s: float) -> bool:
        if self._fps is None:
            return True
        self._first_s = time_s if self._first_s is None else self._first_s
        interval = interval_at(time_s - self._first_s, self._fps)
        before, self._taken = self._taken, max(self._taken, interval)
        return interval > before


class _Trail:
    """Poses since the last moment that was asked for; moments never go back, so that older ones can leave."""

    def __init__(self) -> None:
        self._poses: deque[PosedFrame] = deque()

    def add(self, pose: PosedFrame) -> None:
        self._poses.append(pose)

    def follow(self, told: MappedFrame | Moved | Frame) -> None:
        """Take the pose of a new frame, or what earlier ones became."""
        match told:
            case Frame(mapped=MappedFrame() as mapped):
                self.add(PosedFrame.of(mapped))
            case Moved():
                now = {frame.index: PosedFrame.of(frame) for frame in told.correction.frames}
                spans = told.correction.spans
                self._poses = deque(now.get(pose.index) or pose.moved_along(spans) for pose in self._poses)

    def up_to(self, time_s: float) -> PosedFrame | None:
        """The last one that is not after this moment."""
        while len(self._poses) > 1 and self._poses[1].timestamp_s <= time_s:
            self._poses.popleft()
        return self._poses[0] if self._poses and self._poses[0].timestamp_s <= time_s else None
