"""The page with Chromium's own false camera, on a real server: filmed to the end, refused, and not there."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from live_page import PATIENCE_MS, ask, open_page, wait_for_answer, wait_for_words
from server_process import ServerProcess

from benchmarks.serving.browser import BY_PROCESSOR

pytest.importorskip("fastapi")
pytestmark = pytest.mark.extra

FALSE_CAMERA, ALLOWED = "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"
NONE, REFUSED = f"{FALSE_CAMERA}=device-count=0", f"{ALLOWED}=deny"
ROOM, HOUSE = "Which room are you in now?", "world:9?frames=2&size=126x98"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("filmed") / "sessions") as started:
        yield started


@pytest.fixture(scope="module")
def fragment(server: ServerProcess) -> str:
    """Of a session to begin with, so that no house runs beside the camera."""
    return f"#session={server.call('POST', '/v1/sessions', {'source': HOUSE, 'memory': '40MB'}).record['id']}"


def test_a_camera_is_filmed_asked_about_and_stopped(
    launch: Callable[[list[str]], Any], server: ServerProcess, fragment: str, heard: list[str]
) -> None:
    with launch([*BY_PROCESSOR, FALSE_CAMERA, ALLOWED]) as browser:
        film(browser, server, fragment, heard)


def film(browser: Any, server: ServerProcess, fragment: str, heard: list[str]) -> None:
    page = open_page(browser, server.url, heard, fragment=fragment)
    page.click("[data-source=webcam]")
    page.wait_for_function("() => document.querySelector('.preview-video')?.videoWidth > 0", timeout=PATIENCE_MS)
    assert page.locator("#start-own option").all_text_contents() == ["fake_device_0"]
    page.click("#start-button")
    wait_for_words(page, "#status-words", r"Live, (1[2-9]|[2-9]\d)")
    assert page.evaluate("longtake.page.state.session.source") == "push"
    page.wait_for_function("() => document.getElementById('live-image').naturalWidth > 0", timeout=PATIENCE_MS)
    ask(page, ROOM)
    wait_for_answer(page, ROOM)
    page.click("#stop")
    page.click("#stop-now")
    wait_for_words(page, "#status-words", "Ended after")
    told = server.call("GET", f"/v1/sessions/{page.evaluate('longtake.page.id')}").record
    assert told["finished"]
    assert page.text_content("#status-words") == f"Ended after {told['num_frames']} frames"
    assert page.evaluate("longtake.page.feed.stream.getTracks().map(({ readyState }) => readyState)") == ["ended"]
    times = page.evaluate("longtake.page.state.frames.map(({ time }) => time)")
    assert times == sorted(set(times))
    page.close()


@pytest.mark.parametrize(
    ("flags", "words"),
    [((FALSE_CAMERA, REFUSED), "may not use the camera"), ((NONE, ALLOWED), "no camera on this device")],
)
def test_a_camera_that_is_refused_or_not_there_is_told_and_the_page_goes_on(
    launch: Callable[[list[str]], Any],
    server: ServerProcess,
    fragment: str,
    heard: list[str],
    flags: tuple[str, ...],
    words: str,
) -> None:
    with launch([*BY_PROCESSOR, *flags]) as browser:
        page = open_page(browser, server.url, heard, fragment=fragment)
        page.click("[data-source=webcam]")
        wait_for_words(page, "#start-problem", words)
        assert page.locator("#start-button").is_disabled()
        page.keyboard.press("Escape")
        wait_for_words(page, "#status-words", "Ended after 2 frames")
        page.click("[data-source=saved]")
        page.wait_for_selector("#start-own .sessions button", timeout=PATIENCE_MS)
