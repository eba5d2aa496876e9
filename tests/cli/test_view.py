"""`longtake view` as a user starts it, and what a browser would ask of it."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pytest

pytest.importorskip("fastapi")
connecting = pytest.importorskip("websockets.sync.client")
pytestmark = pytest.mark.extra


@pytest.mark.parametrize("packed", [False, True])
def test_a_walk_is_shown_with_its_points(tmp_path: Path, packed: bool) -> None:
    folder = tmp_path / "walk"
    filmed = [
        sys.executable,
        "-m",
        "longtake",
        "world",
        "--seed",
        "9",
        "--frames",
        "4",
        "--size",
        "126x98",
        "--out",
        str(folder),
    ]
    subprocess.run(filmed, check=True, capture_output=True)
    if packed:
        folder = Path(shutil.make_archive(str(tmp_path / "longtake-1-take"), "zip", tmp_path, "walk"))
    command = [sys.executable, "-m", "longtake", "view", str(folder), "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split(" on ")[1].split("/#")[0]
        page = build_opener(ProxyHandler({})).open(url, timeout=20).read()
        assert b"/static/main.js" in page
        with connecting.connect(f"{url.replace('http', 'ws', 1)}/v1/sessions/take/live", proxy=None) as socket:
            events = [json.loads(socket.recv(20)) for _ in range(5)]
            socket.send(json.dumps({"type": "view.budget", "points": 1000}))
            socket.send(json.dumps({"type": "credit", "bytes": 1_000_000}))
            points = socket.recv(20)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) in (0, 130)
    assert [event["type"] for event in events] == ["session.updated", *["frame.known"] * 4]
    assert (points[0], points[1]) == (3, 4)


def test_a_folder_without_a_take_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "longtake", "view", str(tmp_path), "--no-open"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
