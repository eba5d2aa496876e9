"""The command line in the process of the test, which may change what it meets."""

import signal
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from done import Done

from longtake.cli.main import main
from longtake.hub.bundled import DEFAULT_LANGUAGE, bundled_folder
from longtake.language.load import LanguageModel, load_language
from longtake.runtime.dialogue import DialogueSession


@pytest.fixture(scope="session")
def load_once(word_language: Path) -> Callable[..., LanguageModel]:
    """Loads a language model, but one that all tests leave as it is only once."""
    remembered = cache(load_language)

    def load(folder: Path | str, **settings: Any) -> LanguageModel:
        is_shared = str(folder) in (str(word_language), str(bundled_folder(DEFAULT_LANGUAGE)))
        return (remembered if is_shared else load_language)(folder, **settings)

    return load


@pytest.fixture
def run_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], load_once: Callable[..., LanguageModel]
) -> Callable[..., Done]:
    def run(*arguments: str) -> Done:
        monkeypatch.setattr("longtake.hub.load.load_language", load_once)
        monkeypatch.setattr(sys, "argv", ["longtake", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Done(int(ended.value.code or 0), said.out, said.err)

    return run


@pytest.fixture
def interrupt_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Has Ctrl-C pressed once a dialogue has looked so many times."""

    def arrange(num_looks: int) -> None:
        see, left = DialogueSession.see, num_looks

        def see_and_interrupt(session: DialogueSession, frames: torch.Tensor, timestamps_s: list[float]) -> None:
            nonlocal left
            see(session, frames, timestamps_s)
            left -= 1
            if left == 0:
                signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(DialogueSession, "see", see_and_interrupt)

    return arrange
