"""`longtake bench`: what users measure, each command declared beside what it does."""

import typer

from longtake.cli.bench_memory import bench_memory
from longtake.cli.bench_places import bench_places
from longtake.cli.bench_policies import bench_policies
from longtake.cli.bench_quality import bench_quality
from longtake.cli.bench_speed import bench_speed

app = typer.Typer(help="Measure longtake on this machine.", no_args_is_help=True, add_completion=False)
app.command("memory")(bench_memory)
app.command("speed")(bench_speed)
app.command("quality")(bench_quality)
app.command("places")(bench_places)
app.command("policies")(bench_policies)
