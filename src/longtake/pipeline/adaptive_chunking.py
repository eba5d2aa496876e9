"""How many frames are looked at together: so many, or as few as keep up with those that come.

Frames that are looked at together cost less each, and each waits for the last of them; `python -m benchmarks chunks`
measures both. Sizes are whole temporal grids: an odd frame would wait for its partner in the next chunk.
"""

import statistics
from collections import deque
from collections.abc import Mapping, Sequence

from longtake.errors import SettingError

SIZES = (2, 4, 8)
_TIMED_LOOKS = 3


def load(times_s: Sequence[float], seeing_s: float) -> float:
    """The time that frames take to be seen over the time they take to come, two at least.

    They come at the pace within the chunk: frames that were dropped before it must not make the source look slow.
    """
    assert len(times_s) > 1
    interval_s = (times_s[-1] - times_s[0]) / (len(times_s) - 1)
    return seeing_s / (len(times_s) * interval_s)


def keeping_up(loads: Mapping[int, float]) -> int:
    """The smallest size that is seen before its successor has come; the largest, which loses least, where none is.

    One whose load is unknown is tried.
    """
    return next((size for size in SIZES if loads.get(size, 0.0) <= 1), SIZES[-1])


class Chunks:
    """The size of the chunks of one video, which may grow while it runs."""

    def __init__(self, size: int, *, grows: bool = False) -> None:
        if size < 1:
            raise SettingError(f"Expected one frame at least in a chunk, but got {size}.")
        self._size, self._grows = size, grows
        self._loads: dict[int, deque[float]] = {each: deque(maxlen=_TIMED_LOOKS) for each in SIZES}

    @classmethod
    def auto(cls, *, is_live: bool, has_standing: bool) -> "Chunks":
        """The smallest that keeps up where someone waits for each look, else the quickest.

        Someone waits for a source that is live, and for a question that is asked after each look.
        """
        return cls(SIZES[0] if is_live or has_standing else SIZES[-1], grows=is_live)

    @property
    def size(self) -> int:
        return self._size

    @property
    def most(self) -> int:
        """The largest it may become."""
        return SIZES[-1] if self._grows else self._size

    def seen(self, times_s: Sequence[float], seeing_s: float) -> None:
        """Frames that came at these times were looked at; a chunk that a question cut short says nothing."""
        if not self._grows or len(times_s) != self._size:
            return
        self._loads[self._size].append(load(times_s, seeing_s))
        known = {size: loads for size, loads in self._loads.items() if len(loads) == _TIMED_LOOKS}
        self._size = keeping_up({size: statistics.median(loads) for size, loads in known.items()})
