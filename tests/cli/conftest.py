"""The command line in the process of the test, which may change what it meets."""

import sys
from collections.abc import Callable

import pytest
from done import Done

from longtake.cli.main import main


@pytest.fixture
def run_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["longtake", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Done(int(ended.value.code or 0), said.out, said.err)

    return run
