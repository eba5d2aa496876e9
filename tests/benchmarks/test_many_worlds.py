"""Worlds are counted once each, by one process or two, and a file that was cut off is gone on with."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.many_worlds import Crew, Task, count_worlds, read_rows
from longtake.errors import InputError

PROGRAM = """
import sys
from pathlib import Path

import torch

from benchmarks.many_worlds import Crew, count_worlds
from longtake.errors import InputError

def squared(task):
    if task["seed"] == 28:
        raise InputError("There is no world 28.")
    return {"square": task["seed"] ** 2, "threads": torch.get_num_threads()}

if __name__ == "__main__":
    tasks = [{"seed": seed} for seed in (8, 18, 28, 38)]
    count_worlds(squared, tasks, Crew(processes=2, rows=Path(sys.argv[1])))
"""
BARE = """
import sys
from importlib.abc import MetaPathFinder

class Refusing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("av", "huggingface_hub", "matplotlib", "PIL", "psutil", "scipy", "typer"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refusing())
import benchmarks.loop_tables, benchmarks.loop_walks, benchmarks.second_walks, benchmarks.tracking
from benchmarks.loop_network import loop_network
loop_network("micro-map").open()
"""
ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
TASKS = [{"seed": seed, "has_loops": has_loops} for seed in (8, 18) for has_loops in (False, True)]


def squared(task: Task) -> dict[str, Any]:
    return {"square": task["seed"] ** 2, "pair": (1, 2)}


def failing_at_18(task: Task) -> dict[str, Any]:
    if task["seed"] == 18:
        raise InputError("There is no world 18.")
    return squared(task)


def test_each_world_gives_one_row_in_the_order_of_the_tasks() -> None:
    rows = count_worlds(squared, TASKS, Crew())
    assert [row.task for row in rows] == TASKS
    assert [row.figures for row in rows] == [{"square": task["seed"] ** 2, "pair": [1, 2]} for task in TASKS]


def test_a_run_that_was_cut_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    crew = Crew(rows=path)
    count_worlds(squared, TASKS[:2], crew)
    path.write_text(path.read_text() + '{"task": {"seed": 18, "has')
    assert len(read_rows(path)) == 2
    asked: list[Task] = []

    def noted(task: Task) -> dict[str, Any]:
        asked.append(task)
        return squared(task)

    rows = count_worlds(noted, TASKS, crew)
    assert asked == TASKS[2:]
    assert [row.task for row in rows] == TASKS
    assert [json.loads(line)["task"] for line in path.read_text().splitlines()] == TASKS
    assert [row.task for row in read_rows(path)] == TASKS


def test_two_processes_count_the_same(tmp_path: Path) -> None:
    script, path = tmp_path / "count.py", tmp_path / "rows.jsonl"
    script.write_text(PROGRAM)
    done = subprocess.run([sys.executable, script, path], capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 1
    assert "no world 28" in done.stderr
    rows = read_rows(path)
    assert sorted(row.task["seed"] for row in rows) == [8, 18, 38]
    assert all(row.figures == {"square": row.task["seed"] ** 2, "threads": 1} for row in rows)


def test_counting_needs_nothing_that_reads_videos_or_draws() -> None:
    done = subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr


def test_what_fails_leaves_the_rows_of_others(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with pytest.raises(InputError, match="no world 18"):
        count_worlds(failing_at_18, TASKS, Crew(rows=path))
    assert [row.task["seed"] for row in read_rows(path)] == [8, 8]


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("seed,metres\n")
    with pytest.raises(InputError, match=r"rows.jsonl line 1, but got 'seed,metres'"):
        read_rows(path)
