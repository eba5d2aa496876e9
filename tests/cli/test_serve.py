"""What keeps a server from beginning is said in one sentence."""

from collections.abc import Callable
from pathlib import Path

import pytest
from done import Done

from longtake.takes.folder_lock import locked

pytest.importorskip("fastapi")
pytestmark = pytest.mark.extra


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--model", "gone.pt"), "longtake: Expected weights at gone.pt, but no file or folder is there; give"),
        (("--language", "gone"), "longtake: Expected the folder of a model at gone, but nothing is there; check"),
        (("--memory", "1MB"), "longtake: Expected the memory of one session within that of all; give more memory."),
        (("--log-level", "loud"), "longtake: Expected --log-level as "),
    ],
)
def test_models_and_settings_that_cannot_be(
    longtake: Callable[..., Done], tmp_path: Path, options: tuple[str, ...], sentence: str
) -> None:
    done = longtake("serve", "--port", "0", "--folder", str(tmp_path / "sessions"), *options)
    assert done.returncode != 0
    assert done.stderr.startswith(sentence)
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_folder_that_another_server_has(longtake: Callable[..., Done], tmp_path: Path) -> None:
    with locked(tmp_path):
        done = longtake("serve", "--port", "0", "--folder", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == f"longtake: Another run is writing to {tmp_path}; wait for its end, or name another folder.\n"
