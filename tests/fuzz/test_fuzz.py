"""Damaged inputs of every kind: each is read, or refused in one sentence; `python -m tests.fuzz` says more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUICK = "session,earlier-session,earlier-session-of-windows,weights,take,pictures,video,world"


def fuzz(*options: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, ("src", os.environ.get("PYTHONPATH"))))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_few_damaged_inputs_of_the_quick_kinds_are_read_or_refused() -> None:
    fuzz("--cases", "60", "--only", QUICK)


@pytest.mark.extra
def test_some_damaged_inputs_of_every_kind_are_read_or_refused() -> None:
    fuzz("--cases", "150", "--seed", "1")


@pytest.mark.by_hand
@pytest.mark.timeout(0)
def test_ten_thousand_damaged_inputs_are_read_or_refused() -> None:
    fuzz("--cases", "10000", "--seed", "2")
