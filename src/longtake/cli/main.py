"""The commands by name, each loaded when it is wanted."""

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from longtake import __version__
from longtake.cli.program import run_program

COMMANDS = {
    "map": "Map a video: poses, depth and points, written while it runs; Ctrl-C ends it so that it can be resumed.",
    "batch": "Map many videos, each into a folder of its own, by several workers, here or on a Ray cluster.",
    "ask": "Watch a video and answer questions about it, at given moments, again and again, or when it has ended.",
    "live": "Follow the camera and answer questions at once, from one memory: answers say when, where and from what.",
    "serve": "Serve sessions to programs, robots and pages: frames in, poses, depth and answers out, saved when idle.",
    "view": "Look at a finished result in a browser: cloud, path and pictures; no model runs.",
    "locate": "Say where pictures were taken in the world of a mapped video, by the model that mapped it.",
    "merge": "Join two mapped videos that share places into one result, in the world of the first.",
    "export": "Write other files from a saved result: other formats and filters, a known camera or scale, upright.",
    "eval": "Compare a result with the truth: trajectory, depth, points and answers, as far as both have them.",
    "world": "Film a walk through a procedural world, with its exact truth: poses, depth, what is visible, questions.",
    "demo": "Film a house unseen in training and a table, map both, ask about the house, and score all by the truth.",
    "doctor": "Say what is installed, which attention backend is used and why, and check that it computes right.",
    "models": "List the weights known by name: sizes, where from, their licence, and whether they are on this machine.",
    "bench": "Measure longtake on this machine.",
    "explain": "Show what a model is told, without a model.",
}
"""Each with its help; what it does is in the module of its name, which declares it on `app`."""


class LazyCommands(TyperGroup):
    """Imports a command's module when it is invoked or asked for its own help; the list of all needs none."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | None:  # noqa: ARG002
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name]) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, known, rest = super().resolve_command(ctx, args)
        return name, known if name is None else _loaded(name), rest


def _loaded(name: str) -> Any:
    command = typer.main.get_command(import_module(f"longtake.cli.{name}").app)
    command.name = name
    return command


app = typer.Typer(
    name="longtake",
    cls=LazyCommands,
    help="Watch a video that never cuts: poses, depth and a map, frame by frame, from a bounded memory.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _version(wanted: bool) -> bool:
    if wanted:
        print(f"longtake {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _longtake(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Options before any command."""


def main() -> None:
    """Run the command line; an error of ours is one sentence on stderr and an exit code."""
    run_program(app, "longtake")
