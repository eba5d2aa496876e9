"""How far a command is: a bar on a terminal, and elsewhere a line now and then."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rich.console import Console, RenderableType
from rich.progress import Progress, Task, TaskID, TextColumn
from rich.text import Text

from longtake.api.progress import bar_columns, plain_console, time_left

LINE_EVERY_S = 10.0
"""Seconds between two lines where there is no terminal."""

_Item = TypeVar("_Item")


class TaskProgress(Progress):
    """A bar that leaves nothing behind; where the console is no terminal, a line every ten seconds."""

    def __init__(self, console: Console, *, tells_left: bool = True, state_below: bool = False) -> None:
        """`tells_left`: how long it will be, by the steps of the last half minute; states may know better.

        A state that is long goes below the bar, where a narrow terminal has room for all of it.
        """
        beside = () if state_below else (TextColumn("{task.fields[state]}", markup=False),)
        columns, self._state_below = bar_columns(*beside, tells_left=tells_left), state_below
        super().__init__(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._told_s, self._tells_left = time.monotonic(), tells_left

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self._state_below:
            yield from (Text(task.fields["state"]) for task in self.tasks)

    def begin(self, what: str, total: int | None) -> TaskID:
        return self.add_task(what, total=total, state="")

    def advance(self, task_id: TaskID, advance: float = 1.0) -> None:
        super().advance(task_id, advance)
        self._tell(task_id)

    def update(self, task_id: TaskID, **changes: Any) -> None:
        super().update(task_id, **changes)
        self._tell(task_id)

    def _tell(self, task_id: TaskID) -> None:
        if self.disable and time.monotonic() - self._told_s >= LINE_EVERY_S:
            self._told_s = time.monotonic()
            task = next(task for task in self.tasks if task.id == task_id)
            left = time_left(task) if self._tells_left else ""
            self.console.print(_line(task, left), style="dim", soft_wrap=True)


def _line(task: Task, left: str) -> str:
    total = "" if task.total is None else f" of {task.total:.0f}"
    parts = (f"{task.description}: {int(task.completed)}{total}", task.fields["state"], left)
    return ", ".join(filter(None, parts))


@contextmanager
def counting(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """How far something is, on stderr, and how to advance it."""
    with TaskProgress(plain_console(stderr=True)) as progress:
        task = progress.begin(what, total)
        yield lambda count: progress.advance(task, float(count))


def counted_steps(items: Iterable[_Item], what: str, total: int, console: Console) -> Iterator[_Item]:
    """The items, while it is told how many there were."""
    with TaskProgress(console) as progress:
        task = progress.begin(what, total)
        for item in items:
            yield item
            progress.advance(task)
