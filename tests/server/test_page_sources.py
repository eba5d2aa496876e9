"""Where the page's frames come from, in a real browser on a real server, to the end: House, Upload, Saved, a take."""

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import av
import pytest
from live_page import (
    PATIENCE_MS,
    ask,
    frames_looked_at,
    open_page,
    wait_for_answer,
    wait_for_thumbnails,
    wait_for_words,
)
from server_process import ServerProcess

import longtake

pytest.importorskip("fastapi")
pytestmark = pytest.mark.extra

NUM_FRAMES = 16
HOUSE = f"world:19?frames={NUM_FRAMES}&size=126x98"
ROOM, BALL = "Which room are you in now?", "Where is the red ball now?"
SLOWLY = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 150_000}
NOTE_PROGRESS = """() => {
  window.noted = [];
  const bar = document.getElementById("start-progress");
  new MutationObserver(() => noted.push([bar.value, document.getElementById("start-problem").textContent]))
    .observe(document.getElementById("start-form"), { subtree: true, childList: true, attributes: true });
}"""
POSES = "longtake.page.state.frames.map(({ pose }) => pose)"


class Served:
    """A server that can be ended and begun again under the same address."""

    def __init__(self, folder: Path, running: ExitStack) -> None:
        self._running = running
        self.now = running.enter_context(ServerProcess(folder))
        self.url = self.now.url

    def begin_again(self) -> None:
        assert self.now.stop() == 0
        self._running.close()
        self.now = self._running.enter_context(ServerProcess(self.now.folder, port=self.now.port))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with ExitStack() as running:
        yield Served(tmp_path_factory.mktemp("sources") / "sessions", running)


@pytest.fixture(scope="module")
def ended(served: Served) -> str:
    """A session that was asked for without the page."""
    return str(served.now.call("POST", "/v1/sessions", {"source": HOUSE, "memory": "40MB"}).record["id"])


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filmed") / "a walk, שלום <b>.mp4"
    with av.open(str(path), "w") as file:
        stream = file.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = 252, 196, "yuv420p", 8_000_000
        for frame in longtake.open_video(f"world:9?frames={NUM_FRAMES}&size=252x196"):
            file.mux(stream.encode(av.VideoFrame.from_ndarray(frame.image, format="rgb24")))
        file.mux(stream.encode())
    return path


def wait_for_the_end(page: Any, num_frames: int = NUM_FRAMES) -> None:
    wait_for_words(page, "#status-words", f"Ended after {num_frames} frames")
    page.wait_for_function("count => longtake.counts.path === count", arg=num_frames, timeout=PATIENCE_MS)
    page.wait_for_function("() => longtake.counts.points > 1000", timeout=PATIENCE_MS)


def upload(page: Any, path: Path) -> None:
    page.click("[data-source=upload]")
    page.set_input_files("#start-own input[type=file]", path)
    page.click("#start-button")


def test_a_house_with_a_seed_runs_to_its_end_and_its_take_is_viewed(
    browser: Any, served: Served, ended: str, heard: list[str], tmp_path: Path
) -> None:
    page = open_page(browser, served.url, heard, fragment=f"#session={ended}")
    page.click("[data-source=house]")
    page.fill("#start-own label:nth-child(1) input", "29")
    page.fill("#start-own label:nth-child(2) input", str(NUM_FRAMES))
    page.press("#start-own label:nth-child(2) input", "Enter")
    wait_for_words(page, "#source-name", "House 29")
    wait_for_the_end(page)
    assert page.evaluate("longtake.page.state.session.source") == f"world:29?frames={NUM_FRAMES}&size=126x98"
    ask(page, ROOM)
    wait_for_answer(page, ROOM)
    poses = page.evaluate(POSES)
    page.click("#downloads summary")
    with page.expect_download(timeout=PATIENCE_MS) as waiting:
        page.click("#downloads .sheet button:has-text('Take')")
    page.wait_for_function("() => !document.getElementById('downloads').open")
    with zipfile.ZipFile(waiting.value.path()) as packed:
        packed.extractall(tmp_path)
    (header,) = tmp_path.rglob("take.json")
    command = [sys.executable, "-m", "longtake", "view", str(header.parent), "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as viewing:
        assert viewing.stdout is not None
        url = viewing.stdout.readline().split(" on ")[1].split(";")[0]
        page.goto(url)
        wait_for_words(page, "#status-words", f"A finished take, {NUM_FRAMES} frames")
        page.wait_for_function("() => longtake.counts.points > 1000", timeout=PATIENCE_MS)
        shown = page.evaluate(POSES)
        page.close()
        viewing.terminate()
    assert shown == [pytest.approx(pose, abs=1e-5) for pose in poses]


def test_an_upload_tells_how_far_it_is_and_runs_to_its_end_and_what_is_no_video_is_told(
    browser: Any, served: Served, ended: str, heard: list[str], film: Path, tmp_path: Path
) -> None:
    page = open_page(browser, served.url, heard, fragment=f"#session={ended}")
    no_film = tmp_path / "film.mp4"
    no_film.write_text("nothing that moves\n" * 100)
    upload(page, no_film)
    wait_for_words(page, "#notice-words", "the uploaded file")
    assert str(served.now.folder) not in page.text_content("#notice-words")
    assert not page.locator("#start").is_visible()
    page.click("#notice-buttons button:has-text('Dismiss')")

    page.context.new_cdp_session(page).send("Network.emulateNetworkConditions", SLOWLY)
    page.evaluate(NOTE_PROGRESS)
    upload(page, film)
    wait_for_the_end(page)
    noted = page.evaluate("noted")
    shares = [share for share, words in noted if "sent" in words]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert any(0 < share < 1 for share in shares)
    assert any(words.startswith("100 % of ") for _, words in noted)
    assert page.text_content("#source-name") == film.name
    assert page.title() == f"{film.name} · longtake"
    assert page.locator("#sources [aria-current=true]").text_content() == "Upload"
    assert page.locator("#notice").is_hidden()
    page.close()


def test_a_saved_session_is_opened_to_its_end_and_again_after_the_server_was_restarted(
    browser: Any, served: Served, ended: str, heard: list[str]
) -> None:
    page = open_page(browser, served.url, heard, fragment=f"#session={ended}")
    wait_for_the_end(page)
    ask(page, ROOM)
    wait_for_answer(page, ROOM)
    poses, num_points = page.evaluate(POSES), page.evaluate("longtake.counts.points")
    looked_at = frames_looked_at(page, served.now, ended)
    wait_for_thumbnails(page, ended, looked_at)
    page.close()
    served.begin_again()
    page = open_page(browser, served.url, heard, fragment="#session=" + ended[::-1])
    wait_for_words(page, "#notice-words", "no longer on the server")
    heard.clear()  # the browser says itself that there is none
    page.click("[data-source=saved]")
    page.click(f"#start-own .sessions button:has-text('{ended[:6]}')")
    wait_for_the_end(page)
    page.wait_for_function("count => longtake.counts.points >= 0.9 * count", arg=num_points, timeout=PATIENCE_MS)
    assert page.evaluate("longtake.page.id") == ended
    wait_for_thumbnails(page, ended, looked_at)
    assert page.evaluate(POSES) == [pytest.approx(pose, abs=1e-5) for pose in poses]
    ask(page, BALL)
    wait_for_answer(page, BALL)
    page.close()
