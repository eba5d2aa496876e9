"""One reader, two sessions: a video's geometry and its dialogue side by side, so that an answer knows where it was.

source ─▶ decode ─▶ every frame ─▶ geometry session ─▶ FrameKnown
                        └─ some a second ─▶ dialogue ─▶ Answered, with the camera's pose then
"""

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from longtake.errors import SettingError
from longtake.export.frame import FrameStatus, MappedFrame
from longtake.language.evidence import Evidence
from longtake.language.sampling import TextSampling
from longtake.pipeline.mapper import Mapper, Prepared
from longtake.pipeline.prefetch import Prefetcher, WhenFull
from longtake.pipeline.question_schedule import Asked, Due, Every, QuestionSchedule, When
from longtake.pipeline.run import QUEUED, Unreadable
from longtake.runtime.dialogue import DialogueSession
from longtake.video.frame import VideoFrame
from longtake.video.reading import Source
from longtake.video.resize import Preprocessor

# Containers round times to a millisecond, so that a frame may come that much before its tick.
_ROUNDING_S = 0.001
_ONE_TOKEN = TextSampling(max_new_tokens=1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrameKnown:
    """A frame has a pose."""

    index: int
    """Its place among the frames that were asked for, from 0."""
    time_s: float
    status: FrameStatus
    world_from_camera: Float[Tensor, "4 4"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answered:
    """An answer, what it is about, and where the camera was."""

    due: Due
    text: str
    seen_until_s: float | None
    """The time of the last frame that the dialogue had seen; None where there was none."""
    evidence: tuple[Evidence, ...]
    """The spans that were attended to most, strongest first; for a standing question those of one word said to it."""
    pose: FrameKnown | None
    """The last frame up to `seen_until_s` that had a pose by then; None where a first block was still to come."""


Event = FrameKnown | Unreadable | Answered


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings:
    """How the dialogue looks and speaks."""

    ask_fps: float = 2.0
    """Frames a second that the dialogue sees at most, by their times; the geometry session sees all."""
    speaking: TextSampling = field(default_factory=TextSampling)

    def __post_init__(self) -> None:
        if not 0 < self.ask_fps < math.inf:
            raise SettingError(f"Expected more than 0 frames a second for the dialogue, but got {self.ask_fps:g}.")


class LiveSession:
    """Iterate to watch: poses and answers come as they become known, in the order of time."""

    def __init__(
        self,
        source: Source,
        dialogue: DialogueSession,
        asked: Sequence[Asked],
        settings: LiveSettings,
        *,
        prepare: Preprocessor,
        open_mapper: Callable[[tuple[int, int]], Mapper],
    ) -> None:
        """The geometry session is opened with the first frame, for images of its height and width.

        The dialogue stays the caller's, to be asked more when the video has ended, and to be closed.
        """
        self._source, self._dialogue, self._speaking = source, dialogue, settings.speaking
        self._schedule = QuestionSchedule(asked)
        self._prepare, self._open_mapper = prepare, open_mapper
        self._mapper: Mapper | None = None
        self._rate, self._trail = _Rate(settings.ask_fps), _Trail()
        self._decoded: Prefetcher[VideoFrame] | None = None
        self._has_looked = False

    @property
    def num_dropped(self) -> int:
        """Frames of a live source that came while both sessions were busy."""
        return 0 if self._decoded is None else self._decoded.num_dropped

    @property
    def never_due(self) -> tuple[Every, ...]:
        """Questions asked every so often whose first moment has not come."""
        return self._schedule.never_due

    def stop(self) -> None:
        """Take no more frames; what is to be asked at the end is asked."""
        self._source.stop()

    def __iter__(self) -> Generator[Event, None, None]:
        when_full = WhenFull.NEWEST_WINS if self._source.is_live else WhenFull.BLOCK
        beside: deque[Event] = deque()
        with Prefetcher(self._source.frames(), QUEUED, when_full) as self._decoded:
            try:
                # One by one, so that a question comes between just the frames that it lies between.
                for item in self._schedule.through(self._readable(self._decoded, beside), lambda: 1):
                    yield from _drained(beside)
                    yield from self._answer(item) if isinstance(item, Due) else self._watch(item[0])
                yield from _drained(beside)
            finally:
                self._source.stop()  # so that nobody waits for frames that are not wanted any more

    def _readable(self, frames: Iterable[VideoFrame], beside: deque[Event]) -> Iterator[VideoFrame]:
        """Frames with pictures; the others, and the poses that come last, go beside them."""
        for frame in frames:
            if frame.problem is None:
                yield frame
            else:
                beside.append(Unreadable(frame.index, frame.timestamp_s, frame.problem))
        if self._mapper is not None:
            beside.extend(self._known(self._mapper.finish()))

    def _watch(self, frame: VideoFrame) -> Iterator[FrameKnown]:
        assert frame.image is not None
        resized = self._prepare(frame.image)
        if self._mapper is None:
            height, width = resized.pixels.shape[-2:]
            self._mapper = self._open_mapper((height, width))
        yield from self._known(self._mapper.step(Prepared(frame, resized)))
        self._has_looked = self._rate.takes(frame.timestamp_s)
        if self._has_looked:
            picture = torch.from_numpy(np.ascontiguousarray(frame.image.transpose(2, 0, 1)))
            self._dialogue.see(picture[None], [frame.timestamp_s])
            self._trail.up_to(frame.timestamp_s)

    def _known(self, mapped: Iterable[MappedFrame]) -> Iterator[FrameKnown]:
        for frame in mapped:
            known = FrameKnown(
                index=frame.index,
                time_s=frame.timestamp_s,
                status=frame.status,
                world_from_camera=frame.world_from_camera,
            )
            self._trail.add(known)
            yield known

    def _answer(self, due: Due) -> Iterator[Answered]:
        if not isinstance(due.asked, When):
            answer = self._dialogue.ask(due.asked.text, self._speaking)
            yield self._answered(due, answer.text, answer.evidence)
        elif self._has_looked and self._has_turned(due.asked):
            # Choices are scored without a witness; what an answer attends to is known from one word said freely.
            looked_at = self._dialogue.ask(due.asked.text, _ONE_TOKEN).evidence
            yield self._answered(due, due.asked.becomes, looked_at)

    def _has_turned(self, asked: When) -> bool:
        scored = self._dialogue.ask_choice(asked.text, asked.choices)
        best = max(scored, key=lambda choice: choice.mean_log_likelihood)
        return self._schedule.became(asked, best.text)

    def _answered(self, due: Due, text: str, evidence: tuple[Evidence, ...]) -> Answered:
        seen_until_s = self._dialogue.info.seen_until_s
        pose = None if seen_until_s is None else self._trail.up_to(seen_until_s)
        return Answered(due=due, text=text, seen_until_s=seen_until_s, evidence=evidence, pose=pose)


class _Rate:
    """Takes the first frame in each interval of 1/fps, counted from the first frame."""

    def __init__(self, fps: float) -> None:
        self._fps = fps
        self._first_s: float | None = None
        self._taken = -1

    def takes(self, time_s: float) -> bool:
        self._first_s = time_s if self._first_s is None else self._first_s
        rounding_s = min(_ROUNDING_S, 0.25 / self._fps)
        interval = math.floor((time_s - self._first_s + rounding_s) * self._fps)
        before, self._taken = self._taken, max(self._taken, interval)
        return interval > before


class _Trail:
    """Poses since the last moment that was asked for; moments never go back, so that older ones can leave."""

    def __init__(self) -> None:
        self._frames: deque[FrameKnown] = deque()

    def add(self, frame: FrameKnown) -> None:
        self._frames.append(frame)

    def up_to(self, time_s: float) -> FrameKnown | None:
        """The last frame that is not after this moment."""
        while len(self._frames) > 1 and self._frames[1].time_s <= time_s:
            self._frames.popleft()
        return self._frames[0] if self._frames and self._frames[0].time_s <= time_s else None


def _drained(events: deque[Event]) -> Iterator[Event]:
    while events:
        yield events.popleft()
