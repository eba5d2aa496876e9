"""A batch that loses workers and machines on its way: whether all is done, to the same bytes, and what that took."""

import csv
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

import longtake
from benchmarks.batching import files_but_times, short_worlds
from longtake.batch.driver import Batch
from longtake.batch.events import Ended, Progress, Retried
from longtake.batch.local_pool import LocalPool
from longtake.batch.manifest import open_manifest
from longtake.batch.open_storage import open_storage
from longtake.batch.pool import Pool
from longtake.batch.ray_pool import RayPool
from longtake.cli.options import AsJson
from longtake.cli.tables import show, table
from longtake.extras import import_from_extra

_CHECKPOINT_EVERY = 10
_Lossy = tuple[Pool, Callable[[], None]]
"""Workers, and what takes some of them away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossFigures:
    """One way to lose some of the workers when half of the videos are done."""

    pool: str
    seconds: float
    retried: int
    """Videos that somebody else went on with."""
    listed_done: int
    """In the table."""
    is_same: bool
    """Whether all files are those of one worker that nothing happened to, but for times."""
    frames_again: int
    """That a second batch looked at."""


def batch_losses(
    *,
    worlds: Annotated[int, typer.Option(min=2, help="That are mapped each time.")] = 40,
    frames: Annotated[int, typer.Option(min=2, help="Of each.")] = 40,
    model: Annotated[str, typer.Option(help="A geometry model.")] = "micro-map",
    with_ray: Annotated[bool, typer.Option("--ray/--no-ray", help="Whether Ray loses workers too.")] = True,
    as_json: AsJson = False,
) -> None:
    """Kill a worker, here and on Ray, and take a machine from a cluster, all in the middle of a batch."""
    ways: dict[str, Callable[[], AbstractContextManager[_Lossy]]] = {
        "one process": lambda: _unharmed(1),
        "two, one killed": _process_killed,
    }
    if with_ray:
        ways |= {"two on Ray, one killed": _actor_killed, "two machines on Ray, one removed": _machine_removed}
    figures: list[LossFigures] = []
    with tempfile.TemporaryDirectory() as folder:
        expected: dict[str, bytes] | None = None
        for name, way in ways.items():
            out = Path(folder, name.replace(" ", "-").replace(",", ""))
            with way() as (pool, lose):
                seconds, retried = _run(out, worlds, frames, model, pool, lose)
            found = files_but_times(out)
            expected = expected or found
            again = longtake.map_many(
                short_worlds(worlds, frames), out, model=model, checkpoint_every=_CHECKPOINT_EVERY
            )
            figures.append(
                LossFigures(
                    pool=name,
                    seconds=seconds,
                    retried=retried,
                    listed_done=_num_listed_done(out),
                    is_same=found == expected == files_but_times(out),
                    frames_again=again.num_frames,
                )
            )
    headings = ["pool", "s", "gone on with", "listed as done", "same files", "frames of a second batch"]
    cells = [
        [
            *(one.pool, f"{one.seconds:.1f}", str(one.retried), f"{one.listed_done} of {worlds}"),
            *("yes" if one.is_same else "NO", str(one.frames_again)),
        ]
        for one in figures
    ]
    show([asdict(one) for one in figures], [table(headings, cells)], as_json=as_json)


def _run(out: Path, worlds: int, frames: int, model: str, pool: Pool, lose: Callable[[], None]) -> tuple[float, int]:
    """Seconds, and how many videos were tried again."""
    settings = {"model": model, "checkpoint_every": _CHECKPOINT_EVERY}
    batch = Batch(open_manifest(short_worlds(worlds, frames), settings), open_storage(out), pool)
    begun_s, num_ended, num_retried, is_lost = time.monotonic(), 0, 0, False
    for event in batch:
        num_ended += isinstance(event, Ended)
        num_retried += isinstance(event, Retried)
        if isinstance(event, Progress) and event.running and num_ended >= worlds // 2 and not is_lost:
            is_lost = True
            lose()
    return time.monotonic() - begun_s, num_retried


def _num_listed_done(out: Path) -> int:
    with (out / "videos.csv").open(newline="") as file:
        return sum(row["state"] == "done" for row in csv.DictReader(file))


@contextmanager
def _unharmed(num_workers: int) -> Iterator[_Lossy]:
    yield LocalPool(num_workers), lambda: None


@contextmanager
def _process_killed() -> Iterator[_Lossy]:
    pool = LocalPool(2)
    yield pool, lambda: os.kill(pool.process_ids[0], signal.SIGKILL)


@contextmanager
def _actor_killed() -> Iterator[_Lossy]:
    pool = RayPool("ray", 2)
    yield pool, lambda: os.kill(pool.process_ids[0], signal.SIGKILL)


@contextmanager
def _machine_removed() -> Iterator[_Lossy]:
    """Two machines of one cluster, as far as Ray knows; one goes with all that runs on it."""
    cluster_utils = import_from_extra("ray.cluster_utils", "ray", "this measurement")
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    leaving = cluster.add_node(num_cpus=1)
    try:
        yield RayPool(f"ray://{cluster.address}", 2), lambda: cluster.remove_node(leaving)
    finally:
        cluster.shutdown()
