"""The server's page in a real browser, as tests open it, wait for its words, and hear its complaints."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from server_process import ServerProcess

PATIENCE_MS = 60_000
TIMES = "longtake.page.state.frames.map(({ index, time }) => [index, time])"
THUMBNAILS = """[...document.querySelectorAll("#log .evidence button")].map((button) => {
  const image = button.querySelector("img");
  return image?.naturalWidth ? new URL(image.src).pathname : null;
})"""


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """What pages complain of, and whom else they ask; at the end there must be nothing."""
    complaints: list[str] = []
    yield complaints
    assert not complaints, complaints


def open_page(browser: Any, url: str, heard: list[str], *, fragment: str = "", **options: Any) -> Any:
    page = browser.new_page(**({"viewport": {"width": 1280, "height": 800}} | options))
    origin = url.rpartition(":")[0]

    def listen(message: Any) -> None:
        if message.type == "error" and "/frames/" not in message.location.get("url", ""):
            heard.append(message.text)

    def notice(request: Any) -> None:
        if not request.url.startswith((origin, origin.replace("http", "ws", 1), "blob:", "data:")):
            heard.append(request.url)

    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("console", listen)
    page.on("request", notice)
    page.goto(f"{url}/{fragment}")
    return page


def wait_for_words(page: Any, place: str, pattern: str) -> None:
    page.wait_for_function(
        "([place, pattern]) => new RegExp(pattern).test(document.querySelector(place)?.textContent ?? '')",
        arg=[place, pattern],
        timeout=PATIENCE_MS,
    )


def ask(page: Any, question: str) -> None:
    """As somebody who types it."""
    page.fill("#question", question)
    page.press("#question", "Enter")


def wait_for_answer(page: Any, question: str) -> None:
    """Until the newest of these questions is answered in full."""
    page.wait_for_function(
        "question => [...document.querySelectorAll('#log li')]"
        ".filter((item) => item.querySelector('.asked')?.textContent === question).at(-1)?.querySelector('.about')",
        arg=question,
        timeout=PATIENCE_MS,
    )


def frames_looked_at(page: Any, server: ServerProcess, session: str) -> list[int]:
    """Which frame each moment of the answers is about, strongest first; the page must know all frames."""
    known = {round(time_s, 6): index for index, time_s in page.evaluate(TIMES)}
    exchanges = server.call("GET", f"/v1/sessions/{session}/conversation").record["exchanges"]
    return [known[round(moment["end_s"], 6)] for exchange in exchanges for moment in exchange["evidence"][:3]]


def wait_for_thumbnails(page: Any, session: str, frames: list[int]) -> None:
    """Until answers show the pictures of these frames of the session, and no others."""
    assert frames
    addresses = [f"/v1/sessions/{session}/frames/{frame}.jpg" for frame in frames]
    page.wait_for_function(
        f"addresses => JSON.stringify(addresses) === JSON.stringify({THUMBNAILS})",
        arg=addresses,
        timeout=PATIENCE_MS,
    )


def fall_asleep(page: Any) -> Callable[[], None]:
    """No script of the page runs and nothing is read, until what is returned is called."""
    tools, stopped = page.context.new_cdp_session(page), list[object]()
    tools.on("Debugger.paused", lambda reason: stopped.append(reason))
    tools.send("Debugger.enable")
    tools.send("Debugger.pause")
    while not stopped:
        page.wait_for_timeout(20)
    return lambda: tools.send("Debugger.disable")
