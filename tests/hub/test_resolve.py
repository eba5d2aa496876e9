import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from longtake.errors import CheckpointError, MissingExtraError
from longtake.hub.resolve import find, resolve

Put = Callable[[str, str, bytes], Path]
Attempts = list[tuple[object, ...]]
FILES = {"x.pt": b"weights", "model.safetensors": b"one file"}
INDEX = "model.safetensors.index.json"
COMMITS = {"main": "0" * 40, "v1": "1" * 40}


def test_existing_path_wins_over_a_preset_of_the_same_name(
    tmp_path: Path, put_in_cache: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in_cache("robbyant/lingbot-map", "lingbot-map.pt", b"cached")
    monkeypatch.chdir(tmp_path)
    assert resolve("lingbot-map").name == "lingbot-map.pt"
    Path("lingbot-map").mkdir()
    assert resolve("lingbot-map") == Path("lingbot-map")
    assert resolve(tmp_path) == tmp_path
    assert resolve(f"streamvggt:{tmp_path}") == tmp_path


@pytest.mark.parametrize(
    ("name", "repo", "file"),
    [
        ("lingbot-map", "robbyant/lingbot-map", "lingbot-map.pt"),
        ("lingbot-map-long", "robbyant/lingbot-map", "lingbot-map-long.pt"),
        ("robbyant/lingbot-map/lingbot-map.pt", "robbyant/lingbot-map", "lingbot-map.pt"),
        ("org/repo_2.1/folder/x.safetensors", "org/repo_2.1", "folder/x.safetensors"),
        ("org/repo", "org/repo", "model.safetensors"),
        ("stream3r", "yslan/STream3R", "model.safetensors"),
        ("lch01/StreamVGGT", "lch01/StreamVGGT", "checkpoints.pth"),
        ("facebook/VGGT-1B", "facebook/VGGT-1B", "model.safetensors"),
        ("vggt:org/repo/x.pt", "org/repo", "x.pt"),
    ],
)
def test_cached_file_is_found_without_a_network(
    name: str, repo: str, file: str, put_in_cache: Put, no_network: Attempts
) -> None:
    path = put_in_cache(repo, file, b"weights")
    assert find(name) == resolve(name) == path
    assert no_network == []


def test_sharded_repository_is_found_once_all_its_files_are_there(put_in_cache: Put, no_network: Attempts) -> None:
    places = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    index = put_in_cache("org/repo", INDEX, json.dumps({"weight_map": places}).encode())
    put_in_cache("org/repo", "model-1.safetensors", b"")
    assert find("org/repo") is None
    put_in_cache("org/repo", "model-2.safetensors", b"")
    assert resolve("org/repo") == index


@pytest.mark.parametrize("name", ["lingbot-map-long", "org/repo", "org/repo/x.pt"])
def test_without_a_network_one_sentence_says_what_was_wanted_where_and_what_to_do(
    name: str, cache: Path, no_network: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    assert find(name) is None
    assert no_network == []
    with pytest.raises(CheckpointError) as caught:
        resolve(name)
    text = str(caught.value)
    assert no_network
    assert str(cache) in text
    assert "Name or service not known" in text
    assert "fetch it by hand from https://huggingface.co/" in text
    assert text.endswith("and pass its path.")
    assert "\n" not in text
    assert caplog.records == [], "nothing is said to be fetched before it is known to be there"


@pytest.mark.parametrize("name", ["lingbot", "gone/x.pt", "./org/repo", "/org/repo", "a--b/c", "org/../x", "org/.x"])
def test_what_can_be_neither_path_nor_name_is_refused_with_the_known_names(name: str, no_network: Attempts) -> None:
    with pytest.raises(
        CheckpointError, match=r"give a path, one of the names micro-map, lingbot-map-long, .*, vggt, tiny, micro, or"
    ):
        resolve(name)
    assert no_network == []


def test_without_the_package_a_name_says_what_to_install_and_a_path_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r'pip install "longtake\[hub\]"'):
        resolve("lingbot-map")
    assert resolve(tmp_path) == tmp_path


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as a download needs: `/org/repo/resolve/<revision>/<file>`."""

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        content = self.answer()
        self.wfile.write(content)

    def answer(self) -> bytes:
        repo, _, place = self.path.removeprefix("/").partition("/resolve/")
        revision, _, file = place.partition("/")
        known = repo == "org/repo" and revision in COMMITS
        content = FILES.get(file, b"") if known else b""
        self.send_response(200 if content else 404)
        if repo == "org/closed":
            self.send_header("X-Error-Code", "GatedRepo")
        elif repo != "org/repo":
            self.send_header("X-Error-Code", "RepoNotFound")
        elif not known:
            self.send_header("X-Error-Code", "RevisionNotFound")
        elif not content:
            self.send_header("X-Error-Code", "EntryNotFound")
        self.send_header("X-Repo-Commit", COMMITS.get(revision, ""))
        self.send_header("ETag", f'"{file}-1"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        return content

    def log_message(self, format: str, *arguments: object) -> None:
        """Keep the tests' output clean."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


RESOLVE = """
import json, sys
from longtake.errors import CheckpointError
from longtake.hub.resolve import find, resolve

told = []
for name in sys.argv[1:]:
    before = find(name)
    try:
        told.append([before and str(before), str(resolve(name))])
    except CheckpointError as error:
        told.append([None, f"refused: {error}"])
print(json.dumps(told))
"""


def test_download_lands_in_the_cache_that_hf_home_names(endpoint: str, tmp_path: Path) -> None:
    """In a process of its own, for the hub's package reads its variables when it is imported."""
    names = ["org/repo/x.pt", "org/repo/x.pt", "org/repo", "org/repo/y.pt", "org/other/x.pt", "org/closed/x.pt"]
    names += ["org/repo@v1", "org/repo@v1", "org/repo@v9"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
    environment |= {"HF_HOME": str(tmp_path), "HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", RESOLVE, *names], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second, whole, no_file, no_repo, closed, pinned, pinned_again, no_revision = json.loads(done.stdout)
    place = tmp_path / "hub" / "models--org--repo" / "snapshots" / ("0" * 40)
    assert first == [None, str(place / "x.pt")]
    assert (place / "x.pt").read_bytes() == b"weights"
    assert second == [str(place / "x.pt")] * 2
    assert whole == [None, str(place / "model.safetensors")]
    assert "has no y.pt; name the file you want" in no_file[1]
    assert "no such repository, or it is private" in no_repo[1]
    assert "accept their terms" in closed[1]
    pinned_place = place.parent / ("1" * 40)
    assert pinned == [None, str(pinned_place / "model.safetensors")]
    assert pinned_again == [str(pinned_place / "model.safetensors")] * 2
    assert "there is no revision v9" in no_revision[1]
    assert "licence of the weights: not known to longtake" in done.stderr
