"""One memory that a map and a dialogue have parts of; where a part is too small, the whole that would do is named."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from longtake.errors import BudgetError, SettingError
from longtake.memory.budget import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedMemory:
    """Bytes of keys and values of both."""

    num_bytes: int
    share: float
    """The map's part."""

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise SettingError(f"Expected share between 0 and 1, the map's part of the memory, but got {self.share:g}.")

    @property
    def map_bytes(self) -> int:
        return int(self.num_bytes * self.share)

    @property
    def dialogue_bytes(self) -> int:
        return self.num_bytes - self.map_bytes

    @contextmanager
    def naming_whole_for_map(self) -> Iterator[None]:
        """While the map's part is planned."""
        with self._naming_whole("the map's", self.share, lambda memory: memory.map_bytes):
            yield

    @contextmanager
    def naming_whole_for_dialogue(self) -> Iterator[None]:
        """While the dialogue's part is planned."""
        with self._naming_whole("the dialogue's", 1 - self.share, lambda memory: memory.dialogue_bytes):
            yield

    @contextmanager
    def _naming_whole(self, whose: str, part: float, bytes_of: "Callable[[SharedMemory], int]") -> Iterator[None]:
        try:
            yield
        except BudgetError as error:
            if error.least_bytes is None:
                raise
            whole = math.ceil(error.least_bytes / part)
            while bytes_of(replace(self, num_bytes=whole)) < error.least_bytes:  # what rounding took
                whole += 1
            raise BudgetError(
                f"Expected a memory of at least {format_bytes(whole)}, of which {part:.0%} are {whose}, but got "
                f"{format_bytes(self.num_bytes)}.",
                least_bytes=whole,
            ) from error
