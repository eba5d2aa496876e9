"""What an address hides is in nothing that is printed or written, and a run of it can still be resumed."""

import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import av
import numpy as np
import pytest
from done import Done

NUM_FRAMES = 6


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[str]:
    """Host and path of a film on a server."""
    (tmp_path / "served").mkdir()
    with av.open(str(tmp_path / "served" / "film.mkv"), "w") as container:
        stream = container.add_stream("mpeg4", rate=Fraction(10), width=56, height=42)
        for shade in range(NUM_FRAMES):
            picture = np.full((42, 56, 3), 40 * shade, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture)))
        container.mux(stream.encode(None))
    handler = partial(QuietHandler, directory=str(tmp_path / "served"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"127.0.0.1:{server.server_port}/film.mkv"
        server.shutdown()
        thread.join()


def require_no_secret(done: Done, out: Path) -> None:
    paths = [path for path in out.rglob("*") if path.is_file()]
    assert paths
    for text in (done.stdout, done.stderr, *map(str, out.rglob("*"))):
        assert "secret" not in text
    for path in paths:
        assert b"secret" not in path.read_bytes(), path


def test_a_run_of_an_address_hides_who_asks_and_can_be_resumed(
    tmp_path: Path, place: str, longtake: Callable[..., Done]
) -> None:
    out = tmp_path / "out"
    address = f"http://secret:secret@{place}?token=secret"
    options = ["--model", "tiny", "--size", "42", "--format", "tum,glb", "--out", str(out), "--scale-from"]
    done = longtake("map", address, *options, "distance:0,99=3m")
    assert f"{NUM_FRAMES} frames at" in done.stdout, done.stderr
    require_no_secret(done, out)
    assert f"http://{place}" in (out / "summary.json").read_text()
    other = longtake("map", address.replace("token", "film"), *options, "distance:0,5=3m", "--resume")
    assert "begun with other settings (address)" in other.stderr
    again = longtake("map", address, *options, "distance:0,5=3m", "--resume", "--json")
    assert again.returncode == 0, again.stderr
    require_no_secret(again, out)


def test_of_several_sources_none_tells_a_secret(tmp_path: Path, place: str, longtake: Callable[..., Done]) -> None:
    out = tmp_path / "out"
    sources = [f"http://secret:secret@{place}?token=secret", "rtps://secret:secret@host?token=secret"]
    done = longtake("map", *sources, "--model", "tiny", "--size", "42", "--format", "tum", "--out", str(out))
    assert done.returncode == 1
    assert [path.name for path in out.iterdir()] == ["film.mkv"]
    assert "rtps://host: Expected a video, a folder or a stream" in done.stdout
    require_no_secret(done, out)
