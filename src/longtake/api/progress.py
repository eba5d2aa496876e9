"""A bar on the terminal while a long call runs; nothing where there is no terminal."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeElapsedColumn
from rich.progress import ProgressColumn as Column
from rich.text import Text


class _OpenConsole(Console):
    """Says to whoever prints that nobody reads it, as `print` does; rich would end the program."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def plain_console(*, stderr: bool) -> Console:
    """A terminal on which texts stay as they are: brackets are no markup, and `:car:` is no picture."""
    return _OpenConsole(stderr=stderr, markup=False, highlight=False, emoji=False)


class TimeLeft(Column):
    """How long it will be, where the number of steps is known."""

    def render(self, task: Task) -> Text:
        return Text(time_left(task), style="progress.remaining")


def time_left(task: Task) -> str:
    """Such as `0:04:10 left`; empty where nobody knows, and at the end."""
    if task.total is None or task.finished or task.time_remaining is None:
        return ""
    return left_in_words(float(task.time_remaining))


def left_in_words(left_s: float) -> str:
    """Such as `0:04:10 left`."""
    minutes, seconds = divmod(int(left_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d} left"


def bar_columns(*more: Column, tells_left: bool = True) -> tuple[Column, ...]:
    """What a bar shows: the task, how far it is, what else there is to say, and times."""
    name = TextColumn("{task.description}", markup=False)
    left = (TimeLeft(),) if tells_left else ()
    return (name, BarColumn(), MofNCompleteColumn(), *more, TimeElapsedColumn(), *left)


@contextmanager
def progress_bar(task: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A function to be told how many of `total` steps are done; None where their number is not known."""
    console = plain_console(stderr=True)
    with Progress(*bar_columns(), console=console, transient=True, disable=not console.is_terminal) as bar:
        shown = bar.add_task(task, total=total)
        yield lambda done: bar.update(shown, completed=done)
