"""`python -m benchmarks`: every measurement that only developers make, as a command."""

import typer

from benchmarks.answer_familiarity import answer_familiarity
from benchmarks.batch_gpu import batch_gpu
from benchmarks.batch_losses import batch_losses
from benchmarks.batching import batch_driver, batch_pools, batch_spans
from benchmarks.count_source import count_source
from benchmarks.foreign import foreign
from benchmarks.geometry_commands import attention_mass, pipeline, precision, soak, world
from benchmarks.graph_speed import graph_speed
from benchmarks.language_commands import ask, chunks
from benchmarks.map_speed import map_speed
from benchmarks.place_commands import COMMANDS as PLACES
from benchmarks.place_recall import place_recall
from benchmarks.serving.commands import (
    page_pictures,
    page_soak,
    page_start,
    serve_churn,
    serve_live,
    serve_malformed,
    serve_openapi,
    serve_overhead,
    serve_recovery,
    serve_soak,
)
from longtake.cli.program import run_program

benchmarks = typer.Typer(
    help="Measure what longtake is made of.", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)
_SPEED = (ask, attention_mass, chunks, count_source, graph_speed, map_speed, pipeline, precision, soak, world)
_QUALITY = (
    answer_familiarity,
    foreign,
    place_recall,
)
_SERVING = (serve_churn, serve_live, serve_malformed, serve_openapi, serve_overhead, serve_recovery, serve_soak)
_BATCHES = (batch_driver, batch_gpu, batch_losses, batch_pools, batch_spans)
_PAGE = (page_pictures, page_soak, page_start)
for command in (*_SPEED, *_QUALITY, *PLACES, *_SERVING, *_BATCHES, *_PAGE):
    benchmarks.command()(command)

if __name__ == "__main__":
    run_program(benchmarks, "python -m benchmarks")
