"""What a batch costs beside the mapping: pools side by side, a list without an end, a long video in spans."""

import itertools
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import psutil
import torch
import typer

import longtake
from benchmarks.following import pose_errors
from longtake.batch.driver import Batch
from longtake.batch.events import Ended, Progress
from longtake.batch.job import Finished, Job, Told, Watched
from longtake.batch.local_pool import LocalPool
from longtake.batch.manifest import open_manifest
from longtake.batch.open_storage import open_storage
from longtake.batch.pool import Pool
from longtake.batch.ray_pool import RayPool
from longtake.cli.options import AsJson
from longtake.cli.tables import show, table
from longtake.takes.take import read_take
from longtake.world.seeds import Split, seeds
from longtake.world.tour import Tour

_SIZE = "168x126"
_TIMED = {"summary.json", "progress.jsonl", "report.html", "videos.csv"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFigures:
    """One way to map the same worlds."""

    pool: str
    start_s: float
    """Until the first worker had seen a frame."""
    working_s: float
    """From there to the end of the last video."""
    largest_worker_bytes: int
    is_same: bool
    """Whether all files are those of one worker, but for times."""


def short_worlds(count: int, frames: int) -> list[dict[str, str]]:
    """Rows of a list, of houses that no model was trained on."""
    return [
        {"source": f"world:{seed}?frames={frames}&size={_SIZE}", "name": f"world-{seed}"}
        for seed in itertools.islice(seeds(Split.TEST), count)
    ]


def batch_pools(
    *,
    worlds: Annotated[int, typer.Option(min=1, help="That are mapped by each pool.")] = 40,
    frames: Annotated[int, typer.Option(min=2, help="Of each.")] = 40,
    jobs: Annotated[int, typer.Option(min=1, help="Workers of the pools.")] = 2,
    model: Annotated[str, typer.Option(help="A geometry model.")] = "micro-map",
    with_ray: Annotated[bool, typer.Option("--ray/--no-ray", help="Whether Ray is measured too.")] = True,
    as_json: AsJson = False,
) -> None:
    """Map the same worlds by one worker, by a pool of processes and on Ray: time beyond the start, bytes, memory."""
    rows = short_worlds(worlds, frames)
    figures: list[PoolFigures] = []
    with tempfile.TemporaryDirectory() as folder:
        expected: dict[str, bytes] | None = None
        for name, count in [("one process", 1), ("processes", jobs), *([("ray", jobs)] if with_ray else [])]:
            pool: Pool = RayPool("ray", count) if name == "ray" else LocalPool(count)
            out = Path(folder, name.replace(" ", "-"))
            batch = Batch(open_manifest(rows, {"model": model}), open_storage(out), pool)
            start_s, working_s, largest = _run(batch)
            found = files_but_times(out)
            expected = expected or found
            figures.append(
                PoolFigures(
                    pool=f"{name}, {count}",
                    start_s=start_s,
                    working_s=working_s,
                    largest_worker_bytes=largest,
                    is_same=found == expected,
                )
            )
    headings = ["pool", "start, s", "working, s", "largest worker, MB", "same files"]
    cells = [
        [
            *(one.pool, f"{one.start_s:.1f}", f"{one.working_s:.1f}"),
            *(f"{one.largest_worker_bytes / 1e6:.0f}", "yes" if one.is_same else "NO"),
        ]
        for one in figures
    ]
    show([asdict(one) for one in figures], [table(headings, cells)], as_json=as_json)


def _run(batch: Batch) -> tuple[float, float, int]:
    begun_s, first_s, largest = time.monotonic(), None, 0
    for event in batch:
        if first_s is None and (isinstance(event, Ended) or (isinstance(event, Progress) and event.frames_per_s > 0)):
            first_s = time.monotonic()
        if isinstance(event, Ended):
            assert event.problem is None, event.problem
            largest = max(largest, int(event.summary["peak_resident_bytes"]))
    assert first_s is not None
    return first_s - begun_s, time.monotonic() - first_s, largest


def files_but_times(folder: Path) -> dict[str, bytes]:
    """All that must be the same whoever mapped it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in _TIMED
    }


class _Simulated(Pool):
    """Workers that are done at once, and write what a batch reads of a video: its summary."""

    def __init__(self) -> None:
        self._reports: deque[Told] = deque()

    @property
    def num_workers(self) -> int:
        return 64

    @property
    def num_free(self) -> int:
        return self.num_workers - len(self._reports)

    def give(self, job: Job) -> None:
        folder = job.storage.folder(job.name)
        folder.mkdir()
        (folder / "summary.json").write_text('{"is_complete": true, "num_frames": 300, "seconds": 20.0}')
        self._reports.append(Finished(name=job.name, num_frames=300, summary={"num_frames": 300}))

    def told(self, timeout_s: float) -> Sequence[Told]:  # noqa: ARG002
        reports, self._reports = list(self._reports), deque()
        return [*(Watched(name=one.name, num_frames=300) for one in reports), *reports]

    def stop(self) -> None: ...

    def close(self) -> None: ...


def batch_driver(
    *,
    rows: Annotated[int, typer.Option(min=100, help="Videos of the list.")] = 100_000,
    as_json: AsJson = False,
) -> None:
    """Let simulated workers go through a long list: what the process that leads them holds, and the time of a row."""
    resident: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        listing = Path(folder, "list.txt")
        listing.write_text("".join(f"videos/{number // 100:04d}/{number:06d}.mp4\n" for number in range(rows)))
        started_s = time.monotonic()
        manifest = open_manifest(listing, {"model": "tiny"})
        read_s = time.monotonic() - started_s
        batch = Batch(manifest, open_storage(Path(folder, "out")), _Simulated())
        for number, _ in enumerate(event for event in batch if isinstance(event, Ended)):
            if number % (rows // 10) == rows // 100:
                resident.append(psutil.Process().memory_info().rss)
        seconds = time.monotonic() - started_s - read_s
    record = {"rows": rows, "read_s": read_s, "ms_a_row": 1000 * seconds / rows, "resident_bytes": resident}
    cells = [[f"{rows:,}", f"{read_s:.1f}", f"{1000 * seconds / rows:.2f}", f"{resident[0] / 1e6:.0f}"]]
    cells[0].append(f"{resident[-1] / 1e6:.0f}")
    headings = ["rows", "read and checked, s", "ms a row", "MB after 1 %", "MB after 91 %"]
    show(record, [table(headings, cells)], as_json=as_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanFigures:
    """One long walk, mapped in one pass and in spans."""

    seed: int
    one_m: float
    spans_m: float
    one_s: float
    spans_s: float
    """Of the clock, each on so many workers as there are."""


def batch_spans(
    *,
    worlds: Annotated[int, typer.Option(min=1, help="Unseen houses.")] = 3,
    first: Annotated[int, typer.Option("--from", min=0, help="The least seed.")] = 0,
    frames: Annotated[int, typer.Option(min=256, help="Of each walk.")] = 1000,
    spans: Annotated[int, typer.Option(min=2, help="Parts that are mapped side by side.")] = 4,
    jobs: Annotated[int, typer.Option(min=1, help="Workers.")] = 2,
    loops: Annotated[bool, typer.Option("--loops/--no-loops", help="Whether loops are closed.")] = True,
    as_json: AsJson = False,
) -> None:
    """Cut long walks into spans that are mapped side by side, against one pass: errors of the path, and time."""
    figures = []
    for seed in itertools.islice(seeds(Split.TEST, first), worlds):
        row = {"source": f"world:{seed}?frames={frames}&size={_SIZE}", "name": "walk"}
        truth = torch.stack(
            [
                view.world_from_camera.double()
                for view in itertools.islice(Tour(seed=seed, width=14, height=14).views(), frames)
            ]
        )
        found = {}
        for count in (1, spans):
            with _mapped(row, count, jobs, loops=loops) as (out, seconds):
                poses = read_take(out / "walk").trajectory.world_from_camera
                assert len(poses) == frames
                found[count] = pose_errors(poses, truth).metres, seconds
        figures.append(
            SpanFigures(
                seed=seed, one_m=found[1][0], spans_m=found[spans][0], one_s=found[1][1], spans_s=found[spans][1]
            )
        )
    cells = [
        [
            *(str(one.seed), f"{one.one_m:.3f}", f"{one.spans_m:.3f}", f"{one.spans_m / one.one_m:.2f}"),
            *(f"{one.one_s:.0f}", f"{one.spans_s:.0f}"),
        ]
        for one in figures
    ]
    headings = ["house", "m in one pass", f"m in {spans} spans", "ratio", "s", f"s in {spans} spans"]
    show([asdict(one) for one in figures], [table(headings, cells)], as_json=as_json)


@contextmanager
def _mapped(row: dict[str, str], spans: int, jobs: int, *, loops: bool) -> Iterator[tuple[Path, float]]:
    with tempfile.TemporaryDirectory() as folder:
        started_s = time.monotonic()
        done = longtake.map_many([row], folder, jobs=jobs, spans=spans, loops=loops, format="tum")
        assert done.done == 1, Path(done.table).read_text()
        yield Path(folder), time.monotonic() - started_s
