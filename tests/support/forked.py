"""Commands and programs in a process of their own that need not import torch: it is forked from one that did so."""

import os
import sys
from collections.abc import Callable
from multiprocessing import forkserver, get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from done import Done

import longtake.cli

CAN_FORK = os.name == "posix"
CONTEXT = get_context("forkserver" if CAN_FORK else "spawn")
IMPORTED = [
    "matplotlib.pyplot",
    "transformers.models.qwen2_5_vl.modeling_qwen2_5_vl",
    *sorted(f"longtake.cli.{path.stem}" for path in Path(longtake.cli.__file__).parent.glob("[a-z]*.py")),
]


def start() -> None:
    """Have all that commands import ready; they will find the environment of this moment."""
    if CAN_FORK:
        CONTEXT.set_forkserver_preload(IMPORTED)
        forkserver.ensure_running()


def run(*arguments: str, cwd: Path | None = None) -> Done:
    """What the installed script does with these arguments."""
    return _done(_command, arguments, cwd or Path.cwd())


def run_program(program: str, *arguments: str) -> Done:
    """What `python -c` does with this program and these arguments."""
    return _done(_program, (program, *arguments), Path.cwd())


def _done(target: Callable[[tuple[str, ...]], None], arguments: tuple[str, ...], cwd: Path) -> Done:
    with TemporaryDirectory() as told:
        process = CONTEXT.Process(target=_main, args=(target, arguments, cwd, Path(told)))
        process.start()
        process.join(200)
        is_late = process.exitcode is None
        process.kill()
        process.join()
        assert not is_late, f"{' '.join(arguments)} took too long"
        return Done(process.exitcode, (Path(told) / "1").read_text(), (Path(told) / "2").read_text())


def _main(target: Callable[[tuple[str, ...]], None], arguments: tuple[str, ...], cwd: Path, told: Path) -> None:
    for number in (1, 2):
        os.dup2(os.open(told / str(number), os.O_WRONLY | os.O_CREAT), number)
    os.chdir(cwd)
    target(arguments)


def _command(arguments: tuple[str, ...]) -> None:
    from longtake.cli.main import main

    sys.argv = ["longtake", *arguments]
    main()


def _program(arguments: tuple[str, ...]) -> None:
    program, *sys.argv[1:] = arguments
    exec(program, {"__name__": "__main__"})
