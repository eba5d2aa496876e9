"""Exit codes, and a stdout that is full or knows few letters."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from done import Done

from longtake.cli.program import run_program
from longtake.errors import (
    BudgetError,
    CheckpointError,
    InputError,
    LongtakeError,
    MissingExtraError,
    SettingError,
    UnknownWordsError,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError, 1),
        (CheckpointError, 1),
        (BudgetError, 1),
        (MissingExtraError, 1),
        (SettingError, 2),
        (UnknownWordsError, 3),
    ],
)
def test_exit_code_says_what_was_wrong(
    error: type[LongtakeError], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = typer.Typer(add_completion=False)

    @commands.command()
    def fail() -> None:
        raise error("a[/x]b :car: is wrong.")

    monkeypatch.setattr(sys, "argv", ["program"])
    with pytest.raises(SystemExit) as ended:
        run_program(commands, "program")
    assert ended.value.code == code
    assert capsys.readouterr().err == "program: a[/x]b :car: is wrong.\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", [("models",), ("models", "--json"), ("--version",)])
def test_full_stdout_is_one_sentence(arguments: tuple[str, ...]) -> None:
    start = "from longtake.cli.main import main; main()"
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-c", start, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=100,
        )
    assert done.returncode == 1
    assert done.stderr == (
        "longtake: What is printed cannot be written (No space left on device); make room where it goes.\n"
    )


@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")
def test_closed_stdout_is_none() -> None:
    start = "from longtake.cli.main import main; main()"
    command = ["sh", "-c", '"$0" -c "$1" models >&-', sys.executable, start]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.extra
def test_names_that_stdout_has_no_letters_for_are_written_around(tmp_path: Path) -> None:
    os.mkdir(tmp_path / "häuser")  # noqa: PTH102
    start = "from longtake.cli.main import main; main()"
    options = ["--frames", "1", "--size", "28x28", "--questions", "0", "--out", "häuser"]
    done = subprocess.run(
        [sys.executable, "-c", start, "world", *options],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        cwd=tmp_path,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert b"1 frame of house 7" in done.stdout
    assert done.stdout.endswith(b"in h\\xe4user\n")


def test_events_are_whole_json_whatever_letters_stdout_has(longtake: Callable[..., Done], tmp_path: Path) -> None:
    out = str(tmp_path / "häuser [x]")
    options = ["--model", "tiny", "--size", "42", "--format", "tum", "--out", out]
    done = longtake("map", "world:1?frames=1&size=42x28", *options, "--json")
    assert done.stdout.isascii()
    assert {json.loads(line).get("out", out) for line in done.stdout.splitlines()} == {out}
    assert "1 frame " in longtake("map", "world:1?frames=1&size=42x28", *options, "--overwrite").stdout


ENDS_WHILE_LOADING = """
import signal, sys

class Ends:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy.linalg":
            try:
                signal.raise_signal(signal.{signal})
            except BaseException:
                pass  # as some modules do

sys.meta_path.insert(0, Ends())
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_asked_to_end_while_it_loads_a_command_ends_at_once(number: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(ENDS_WHILE_LOADING.replace("{signal}", number))
    paths = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "longtake", "map", "world:1?frames=2", "--out", str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "")
    assert not (tmp_path / "out").exists()
