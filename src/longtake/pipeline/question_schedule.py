"""Which questions about a video are due as its time goes on: at a moment, every so often, or until an answer turns."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from longtake.errors import SettingError
from longtake.video.sampling import parse_time


@runtime_checkable
class Timed(Protocol):
    """What a schedule has to know of a frame."""

    @property
    def timestamp_s(self) -> float: ...


_Frame = TypeVar("_Frame", bound=Timed)
_YES_NO = ("yes", "no")


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """Asked at a moment of the video, or at its end."""

    text: str
    at_s: float | None = None

    def __post_init__(self) -> None:
        _require_words(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """Asked again and again, the first time so many seconds after the first frame."""

    text: str
    every_s: float

    def __post_init__(self) -> None:
        _require_words(self.text)
        if not 0 < self.every_s < math.inf:
            raise SettingError(f"Expected more than 0 seconds between two questions, but got {self.every_s:g}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """Asked after each look at the video; it matters when the answer becomes the one that is waited for."""

    text: str
    becomes: str = _YES_NO[0]
    choices: tuple[str, ...] = _YES_NO

    def __post_init__(self) -> None:
        _require_words(self.text)
        if self.becomes not in self.choices or len(set(self.choices)) < max(2, len(self.choices)):
            raise SettingError(
                f"Expected '{self.becomes}' and other answers to wait for, all different, but got "
                f"'{','.join(self.choices)}'; give them as in 'is it dark?=yes' or 'which colour?=red,green,blue'."
            )


Asked = Once | Every | When


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A question whose moment has come."""

    asked: Asked
    time_s: float | None
    """The moment it is about; None where no frame has come."""
    is_late: bool = False
    """Whether the video ended before the moment that was asked for."""


def parse_every(text: str) -> Every:
    """A span and a question, as in `10s how many people are there?`."""
    span, _, question = text.strip().partition(" ")
    return Every(text=question.strip(), every_s=parse_time(span))


def parse_when(text: str) -> When:
    """A question and the answer to wait for: yes where none is named; one of several is named first."""
    question, equals, answers = text.rpartition("=")
    if not equals:
        return When(text=text.strip())
    choices = parse_choices(answers)
    if len(choices) == 1 and choices[0] in _YES_NO:
        return When(text=question.strip(), becomes=choices[0])
    return When(text=question.strip(), becomes=choices[0], choices=choices)


def format_time(time_s: float) -> str:
    """As people write it: `00:42.5`, `1:02:03`."""
    tenths = round(time_s * 10)
    minutes, rest = divmod(tenths, 600)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{rest // 10:02d}" + (f".{rest % 10}" if rest % 10 else "")
    return f"{hours}:{minutes:02d}:{seconds}" if hours else f"{minutes:02d}:{seconds}"


def parse_choices(text: str) -> tuple[str, ...]:
    """Answers between commas."""
    return tuple(choice.strip() for choice in text.split(","))


class QuestionSchedule:
    """Questions about one video, which it hands out between the frames."""

    def __init__(self, asked: Sequence[Asked]) -> None:
        self._asked = tuple(asked)
        self._num_asked = [0] * len(self._asked)
        self._last: dict[When, str] = {}

    def through(self, frames: Iterable[_Frame], chunk: Callable[[], int]) -> Iterator[list[_Frame] | tuple[Due, ...]]:
        """Frames to look at, as many together as `chunk` says by then, and questions, in the order of time.

            frames      0.0   0.5   1.0   1.5   2.0
            question at          0.7
            handed out  [0.0   0.5] (?) [1.0   1.5] [2.0]

        A question comes after every frame up to its moment and before any later one, so that its answer does not depend
        on the chunks; one from before the first frame comes after that frame. Those between the same two frames come
        together, the ones that stand apart from others.
        """
        waiting: list[_Frame] = []
        first_s = last_s = None
        for frame in frames:
            due: list[Due] = [] if first_s is None else self._due(first_s, frame.timestamp_s)
            if due and waiting:
                yield from self._look(waiting)
                waiting = []
            if due:
                yield tuple(due)
            first_s, last_s = frame.timestamp_s if first_s is None else first_s, frame.timestamp_s
            waiting.append(frame)
            if len(waiting) >= chunk():
                yield from self._look(waiting)
                waiting = []
        if waiting:
            yield from self._look(waiting)
        due = [] if first_s is None or last_s is None else self._due(first_s, math.nextafter(last_s, math.inf))
        if left := (*due, *self._left(last_s)):
            yield left

    @property
    def never_due(self) -> tuple[Every, ...]:
        """Questions asked every so often whose first moment has not come."""
        counted = zip(self._asked, self._num_asked, strict=True)
        return tuple(asked for asked, number in counted if isinstance(asked, Every) and not number)

    def became(self, when: When, answer: str) -> bool:
        """Whether this answer is the one that is waited for, and the one before was not."""
        before, self._last[when] = self._last.get(when), answer
        return answer == when.becomes != before

    def _look(self, frames: list[_Frame]) -> Iterator[list[_Frame] | tuple[Due, ...]]:
        yield frames
        standing = [asked for asked in self._asked if isinstance(asked, When)]
        if standing:
            yield tuple(Due(asked=asked, time_s=frames[-1].timestamp_s) for asked in standing)

    def _due(self, first_s: float, until_s: float) -> list[Due]:
        """Questions from before a moment that were not asked yet; of one asked every so often only the latest."""
        due: list[tuple[float, Due]] = []
        for place, asked in enumerate(self._asked):
            number = _num_moments(asked, first_s, until_s)
            if number > self._num_asked[place]:
                self._num_asked[place] = number
                moment_s = _moment(asked, first_s, number)
                due.append((moment_s, Due(asked=asked, time_s=moment_s)))
        return [found for _, found in sorted(due, key=lambda timed: timed[0])]

    def _left(self, last_s: float | None) -> Iterator[Due]:
        for place, asked in enumerate(self._asked):
            if isinstance(asked, Once) and not self._num_asked[place]:
                self._num_asked[place] = 1
                yield Due(asked=asked, time_s=last_s, is_late=asked.at_s is not None)


def _num_moments(asked: Asked, first_s: float, until_s: float) -> int:
    """How many of a question's moments lie before one."""
    match asked:
        case Once(at_s=at_s):
            return int(at_s is not None and at_s < until_s)
        case Every(every_s=every_s):
            number = math.floor((until_s - first_s) / every_s)
            return number - (number > 0 and _moment(asked, first_s, number) >= until_s)
        case When():
            return 0


def _moment(asked: Asked, first_s: float, number: int) -> float:
    match asked:
        case Once(at_s=at_s):
            assert at_s is not None
            return max(at_s, first_s)
        case Every(every_s=every_s):
            return first_s + number * every_s
        case When():
            raise AssertionError("asked after each look, not at moments")


def _require_words(text: str) -> None:
    if not text.strip():
        raise SettingError("Expected a question with words in it, but got an empty one; write what to ask.")
