"""`python -m training`: the small networks of the package, each trained by a command."""

from pathlib import Path
from typing import Annotated

import typer

from longtake.cli.options import Device
from longtake.cli.program import run_program
from training.run import NETWORKS, TrainedNetwork, TrainOptions, run_train

train = typer.Typer(help="Train the small networks of this package, in pieces.", no_args_is_help=True)


def _add_command(network: TrainedNetwork) -> None:
    @train.command(network.name, help=f"{network.about}; Ctrl-C saves what was learned.")
    def command(
        folder: Annotated[Path, typer.Option(help="Where the training is saved; one that is there goes on.")],
        minutes: Annotated[float, typer.Option(min=0.0, help="How long this piece takes; then it is saved.")] = 9.0,
        device: Device = "auto",
        recipe: Annotated[
            Path | None, typer.Option(help="A recipe of your own; by default the one in `training/recipes`.")
        ] = None,
        processes: Annotated[
            int | None, typer.Option(min=1, help="Processes that build houses; by default all processors but two.")
        ] = None,
        begin_with: Annotated[
            Path | None, typer.Option(help="A trained model whose weights it begins with, instead of at random.")
        ] = None,
        last: Annotated[
            bool,
            typer.Option("--last", help="End with this piece: the rate falls in its time, then the model is written."),
        ] = False,
        quick: Annotated[
            bool, typer.Option("--quick", help="A few steps of a miniature, to see that all works.")
        ] = False,
    ) -> None:
        options = TrainOptions(
            folder=folder,
            minutes=minutes,
            device=device,
            recipe=recipe,
            processes=processes,
            begin_with=begin_with,
            is_last=last,
            quick=quick,
        )
        run_train(options, network)


for each in NETWORKS:
    _add_command(each)

if __name__ == "__main__":
    run_program(train, "python -m training")
