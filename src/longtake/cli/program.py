"""A command line from its arguments to its exit code: the one place where an error becomes a sentence."""

import io
import os
import sys
from contextlib import suppress

import typer
from rich.console import Console
from rich.text import Text

from longtake.cli.signals import handling_ends, interrupt
from longtake.errors import LongtakeError, SettingError, UnknownWordsError

FAILED = 1
"""Exit code where data, files or the machine were not what was expected."""
WRONG_USAGE = 2
"""Exit code of an option without a meaning, as typer has it for unknown ones."""
REFUSED = 3
"""Exit code where the language model knows nothing of what it was asked."""

UNKNOWN_PLACE = 4
"""Exit code where what was to be found in a take shows none of its places."""


class UnreadError(Exception):
    """Nobody reads any more what a command prints; not an error of a source, after which others would follow."""


def run_program(commands: typer.Typer, name: str) -> None:
    """Run the command that the arguments name; an error of ours is one sentence on stderr and an exit code.

    Whatever asks it to end is as Ctrl-C.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what it cannot show, such as ö in ASCII, is no failure
    try:
        try:
            with handling_ends(interrupt):
                commands(prog_name=name)
        finally:
            _flush()
    except LongtakeError as error:
        _complain(name, str(error))
        sys.exit(_exit_code(error))
    except UnreadError as error:
        _complain(name, str(error))
        sys.exit(FAILED)
    except OSError as error:
        if not _is_of_stdout(error):
            raise
        silence_stdout()
        _complain(name, f"What is printed cannot be written ({error.strerror}); make room where it goes.")
        sys.exit(FAILED)


def silence_stdout() -> None:
    """Let what is still printed go nowhere, also what Python tries once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _is_of_stdout(error: OSError) -> bool:
    """Files of ours name themselves in errors of ours, and errors of FFmpeg and of sockets have types of their own."""
    return type(error) is OSError and error.filename is None


def _flush() -> None:
    if sys.stdout:  # none where it was closed
        sys.stdout.flush()


def _exit_code(error: LongtakeError) -> int:
    if isinstance(error, UnknownWordsError):
        return REFUSED
    return WRONG_USAGE if isinstance(error, SettingError) else FAILED


def _complain(name: str, sentence: str) -> None:
    with suppress(OSError):  # nobody hears
        Console(stderr=True).print(
            Text(f"{name}: ", style="bold red").append(sentence, style="default"), soft_wrap=True
        )
