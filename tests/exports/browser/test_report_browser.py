"""The page in a real browser: it draws, turns, and says so where it cannot."""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from longtake.exports.cloud import CloudSettings
from longtake.exports.frame import MappedFrame
from longtake.exports.ply import PlySink
from longtake.exports.report.page import write_report
from longtake.exports.report.truth import TRUTH_NAME, Figure, Truth
from longtake.exports.take import TakeSettings, TakeSink

pytestmark = pytest.mark.extra

ROOMS = """
[...document.querySelectorAll(".figures > div")].map((card) => {
  const drawn = document.createRange();
  drawn.selectNodeContents(card.querySelector("dd"));
  return card.getBoundingClientRect().right - drawn.getBoundingClientRect().right;
})
"""
"""Between each number and the right edge of its card."""
SIDES = """
[...document.querySelectorAll("svg.plan, svg.plan text")].map((drawn) => {
  const box = drawn.getBoundingClientRect();
  return [box.left, box.right];
})
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, frames: list[MappedFrame]) -> Path:
    folder = tmp_path_factory.mktemp("report") / "map"
    sinks = [TakeSink(folder, TakeSettings()), PlySink(folder / "cloud.ply", CloudSettings())]
    for sink in sinks:
        for frame in frames:
            sink.write(frame)
        sink.close()
    return write_report(folder)


def open_page(browser: Any, report: Path, heard: list[str]) -> Any:
    """Whatever the page complains of or asks the network for is heard."""
    page = browser.new_page(viewport={"width": 900, "height": 800}, color_scheme="light")
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("console", lambda message: heard.append(message.text) if message.type == "error" else None)
    page.on("request", lambda asked: None if asked.url.startswith(("file:", "data:")) else heard.append(asked.url))
    page.goto(report.as_uri())
    return page


def pixels_of(page: Any) -> np.ndarray:
    """Of the view, after what was asked for is drawn."""
    page.evaluate("longtake.viewer.pacer.settled()")
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    shot = Image.open(io.BytesIO(page.locator("#view").screenshot()))
    return np.asarray(shot.convert("RGB")).astype(int)


def share_changed(before: np.ndarray, after: np.ndarray) -> float:
    return float((np.abs(before - after).max(axis=-1) > 16).mean())


def test_view_shows_the_cloud_and_can_be_turned(browser: Any, report: Path) -> None:
    heard: list[str] = []
    page = open_page(browser, report, heard)
    first = pixels_of(page)
    is_coloured = np.ptp(first, axis=-1) > 24  # as the background is not
    assert is_coloured.mean() > 0.05
    box = page.locator("#view").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 120, y + 40, steps=4)
    page.mouse.up()
    turned = pixels_of(page)
    page.mouse.wheel(0, 400)
    farther = pixels_of(page)
    page.locator("#view").press("ArrowLeft")
    by_key = pixels_of(page)
    page.click("#above")
    above = pixels_of(page)
    page.click("#reset")
    again = pixels_of(page)
    shots = [first, turned, farther, by_key, above, again]
    assert all(share_changed(before, after) > 0.02 for before, after in pairwise(shots))
    assert share_changed(first, again) < 0.001
    page.close()
    assert heard == []


def test_controls_change_what_is_drawn(browser: Any, report: Path) -> None:
    heard: list[str] = []
    page = open_page(browser, report, heard)
    first = pixels_of(page)
    page.fill("#point-size", "4")
    large = pixels_of(page)
    page.check("#backs")
    with_backs = pixels_of(page)
    page.close()
    assert share_changed(first, large) > 0.02
    assert share_changed(large, with_backs) > 0.02
    assert heard == []


def test_true_way_is_drawn_in_the_view_and_in_the_plan(browser: Any, report: Path, frames: list[MappedFrame]) -> None:
    heard: list[str] = []
    page = open_page(browser, report, heard)
    plain = pixels_of(page)
    page.close()
    centres = np.stack([frame.world_from_camera[:3, 3].numpy() for frame in frames]) + np.array([0.0, 0.0, 0.3])
    truth = report.parent / TRUTH_NAME
    Truth(about="A walk.", centres=centres, figures=(Figure(name="ATE", result="2 %"),)).write(truth)
    page = open_page(browser, write_report(report.parent), heard)
    assert page.locator(".true-way").count() == 1
    assert page.locator("table.truth").is_visible()
    assert share_changed(plain, pixels_of(page)) > 0.0005
    page.close()
    truth.unlink()
    write_report(report.parent)
    assert heard == []


def test_browser_without_webgl_gets_a_sentence(launch: Callable[[list[str]], Any], report: Path) -> None:
    heard: list[str] = []
    with launch(["--disable-3d-apis"]) as browser:
        page = open_page(browser, report, heard)
        assert page.locator("#no-webgl").is_visible()
        assert not page.locator("#view").is_visible()
        assert page.locator("svg.plan").is_visible()
    assert heard == []


@pytest.mark.parametrize("width", [400, 820, 1400])
def test_figures_of_a_long_video_stay_within_their_cards(
    tmp_path: Path, browser: Any, frames: list[MappedFrame], width: int
) -> None:
    """Ten cards with numbers of nine digits."""
    with TakeSink(tmp_path, TakeSettings()) as sink:
        for frame in frames:
            sink.write(frame)
    numbers = {"num_keyframes": 123_456_789, "num_windows": 123_456_789, "frames_per_s": 1.23e6, "memory_bytes": 8e11}
    loops = {"loops": {"num_loops": 123_456_789, "num_withdrawn": 0}}
    (tmp_path / "summary.json").write_text(json.dumps({**numbers, **loops, "peak_resident_bytes": 8e11}))
    page = open_page(browser, write_report(tmp_path), [])
    page.set_viewport_size({"width": width, "height": 800})
    rooms = page.evaluate(ROOMS)
    assert len(rooms) >= 9
    assert min(rooms) >= 10, rooms
    page.close()


def test_narrow_screen_has_nothing_to_scroll_sideways(browser: Any, report: Path) -> None:
    page = open_page(browser, report, [])
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.close()


@pytest.mark.parametrize("angle", [0, 90, 180, 270])
def test_names_in_the_plan_are_whole(tmp_path: Path, browser: Any, frames: list[MappedFrame], angle: int) -> None:
    """Wherever on the drawing's edge the way begins or ends."""
    turn = np.radians(angle)
    sink = TakeSink(tmp_path / "map", TakeSettings())
    with sink:
        for number, frame in enumerate(frames):
            pose = frames[0].world_from_camera.clone()
            pose[:3, 3] = pose[:3, :3] @ pose.new_tensor([np.cos(turn) * number, 0, np.sin(turn) * number])
            sink.write(replace(frame, world_from_camera=pose))
    page = open_page(browser, write_report(tmp_path / "map"), [])
    edge, *names = page.evaluate(SIDES)
    page.close()
    assert len(names) == 3
    for left, right in names:
        assert edge[0] <= left < right <= edge[1]
