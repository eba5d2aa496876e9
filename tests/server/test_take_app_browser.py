"""A take on disk in the page, in a real browser, with no model anywhere."""

import json
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from live_page import wait_for_words

from longtake.takes.frames import TakeFrame
from longtake.takes.header import Content, TakeHeader, Unit
from longtake.takes.images import ImageFiles
from longtake.takes.take import read_take
from longtake.takes.writer import TakeWriter

pytest.importorskip("fastapi")
from longtake.server.access import AccessRules
from longtake.server.run import http_server, listen
from longtake.server.take_app import TAKE_ID, create_take_app

pytestmark = pytest.mark.extra
NUM_FRAMES, SIZE = 5, (24, 32)
INTRINSICS = [[30.0, 0, 16.0], [0, 30.0, 12.0], [0, 0, 1]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    header = TakeHeader(content=Content.RESULT, width=32, height=24, unit=Unit.METRE, images=ImageFiles.PNG)
    with TakeWriter(tmp_path / "a-take", header) as writer:
        for index in range(NUM_FRAMES):
            pose = torch.eye(4, dtype=torch.float64)
            pose[0, 3] = 0.25 * index
            image = np.full((*SIZE, 3), 40 * index, dtype=np.uint8)
            camera = torch.tensor(INTRINSICS, dtype=torch.float64)
            writer.write(
                TakeFrame(
                    index=index,
                    timestamp_s=index / 2,
                    world_from_camera=pose,
                    intrinsics=camera,
                    image=image,
                )
            )
    return tmp_path / "a-take"


def points_message(number: int) -> bytes:
    fields = b'{"frame": %d, "count": 2, "total": 2, "origin": [0, 0, 1], "scale": 0.001}' % number
    rows = struct.pack("<3H4B", 100, 200, 300, 9, 9, 9, 255) * 2
    return struct.pack("<BBHIq", 3, 4, len(fields), number, 0) + fields + rows


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    with listen("127.0.0.1", 0) as bound:
        port, is_ready = bound.getsockname()[1], threading.Event()
        app = create_take_app(
            read_take(folder), lambda: map(points_message, range(NUM_FRAMES)), AccessRules.local(port)
        )
        server = http_server(app, is_ready.set)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        assert is_ready.wait(20)
        yield f"http://127.0.0.1:{port}"
        server.stop()
        thread.join()


def test_what_a_result_says_of_its_video_is_said_again(browser: Any, folder: Path, url: str) -> None:
    note = "micro-map knows procedural houses; this video is unlike them"
    (folder / "summary.json").write_text(json.dumps({"notes": [note]}))
    page = browser.new_page()
    page.goto(f"{url}/#session={TAKE_ID}")
    wait_for_words(page, "body", note)


def test_a_take_is_shown_with_its_points_path_and_pictures(browser: Any, url: str) -> None:
    heard: list[str] = []
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.goto(f"{url}/#session={TAKE_ID}")
    page.wait_for_function("() => window.longtake?.counts?.points === 10")
    assert page.evaluate("longtake.counts.path") == NUM_FRAMES
    assert page.text_content("#status-words") == f"A finished take, {NUM_FRAMES} frames"
    assert page.text_content("#source-name") == "a-take"
    assert not page.locator("#ask-panel").is_visible()
    assert page.locator("#figures > div:visible dt").all_text_contents() == ["Video", "Frames", "Points"]
    wait_for_words(page, "#time-words", f"^{NUM_FRAMES} frames$")
    assert not page.locator("#legend").is_visible()
    assert not page.locator("#depth-image").locator("..").is_visible()
    page.click("#downloads summary")
    assert page.locator("#downloads button:visible strong").all_text_contents() == ["Cloud", "Picture"]
    page.keyboard.press("Escape")
    page.wait_for_function(f"() => document.getElementById('live-image').src.includes('/frames/{NUM_FRAMES - 1}.jpg')")
    found = page.evaluate("longtake.viewer.scene.points.nearest(([x]) => -x)")
    np.testing.assert_allclose(found, [0.25 * (NUM_FRAMES - 1) + 0.1, 0.2, 1.3], atol=1e-5)
    page.focus("#timeline")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    page.wait_for_function("() => longtake.viewer.scene.backdrop.isThere")
    page.wait_for_function("() => document.getElementById('live-image').src.includes('/frames/0.jpg')")
    page.close()
    assert heard == []


def test_the_bare_address_shows_the_take_without_a_complaint(browser: Any, url: str) -> None:
    heard: list[str] = []
    page = browser.new_page()
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("console", lambda message: message.type == "error" and heard.append(message.text))
    page.goto(url)
    page.wait_for_function("() => window.longtake?.counts?.points === 10")
    assert page.text_content("#status-words") == f"A finished take, {NUM_FRAMES} frames"
    page.close()
    assert heard == []
