"""What failed, until it is tried again: what is in its way, such as a lock of a dead machine, takes time to pass."""

import time
from bisect import insort
from dataclasses import dataclass, field
from typing import Generic, TypeVar

_FIRST_S = 2.0
_GROWTH = 4.0
"""Of a pause, by the one before."""
_LONGEST_S = 60.0

_Video = TypeVar("_Video")


@dataclass(frozen=True, slots=True, order=True)
class _Pause(Generic[_Video]):
    due_s: float
    video: _Video = field(compare=False)
    name: str = field(compare=False)


class Pauses(Generic[_Video]):
    """Jobs of videos, by their names."""

    def __init__(self) -> None:
        self._pauses: list[_Pause[_Video]] = []
        """In the order in which they end."""

    def __len__(self) -> int:
        return len(self._pauses)

    def videos(self) -> list[_Video]:
        return [pause.video for pause in self._pauses]

    def begin(self, video: _Video, name: str, num_failures: int) -> None:
        """Of a job that has failed so often."""
        seconds = min(_FIRST_S * _GROWTH ** (num_failures - 1), _LONGEST_S)
        insort(self._pauses, _Pause(time.monotonic() + seconds, video, name))

    def ended(self) -> list[tuple[_Video, str]]:
        """Those that are over by now, which are none any more."""
        now_s = time.monotonic()
        over = [pause for pause in self._pauses if pause.due_s <= now_s]
        del self._pauses[: len(over)]
        return [(pause.video, pause.name) for pause in over]

    def left_s(self) -> float:
        """Until the next one ends."""
        return max(0.0, self._pauses[0].due_s - time.monotonic())

    def drop(self, video: _Video) -> None:
        """It is not tried again."""
        self._pauses = [pause for pause in self._pauses if pause.video is not video]

    def clear(self) -> None:
        self._pauses.clear()
