"""What loops cost a session: time of the processor beside one without them, and how long a step waits for the solver.

Values are pure, so that each piece of the solver's work is done once more beside the walk and timed there.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.loop_network import SIZE, loop_network
from benchmarks.many_worlds import Row, Task
from longtake.cli.tables import table
from longtake.places.looped_session import LoopedSession
from longtake.places.solver import Solving
from longtake.places.verification import Verifier
from longtake.places.walk import Walk
from longtake.world.families import Family
from longtake.world.seeds import Split, seeds
from longtake.world.tour import Tour


@dataclass(slots=True)
class SolverWaits:
    """Of each step in which there was work for the solver, milliseconds."""

    begun: list[float] = field(default_factory=list)
    """Sub-maps laid, before the first step of a solution."""
    stepped: list[float] = field(default_factory=list)
    adopted: list[float] = field(default_factory=list)

    def see(self, before: Walk, after: Walk) -> None:
        """A walk before and after one frame."""
        solving, graph = before.solving, before.graph
        if solving is not None and not solving.is_done:
            self.stepped.append(_milliseconds(solving.stepped))
        if after.solving is not None and solving is None:
            begun = after.solving.graph
            self.begun.append(_milliseconds(lambda: Solving.of(begun)))
        if solving is not None and after.solving is None and graph is not None:
            done = solving.solved()
            self.adopted.append(_milliseconds(lambda: done.adopted_by(graph)))

    @property
    def slowest_ms(self) -> dict[str, float]:
        parts = {"begun": self.begun, "stepped": self.stepped, "adopted": self.adopted}
        return {name: max(times, default=0.0) for name, times in parts.items()}


def cost_tasks(families: Sequence[Family], split: Split, worlds: int, frames: int, model: str) -> list[Task]:
    """One walk through each world."""
    return [
        {"family": family.value, "seed": seed, "frames": frames, "model": model}
        for family in families
        for seed in itertools.islice(seeds(split), worlds)
    ]


def cost_figures(task: Task) -> dict[str, Any]:
    """Two sessions that take each frame in turn, and what the solver did for one of them."""
    network = loop_network(task["model"])
    plain, looped = network.open(), LoopedSession(network.open(), Verifier(network.card))
    seconds, waits = {plain: list[float](), looped: list[float]()}, SolverWaits()
    tour = Tour(seed=task["seed"], width=SIZE[1], height=SIZE[0], family=Family(task["family"]))
    for view in itertools.islice(tour.views(), task["frames"]):
        image, before = (view.image * 255).round().byte(), looped.walk
        for one in (plain, looped) if view.index % 2 else (looped, plain):
            started_s = time.process_time()
            one.step(image, view.timestamp_s)
            seconds[one].append(time.process_time() - started_s)
        waits.see(before, looped.walk)
    without, known = (1000 * np.array(times) for times in seconds.values())
    graph = looped.walk.graph
    assert graph is not None
    return {
        "without_ms": float(without.mean()),
        "with_ms": float(known.mean()),
        "more": float(known.mean() / without.mean() - 1),
        "slowest_without_ms": float(without.max()),
        "slowest_with_ms": float(known.max()),
        "num_solver_steps": len(waits.stepped),
        "solver_ms": waits.slowest_ms,
        "num_nodes": len(graph),
        "num_loops": len(graph.loops),
        "num_bytes": looped.walk.num_bytes,
    }


def cost_table(rows: Sequence[Row]) -> Table:
    """A line a walk."""
    headings = [
        *("family", "seed", "frames", "ms without", "ms with", "more", "slowest without", "with", "loops, nodes"),
        *("solver: begin, ms", "step", "adopt", "steps"),
    ]
    return table(headings, map(_cells, rows))


def _cells(row: Row) -> list[str]:
    task, one = row.task, row.figures
    return [
        *(task["family"], str(task["seed"]), str(task["frames"]), f"{one['without_ms']:.1f}", f"{one['with_ms']:.1f}"),
        *(f"{one['more']:.1%}", f"{one['slowest_without_ms']:.0f}", f"{one['slowest_with_ms']:.0f}"),
        f"{one['num_loops']}, {one['num_nodes']}",
        *(f"{milliseconds:.1f}" for milliseconds in one["solver_ms"].values()),
        str(one["num_solver_steps"]),
    ]


def _milliseconds(work: Callable[[], object]) -> float:
    started_s = time.process_time()
    work()
    return 1000 * (time.process_time() - started_s)
