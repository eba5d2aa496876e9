"""Commands, and the one place where an error becomes a sentence and an exit code."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from longtake import __version__
from longtake.errors import LongtakeError

app = typer.Typer(
    name="longtake",
    help="Watch a video that never cuts: poses, depth and a map, frame by frame, from a bounded memory.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
bench = typer.Typer(help="Measure longtake on this machine.", no_args_is_help=True)
app.add_typer(bench, name="bench")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"longtake {__version__}")
        raise typer.Exit


@app.callback()
def _longtake(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Options before any command."""


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Say what is installed, which attention backend is used and why, and check that it computes right."""
    from longtake.cli.doctor import run

    run(as_json=as_json)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the figures.")] = Path("out"),
    frames: Annotated[int, typer.Option(min=1, help="Length of the generated clip.")] = 60,
) -> None:
    """Stream a generated clip through a tiny network with random weights, and check that streaming is exact."""
    from longtake.cli.demo import run

    run(out, frames)


@bench.command("memory")
def bench_memory(
    frames: Annotated[int, typer.Option(min=1, help="Frames to keep under each policy.")] = 320,
    size: Annotated[str, typer.Option(help="Width x height of the images, in pixels.")] = "518x378",
    as_json: AsJson = False,
    plot: Annotated[Path | None, typer.Option(help="Also draw bytes over frames into this PNG file.")] = None,
) -> None:
    """Count bytes per frame and layer at the published size, for each policy, against the closed formula."""
    from longtake.cli.bench import run_memory

    run_memory(frames, size, as_json=as_json, plot=plot)


@bench.command("soak")
def bench_soak(
    frames: Annotated[int, typer.Option(min=3, help="Frames to stream.")] = 20_000,
    stretch: Annotated[int, typer.Option(min=1, help="Frames in the first and last stretch compared.")] = 1000,
    as_json: AsJson = False,
) -> None:
    """Stream for a long time and compare the first and the last stretch: memory, step time, live tensors."""
    from longtake.cli.bench import run_soak

    run_soak(frames, stretch, as_json=as_json)


def main() -> None:
    """Run the command line; an error of ours is one sentence on stderr and exit code 1."""
    try:
        app()
    except LongtakeError as error:
        Console(stderr=True).print(
            Text("longtake: ", style="bold red").append(str(error), style="default"), soft_wrap=True
        )
        sys.exit(1)
