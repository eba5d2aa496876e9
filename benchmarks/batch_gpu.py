"""A batch whose workers share a GPU: how many there come to be, and what all of them map a second.

Neither videos nor a server are needed for it; `python -m benchmarks.batch_gpu` runs without what reads or serves them.
"""

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.batching import short_worlds
from longtake.batch.events import Ended, Progress
from longtake.batch.mapping import open_batch
from longtake.cli.options import AsJson
from longtake.cli.program import run_program
from longtake.cli.tables import show, table
from longtake.errors import InputError


def batch_gpu(
    *,
    worlds: Annotated[int, typer.Option(min=2, help="That are mapped.")] = 60,
    frames: Annotated[int, typer.Option(min=2, help="Of each.")] = 150,
    per_gpu: Annotated[str, typer.Option(help="Workers of a GPU: a number, or auto while one more pays.")] = "auto",
    device: Annotated[str, typer.Option(help="cuda, or what else a model runs on.")] = "cuda",
    model: Annotated[str, typer.Option(help="A geometry model.")] = "micro-map",
    as_json: AsJson = False,
) -> None:
    """Map worlds by workers that share a GPU: a line whenever there are more or fewer of them, and one at the end."""
    changes: list[Progress] = []
    with tempfile.TemporaryDirectory() as folder:
        settings = {"device": device, "model": model, "format": "tum"}
        batch = open_batch(short_worlds(worlds, frames), Path(folder) / "out", per_gpu=per_gpu, settings=settings)
        for event in batch:
            if isinstance(event, Ended) and event.problem is not None:
                raise InputError(f"{event.source} could not be mapped: {event.problem}")
            if isinstance(event, Progress):
                if changes and event.num_workers == changes[-1].num_workers:
                    changes.pop()
                changes.append(event)
    assert batch.summary is not None
    rows = [(str(at.num_workers), f"{at.frames_per_s:.1f}", f"{at.done}") for at in changes]
    record = {"numbers": [asdict(at) for at in changes], "summary": asdict(batch.summary)}
    all_of_it = f"{batch.summary.num_frames} frames in {batch.summary.seconds:.0f} s"
    show(record, [table(("workers", "frames/s", "videos done"), rows), all_of_it], as_json=as_json)


if __name__ == "__main__":
    batches = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    batches.command()(batch_gpu)
    run_program(batches, "python -m benchmarks.batch_gpu")
