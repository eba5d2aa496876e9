"""Values that change together: each is laid ready, and then one assignment changes all of them.

An interrupt, which Python may let in after any call, finds every value as it was or every value changed:

    change_together(partial(clock.become_with, later), transaction.commit_with)

    clock    before  ready  .....  | after
    memory   before  .....  ready  | after
                                   made
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


class Change:
    """One change of several values. What was laid ready for a change that is never made stays as it was, for ever."""

    __slots__ = ("_parts", "is_made")

    def __init__(self, parts: "Iterator[Part]") -> None:
        self._parts = parts
        self.is_made = False

    def go_on(self) -> object:
        """Let the next part get ready, or make the change if all are; called last by every part.

        So parts lie one inside another, and the locks that they hold are held until the change is made.
        """
        return next(self._parts, Change._make)(self)

    def _make(self) -> None:
        self.is_made = True


Part = Callable[[Change], object]
"""Lays what it changes ready for a change, and lets that go on. May fail: then nothing has changed, in any part."""


def change_together(*parts: Part) -> None:
    """Change all of these, or on an error none."""
    Change(iter(parts)).go_on()


@dataclass(frozen=True, slots=True)
class _Ready(Generic[T]):
    """A value, and what it becomes with a change; without one it is `after` already."""

    before: T
    after: T
    change: Change | None = None


class Changing(Generic[T]):
    """A value that can change together with others; from one thread at a time. Any thread may read it."""

    __slots__ = ("_ready",)

    def __init__(self, value: T) -> None:
        self._ready = _Ready(value, value)

    @property
    def value(self) -> T:
        """What it is now; asking changes nothing."""
        ready = self._ready
        return ready.after if ready.change is None or ready.change.is_made else ready.before

    def become(self, after: T) -> None:
        """Change it alone, by one assignment."""
        self._ready = _Ready(after, after)

    def become_with(self, after: T, change: Change) -> None:
        """Change it as a part of a change."""
        changed = _Ready(after, after)
        self._ready = _Ready(self.value, after, change)
        _, self._ready = change.go_on(), changed  # what it was need not be kept; an interrupt before that does no harm
