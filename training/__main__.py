"""`python -m training`: the small networks of the package, each trained by a command."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from longtake.cli.options import AsJson, Device, Size, parse_counts, parse_size
from longtake.cli.program import run_program
from longtake.cli.tables import show, table
from longtake.runtime.execution import choose_device
from longtake.weights.presets import MICRO, TINY
from training.mixing import mix
from training.run import NETWORKS, TrainedNetwork, TrainOptions, run_train
from training.step_speed import measure_steps
from training.trainer import Fall

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
        falls: Annotated[
            str | None,
            typer.Option(
                help="End with this piece: the rate falls in its time from one share of the recipe's to another, "
                "such as 1..0, then the model is written."
            ),
        ] = None,
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
            falls=None if falls is None else Fall.parse(falls),
            quick=quick,
        )
        run_train(options, network)


for each in NETWORKS:
    _add_command(each)


@train.command("mix")
def mix_models(
    before: Annotated[Path, typer.Argument(help="A trained geometry model.")],
    after: Annotated[Path, typer.Argument(help="One whose training began with its weights.")],
    out: Annotated[Path, typer.Option(help="Where the model between them is written.")],
    share: Annotated[float, typer.Option(min=0.0, max=1.0, help="Of the later one.")] = 0.5,
) -> None:
    """Write the model between two, of which one began with the weights of the other."""
    mix(before, after, share, out)


@train.command()
def step_speed(
    size: Size = "126x98",
    lengths: Annotated[str, typer.Option(help="Frames of clips, such as 24,96.")] = "24,48,96,192",
    frames: Annotated[int, typer.Option(min=1, help="Frames in a step.")] = 960,
    device: Device = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="Of a miniature.")] = False,
    as_json: AsJson = False,
) -> None:
    """Time a step of micro-map's training; on a GPU both through masks and passing over what is not seen."""
    figures = measure_steps(
        TINY if quick else MICRO,
        parse_size(size),
        parse_counts(lengths, "--lengths as numbers of frames, such as 24,96"),
        frames=frames,
        deep=max(1, frames // 6),
        device=choose_device(device),
    )
    headings = ("frames", "passing over", "first, s", "ms", "loss", "gradient")
    rows = [
        (
            f"{one.clip_frames}",
            "yes" if one.sparse else "no",
            f"{one.first_s:.1f}",
            f"{one.step_ms:.1f}",
            f"{one.loss:.4f}",
            f"{one.gradient:.4f}",
        )
        for one in figures
    ]
    show([asdict(one) for one in figures], [table(headings, rows)], as_json=as_json)


if __name__ == "__main__":
    run_program(train, "python -m training")
