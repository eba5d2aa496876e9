"""The command line in a process of its own that has no need to import torch: it is forked from one that did so."""

import os
import sys
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
    with TemporaryDirectory() as told:
        process = CONTEXT.Process(target=_main, args=(arguments, cwd or Path.cwd(), Path(told)))
        process.start()
        process.join(200)
        is_late = process.exitcode is None
        process.kill()
        process.join()
        assert not is_late, f"longtake {' '.join(arguments)} took too long"
        return Done(process.exitcode, (Path(told) / "1").read_text(), (Path(told) / "2").read_text())


def _main(arguments: tuple[str, ...], cwd: Path, told: Path) -> None:
    from longtake.cli.main import main

    for number in (1, 2):
        os.dup2(os.open(told / str(number), os.O_WRONLY | os.O_CREAT), number)
    os.chdir(cwd)
    sys.argv = ["longtake", *arguments]
    main()
