"""Trainings as commands; what they need is imported when they run."""

from pathlib import Path
from typing import Annotated

import typer

app = train = typer.Typer(
    help="Train the small networks of this package, in pieces.", no_args_is_help=True, add_completion=False
)

Folder = Annotated[Path, typer.Option(help="Where the training is put away; one that is there goes on.")]
Minutes = Annotated[float, typer.Option(min=0.0, help="How long this piece takes; then it is put away.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto.")]
OwnRecipe = Annotated[Path | None, typer.Option(help="A recipe of your own; by default the one of the package.")]
Processes = Annotated[
    int | None, typer.Option(min=1, help="Processes that build houses; by default all processors but two.")
]
Quick = Annotated[bool, typer.Option("--quick", help="A few steps of a miniature, to see that all works.")]


@train.command("micro-map")
def train_micro_map(
    folder: Folder,
    minutes: Minutes = 9.0,
    device: Device = "auto",
    recipe: OwnRecipe = None,
    processes: Processes = None,
    quick: Quick = False,
) -> None:
    """Train micro-map on walks through procedural houses; Ctrl-C puts away what was learned."""
    from longtake.cli.train import MAPPING, TrainOptions, run_train

    options = TrainOptions(
        folder=folder, minutes=minutes, device=device, recipe=recipe, processes=processes, quick=quick
    )
    run_train(options, MAPPING)


@train.command("micro-vqa")
def train_micro_vqa(
    folder: Folder,
    minutes: Minutes = 9.0,
    device: Device = "auto",
    recipe: OwnRecipe = None,
    processes: Processes = None,
    quick: Quick = False,
) -> None:
    """Train micro-vqa on questions about walks through procedural houses; Ctrl-C puts away what was learned."""
    from longtake.cli.train import ASKING, TrainOptions, run_train

    options = TrainOptions(
        folder=folder, minutes=minutes, device=device, recipe=recipe, processes=processes, quick=quick
    )
    run_train(options, ASKING)
