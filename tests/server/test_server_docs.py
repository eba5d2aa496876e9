"""Every command and program on the page about the server runs, against a server started as the page says."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import documented
import pytest
from server_process import ServerProcess

import longtake

pytest.importorskip("fastapi")
pytestmark = pytest.mark.extra
ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "server.md", ROOT / "README.md"]
USUAL = "http://127.0.0.1:8765"


def lines(language: str) -> list[str]:
    return [line for block in documented.blocks(PAGES, language) for line in block.splitlines()]


@pytest.mark.parametrize("line", lines("sh server"))
def test_documented_servers_start_and_end(line: str, tmp_path: Path) -> None:
    program, command, *arguments = shlex.split(line)
    assert (program, command) == ("longtake", "serve")
    folder = tmp_path / "sessions"
    if "--folder" in arguments:
        arguments[arguments.index("--folder") + 1] = str(folder)
    if "--port" in arguments:
        arguments[arguments.index("--port") + 1] = "0"
    with ServerProcess(folder, *arguments) as server:
        assert server.call("GET", "/health").status == 200
        assert server.stop() == 0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> ServerProcess:
    with ServerProcess(tmp_path_factory.mktemp("documented") / "sessions") as started:
        yield started


@pytest.mark.parametrize("program", documented.blocks(PAGES, "python client"))
def test_documented_clients_run(program: str, server: ServerProcess, tmp_path: Path) -> None:
    assert USUAL in program
    command = [sys.executable, "-c", program.replace(USUAL, server.url)]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "LiveAnswer(" not in done.stdout


@pytest.mark.parametrize("line", lines("sh commands"))
def test_documented_commands_run(line: str, server: ServerProcess, tmp_path: Path) -> None:
    program, *arguments = shlex.split(line.replace(USUAL, server.url))
    assert program == "longtake"
    command = [sys.executable, "-m", "longtake", *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_documented_lines_of_curl_run_one_after_the_other(server: ServerProcess, tmp_path: Path) -> None:
    (program,) = documented.blocks(PAGES, "sh client")
    command = ["bash", "-eo", "pipefail", "-c", program.replace(USUAL, server.url)]
    environment = os.environ | {"no_proxy": "*"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert '"error"' not in done.stdout
    assert '"role":"assistant"' in done.stdout
    assert longtake.Client(server.url).sessions() == []
    assert (tmp_path / "cloud.ply").read_bytes().startswith(b"ply")
    assert (tmp_path / "first.jpg").read_bytes().startswith(b"\xff\xd8")
    assert (tmp_path / "colmap.zip").read_bytes().startswith(b"PK")
