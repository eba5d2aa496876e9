"""A command line from its arguments to its exit code: the one place where an error becomes a sentence."""

import signal
import sys

import typer
from rich.console import Console
from rich.text import Text

from longtake.cli.signals import handling_ends
from longtake.errors import LongtakeError


def run_program(commands: typer.Typer, name: str) -> None:
    """Run the command that the arguments name; an error of ours is one sentence on stderr and exit code 1.

    Whatever asks it to end is as Ctrl-C.
    """
    try:
        with handling_ends(signal.default_int_handler):
            commands(prog_name=name)
    except LongtakeError as error:
        Console(stderr=True).print(
            Text(f"{name}: ", style="bold red").append(str(error), style="default"), soft_wrap=True
        )
        sys.exit(1)
