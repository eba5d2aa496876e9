"""Seeds of worlds, kept apart: every seed belongs to training, validation or test, and to one of them only.

seed      0  1  2  3  4  5  6  7  8            9      10 ...
split     training ───────────▶  validation   test   training ...
"""

from collections.abc import Iterator
from enum import StrEnum
from itertools import count

from longtake.errors import SettingError


class Split(StrEnum):
    """What the houses of some seeds are for."""

    TRAINING = "training"
    VALIDATION = "validation"
    TEST = "test"


_BY_LAST_DIGIT = (*(Split.TRAINING,) * 8, Split.VALIDATION, Split.TEST)


def split_of(seed: int) -> Split:
    """The one split that a seed belongs to."""
    if seed < 0:
        raise SettingError(f"Expected a seed of 0 or more, but got {seed}; choose another.")
    return _BY_LAST_DIGIT[seed % len(_BY_LAST_DIGIT)]


def seeds(split: Split, start: int = 0) -> Iterator[int]:
    """All seeds of a split in order, without end, from `start` on."""
    split_of(start)
    return (seed for seed in count(start) if split_of(seed) is split)
