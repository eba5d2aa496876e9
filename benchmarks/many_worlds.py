"""Worlds counted one by one, by one process or many; each row is written as soon as its world is done.

So a run that was cut goes on where it was.

rows.jsonl    {"task": {"family": "house", "seed": 9, ...}, "figures": {...}, "seconds": 12.3}
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from longtake.bench.workers import open_workers
from longtake.cli.progress import counting
from longtake.errors import InputError

Task = Mapping[str, Any]
"""Which world, and what is done in it: as JSON has it, told apart by its values."""
Work = Callable[[Task], dict[str, Any]]
"""A function of a module, so that other processes find it; its figures are as JSON has them."""


@dataclass(frozen=True, slots=True)
class Row:
    """What was found in one world."""

    task: dict[str, Any]
    figures: dict[str, Any]
    seconds: float

    def to_line(self) -> str:
        record = {"task": self.task, "figures": self.figures, "seconds": round(self.seconds, 2)}
        return json.dumps(record, allow_nan=False) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """Who counts, and where rows are kept."""

    processes: int = 1
    """Each with one thread."""
    rows: Path | None = None
    """What it has already is not counted again."""


def count_worlds(work: Work, tasks: Sequence[Task], crew: Crew) -> list[Row]:
    """All rows of the file, or without one those of the tasks, in the order of the tasks; others come first.

    A world that fails leaves the others alone: its error is raised when they are done.
    """
    rows = read_rows(crew.rows)
    wanted = [task for task in map(_plain, tasks) if task not in [row.task for row in rows]]
    with counting("walking", len(wanted)) as advance:
        for row in _worked(work, wanted, crew):
            _append(crew.rows, row)
            rows.append(row)
            advance(1)
    places = {json.dumps(_plain(task)): place for place, task in enumerate(tasks)}
    return sorted(rows, key=lambda row: places.get(json.dumps(row.task), -1))


def read_rows(path: Path | None) -> list[Row]:
    """Of a file that may not be there yet; a last line without an end was cut off and does not count."""
    if path is None or not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]
    return [_row(line, f"{path} line {number}") for number, line in enumerate(lines, start=1)]


def _row(line: str, where: str) -> Row:
    try:
        record = json.loads(line)
        return Row(dict(record["task"]), dict(record["figures"]), float(record["seconds"]))
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"Expected a row with task, figures and seconds in {where}, but got {line[:80]!r}.") from error


def _append(path: Path | None, row: Row) -> None:
    """Behind the last whole line."""
    if path is None:
        return
    with path.open("ab+") as file:
        file.seek(0)
        whole = file.read().rfind(b"\n") + 1
        file.truncate(whole)
        file.write(row.to_line().encode())


def _worked(work: Work, tasks: Sequence[dict[str, Any]], crew: Crew) -> Iterator[Row]:
    """As they are done."""
    torch.set_num_threads(1)
    with open_workers(max(1, min(crew.processes, len(tasks)))) as workers:
        for _, row in workers.as_done(partial(_timed, work), tasks):
            yield row


def _timed(work: Work, task: dict[str, Any]) -> Row:
    started_s = time.perf_counter()
    figures = work(task)
    return Row(task, _plain(figures), time.perf_counter() - started_s)


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    """As it is read back."""
    return dict(json.loads(json.dumps(record)))
