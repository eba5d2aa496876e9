"""Pictures of the page for its documentation: three large ones; each state at two sizes, light and dark, on a sheet."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from benchmarks.serving.browser import chromium_ready
from benchmarks.serving.process import ServerProcess

STATES = ("empty", "running", "error", "lost")
LARGE = ("page", "page-dark", "page-phone")
"""Paused after two answers: light; dark, flown to a moment; on a phone."""
_QUESTION = "Which room are you in now?"
_EARLIER = "Where is the red ball now?"
_HOUSE = "world:9?frames=5000&size=126x98"
_DESKTOP = {"viewport": {"width": 1280, "height": 800}}
_PHONE = {"viewport": {"width": 390, "height": 800}, "is_mobile": True, "has_touch": True}
_WIDE = {"viewport": {"width": 1440, "height": 900}}
_TALL = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True, "color_scheme": "dark"}
_LOOKS = tuple({**size, "color_scheme": scheme} for size in (_DESKTOP, _PHONE) for scheme in ("light", "dark"))
_HEIGHT_PX, _GAP_PX, _QUALITY = 360, 6, 66
_LARGE_PX, _LARGE_QUALITY = 1200, 80
"""Across, at most."""
_GREY = (128, 128, 128)
_PATIENCE_MS = 120_000
_SETTLED = "() => Promise.race([longtake.viewer.pacer.settled(), new Promise((done) => setTimeout(done, 4000))])"
"""What is drawn, with all of its points; a map that grows never is."""
_FLOWN_MS = 2500
_ANSWERED = "count => document.getElementById('log').textContent.split('first word').length > count"
_SHOWN = "() => longtake.counts.points > 60000 && /first word/.test(document.getElementById('log').textContent)"


def take_pictures(folder: Path, work: Path, *, progress: Callable[[int], None] = lambda _: None) -> list[Path]:
    """Write `page-STATE.jpg` of each state and the large ones into a folder; the server works in the other."""
    with ServerProcess(work) as server, chromium_ready() as launch, launch() as browser:
        studio = _Studio(server, browser)
        written = []
        for name, shot in zip(LARGE, studio.large(), strict=True):
            written.append(folder / f"{name}.jpg")
            shot.thumbnail((_LARGE_PX, _LARGE_PX), Image.Resampling.LANCZOS)
            shot.save(written[-1], "JPEG", quality=_LARGE_QUALITY, optimize=True, progressive=True)
            progress(1)
        for state in STATES:
            written.append(folder / f"page-{state}.jpg")
            sheet(studio.shots(state)).save(written[-1], "JPEG", quality=_QUALITY, optimize=True, progressive=True)
            progress(1)
    return written


def sheet(shots: list[Image.Image]) -> Image.Image:
    """All beside each other, of one height."""
    scaled = [ImageOps.scale(shot, _HEIGHT_PX / shot.height, Image.Resampling.LANCZOS) for shot in shots]
    width = sum(shot.width for shot in scaled) + _GAP_PX * (len(scaled) - 1)
    whole, left = Image.new("RGB", (width, _HEIGHT_PX), _GREY), 0
    for shot in scaled:
        whole.paste(shot, (left, 0))
        left += shot.width + _GAP_PX
    return whole


class _Studio:
    """A server, a browser, and pages brought into a state."""

    def __init__(self, server: ServerProcess, browser: Any) -> None:
        self._server, self._browser = server, browser
        self._house = ""

    def shots(self, state: str) -> list[Image.Image]:
        """One of each look; "lost" comes last, for it ends the server."""
        make = {"empty": self._empty, "running": self._running, "error": self._unreadable, "lost": self._lost}[state]
        return [self._shot(page) for page in make()]

    def large(self) -> Iterator[Image.Image]:
        """A house that is paused after two answers, as each of `LARGE` shows it."""
        house = self._open({"source": _HOUSE})
        page = self._page(_WIDE, house, "Live")
        page.wait_for_function("() => longtake.counts.points > 40000", timeout=_PATIENCE_MS)
        for number, question in enumerate((_EARLIER, _QUESTION), start=1):
            page.fill("#question", question)
            page.press("#question", "Enter")
            page.wait_for_function(_ANSWERED, arg=number, timeout=_PATIENCE_MS)
            page.wait_for_function(f"() => longtake.counts.points > {40_000 * (number + 1)}", timeout=_PATIENCE_MS)
        page.click("#pause")
        self._wait_for(page, "Paused")
        yield self._shot(page)
        page = self._page(_WIDE | {"color_scheme": "dark"}, house, "Paused")
        page.wait_for_function(_SHOWN, timeout=_PATIENCE_MS)
        page.click(".evidence button")
        page.wait_for_timeout(_FLOWN_MS)
        yield self._shot(page)
        page = self._page(_TALL, house, "Paused")
        page.wait_for_function(_SHOWN, timeout=_PATIENCE_MS)
        yield self._shot(page)

    def _empty(self) -> Iterator[Any]:
        session = self._open({"source": "push"})
        for look in _LOOKS:
            yield self._page(look, session, "Waiting for the camera")

    def _running(self) -> Iterator[Any]:
        self._house = self._open({"source": _HOUSE})
        for number, look in enumerate(_LOOKS):
            page = self._page(look, self._house, "Live")
            if not number:
                page.fill("#question", _QUESTION)
                page.press("#question", "Enter")
            page.wait_for_function(_SHOWN, timeout=_PATIENCE_MS)
            yield page

    def _unreadable(self) -> Iterator[Any]:
        film = {"name": "film.mp4", "mimeType": "video/mp4", "buffer": b"no film"}
        for look in _LOOKS:
            page = self._page(look, self._open({"source": "push"}), "Waiting for the camera")
            page.click("[data-source=upload]")
            page.set_input_files("#start-own input[type=file]", film)
            page.click("#start-button")
            page.wait_for_selector("#notice:not([hidden])", timeout=_PATIENCE_MS)
            yield page

    def _lost(self) -> Iterator[Any]:
        pages = [self._page(look, self._house, "Live") for look in _LOOKS]
        for page in pages:
            page.wait_for_function(_SHOWN, timeout=_PATIENCE_MS)
        self._server.kill()
        for page in pages:
            self._wait_for(page, "Lost the server, trying again")
            yield page

    def _open(self, request: dict[str, str]) -> str:
        return str(self._server.call("POST", "/v1/sessions", request).record["id"])

    def _page(self, look: dict[str, Any], session: str, words: str) -> Any:
        page = self._browser.new_page(**look)
        page.goto(f"{self._server.url}/#session={session}")
        self._wait_for(page, words)
        return page

    def _wait_for(self, page: Any, words: str) -> None:
        page.wait_for_function(
            "words => document.getElementById('status-words').textContent.includes(words)",
            arg=words,
            timeout=_PATIENCE_MS,
        )

    def _shot(self, page: Any) -> Image.Image:
        page.evaluate(_SETTLED)
        shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        page.close()
        return shot
