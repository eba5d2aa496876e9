"""What keeps a server from beginning is said in one sentence."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from done import Done
from server_process import ServerProcess

from longtake.cli.serve import _tell_saved
from longtake.errors import InputError
from longtake.server.client import Client
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


def test_of_all_addresses_those_that_can_be_opened_are_printed(tmp_path: Path) -> None:
    token = "a-token-of-some-length"
    arguments = ("--host", "0.0.0.0", "--name", "robot.lan")
    with ServerProcess(tmp_path / "sessions", *arguments, environment={"LONGTAKE_TOKEN": token}) as server:
        assert server.url == f"http://robot.lan:{server.port}"
        *others, here = server.urls[1:]
        assert here == f"http://127.0.0.1:{server.port}"
        for url in (*others, here):
            assert len(Client(url, token=token).models()) == 2


def test_that_a_token_is_needed_is_said_and_the_operator_s_own_is_not_shown(tmp_path: Path) -> None:
    token, place = "a-token-of-some-length", "the environment of the server has as LONGTAKE_TOKEN"
    with ServerProcess(tmp_path / "sessions", environment={"LONGTAKE_TOKEN": token}) as server:
        assert server.lines == [f"Clients need the token that {place}."]
        refused = server.call("GET", "/v1/sessions")
        assert refused.status == 401
        assert f"give the one that {place}: as the header" in refused.record["error"]["message"]
        assert "printed" not in refused.record["error"]["message"]


def test_a_token_that_the_server_made_is_printed_and_so_says_the_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LONGTAKE_TOKEN", raising=False)
    with ServerProcess(tmp_path / "sessions", "--host", "0.0.0.0") as server:
        (line,) = server.lines
        token = line.removeprefix("Clients need this token: ")
        assert server.call("GET", "/v1/sessions", headers={"Authorization": f"Bearer {token}"}).status == 200
        assert (
            "the one that it printed when it was started:"
            in server.call("GET", "/v1/sessions").record["error"]["message"]
        )


def test_the_last_line_says_what_was_saved(tmp_path: Path) -> None:
    for expected in ("", "Saved 1 session; ", "Saved 2 sessions; "):
        with ServerProcess(tmp_path / "sessions", errors=subprocess.DEVNULL) as server:
            assert server.process.stdout is not None
            assert len(Client(server.url).sessions()) == max(0, int(expected[6:8] or 0) - 1)
            if expected:
                Client(server.url).open_session(map=None).detach()
            server.process.send_signal(signal.SIGINT)
            last = server.process.stdout.read()
            assert last == (f"{expected}start again with the same --folder to go on.\n" if expected else "")
            assert server.process.wait(60) == 0


def test_sessions_that_could_not_be_saved_are_an_error() -> None:
    with pytest.raises(InputError, match="Of 3 sessions 1 could not be saved"):
        _tell_saved(3, 1)


def test_numpy_is_loaded_after_a_server_has_said_how_its_threads_wait() -> None:
    loaded = "import longtake.cli.main, longtake.cli.serve, sys; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
