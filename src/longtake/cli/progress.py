"""How far a command is: a bar on a terminal, and elsewhere a line now and then."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import Progress, Task, TaskID, TextColumn

from longtake.api.progress import bar_columns, plain_console, time_left

LINE_EVERY_S = 10.0
"""Seconds between two lines where there is no terminal."""

_Item = TypeVar("_Item")


class TaskProgress(Progress):
    """A bar that leaves nothing behind; where the console is no terminal, a line every ten seconds."""

    def __init__(self, console: Console) -> None:
        state = TextColumn("{task.fields[state]}", markup=False)
        super().__init__(*bar_columns(state), console=console, transient=True, disable=not console.is_terminal)
        self._told_s = time.monotonic()

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
            self.console.print(_line(task), style="dim", soft_wrap=True)


def _line(task: Task) -> str:
    total = "" if task.total is None else f" of {task.total:.0f}"
    parts = (f"{task.description}: {task.completed:.0f}{total}", task.fields["state"], time_left(task))
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
