"""A bar on the terminal while a long call runs; nothing where there is no terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def progress_bar(task: str, total: int | None) -> Iterator[Callable[[], None]]:
    """A function to be called after each of `total` steps; None where their number is not known."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        shown = bar.add_task(task, total=total)
        yield lambda: bar.advance(shown)
