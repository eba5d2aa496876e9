"""The view by itself in a real browser: points are where they should be, move with their frames, and never too many."""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

from longtake.exports.viewer.script import as_one_script

pytestmark = pytest.mark.extra

WIDTH, HEIGHT = 640, 480
CAPACITY = 4000
CAMERA = {"fx": 150.0, "fy": 155.0, "cx": 60.0, "cy": 50.0, "width": 126, "height": 98}
SCRIPT = """
import { Viewer } from "./viewer.js";
import { multiply } from "./algebra.js";
const IDENTITY16 = [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1];
// Rows of the wire at places in a camera's coordinates; all of one colour.
window.chunk = (places, colour, more) => {
  const scale = 1e-4, rows = new DataView(new ArrayBuffer(10 * places.length));
  places.forEach((place, row) => {
    place.forEach((value, axis) => rows.setUint16(10 * row + 2 * axis, Math.round((value + 3) / scale), true));
    [...colour, 255].forEach((value, at) => rows.setUint8(10 * row + 6 + at, value));
  });
  return { frame: 0, time: 0, pose: IDENTITY16, origin: [-3, -3, -3], scale, rows: new Uint8Array(rows.buffer),
    count: places.length, ...more };
};
window.viewer = new Viewer(document.getElementById("view"), { capacity: %d });
"""


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page with nothing but the view."""
    opened = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    heard: list[str] = []
    opened.on("pageerror", lambda error: heard.append(str(error)))
    style = "body{margin:0} canvas{display:block;width:100vw;height:100vh}"
    script = as_one_script(SCRIPT % CAPACITY)
    opened.set_content(
        f'<style>{style}</style><canvas id="view" tabindex="0"></canvas><script type="module">{script}</script>'
    )
    opened.wait_for_function("window.viewer")
    yield opened
    opened.close()
    assert heard == []


def turned(angle: float, centre: tuple[float, float, float]) -> np.ndarray:
    """A camera turned about its own down, then put somewhere."""
    pose = np.eye(4)
    pose[:3, :3] = [[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]]
    pose[:3, 3] = centre
    return pose


def pixel_of(point: np.ndarray, pose: np.ndarray) -> np.ndarray:
    """Where a camera's picture shows a point of the world, when it fills as much of the view as it can."""
    x, y, z = pose[:3, :3].T @ (point - pose[:3, 3])
    scale = min(WIDTH / CAMERA["width"], HEIGHT / CAMERA["height"])
    u, v = CAMERA["fx"] * x / z + CAMERA["cx"] + 0.5, CAMERA["fy"] * y / z + CAMERA["cy"] + 0.5
    return (
        np.array([WIDTH / 2, HEIGHT / 2])
        + (np.array([u, v]) - np.array([CAMERA["width"], CAMERA["height"]]) / 2) * scale
    )


def shot_of(page: Any) -> np.ndarray:
    page.evaluate("viewer.pacer.settled()")
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("RGB")).astype(int)


def fly(page: Any, pose: np.ndarray) -> None:
    page.evaluate("([pose, camera]) => viewer.flyTo(pose, camera)", [pose.ravel().tolist(), CAMERA])
    page.wait_for_function("!viewer.camera.flight")


def test_a_known_point_is_drawn_within_a_pixel_of_its_place(page: Any) -> None:
    pose, at = turned(0.3, (0.2, -0.1, 0.4)), np.array([0.9, 0.15, 2.0])
    page.evaluate(
        "([place, pose]) => { viewer.addPoints(chunk([place], [255, 0, 0], { pose }));"
        " viewer.set({ pointSize: 40, showsBacks: true }); }",
        [(pose[:3, :3].T @ (at - pose[:3, 3])).tolist(), pose.ravel().tolist()],
    )
    fly(page, pose)
    shot = shot_of(page)
    rows, columns = np.nonzero((shot[..., 0] > 200) & (shot[..., 1] < 60))
    drawn = np.array([columns.mean() + 0.5, rows.mean() + 0.5])
    told = np.array(page.evaluate("point => viewer.project(point)", at.tolist()))
    expected = pixel_of(at, pose)
    assert np.abs(told - expected).max() < 0.01
    assert np.abs(drawn - expected).max() < 1


def test_a_flight_ends_exactly_at_the_pose(page: Any) -> None:
    pose = turned(2.2, (-0.4, 0.3, 1.7))
    fly(page, pose)
    reached = np.array(page.evaluate("viewer.camera.pose")).reshape(4, 4)
    np.testing.assert_allclose(reached, pose, atol=1e-12)
    page.locator("#view").press("ArrowLeft")
    looked = np.array(page.evaluate("viewer.camera.pose")).reshape(4, 4)
    np.testing.assert_allclose(looked[:3, 3], pose[:3, 3], atol=1e-12)
    assert np.abs(looked - pose).max() > 0.01
    np.testing.assert_allclose(looked[:3, :3] @ looked[:3, :3].T, np.eye(3), atol=1e-12)


def test_a_window_that_is_moved_takes_its_points_and_path_along(page: Any) -> None:
    """By a similarity, scale included: as changing a matrix does, so would changing every point."""
    pose, matrix = turned(0.4, (0.5, 0, 0.2)), turned(-0.7, (0.3, 0.1, -0.2))
    matrix[:3, :3] *= 1.5
    place = np.array([0.1, 0.2, 1.0])
    page.evaluate(
        "([place, pose, matrix]) => { viewer.setFrame({ index: 3, time: 0, pose });"
        " viewer.addPoints(chunk([place], [0, 0, 0], { frame: 3, pose })); viewer.moveFrames(2, 5, matrix); }",
        [place.tolist(), pose.ravel().tolist(), matrix.ravel().tolist()],
    )
    found = page.evaluate("viewer.scene.points.nearest(() => 0)")
    np.testing.assert_allclose(found, (matrix @ pose @ np.append(place, 1))[:3], atol=3e-4)
    (centre,) = page.evaluate("viewer.scene.way.places()")
    np.testing.assert_allclose(centre, (matrix @ pose)[:3, 3], atol=1e-6)


def test_points_stay_within_their_capacity_and_the_newest_are_kept(page: Any) -> None:
    counts = page.evaluate(
        "() => { for (let n = 0; n < 40; n++)"
        " viewer.addPoints(chunk(Array(301).fill([n / 20, 0, 1]), [9, 9, 9], { number: n, frame: n }));"
        " return viewer.counts; }"
    )
    assert counts["points"] == CAPACITY
    assert counts["received"] == 40 * 301
    assert counts["chunks"] == -(-CAPACITY // 301)
    oldest = page.evaluate("viewer.scene.points.nearest(([x]) => x)")
    newest = page.evaluate("viewer.scene.points.nearest(([x]) => -x)")
    assert oldest[0] == pytest.approx((40 - counts["chunks"]) / 20, abs=1e-3)
    assert newest[0] == pytest.approx(39 / 20, abs=1e-3)
    page.evaluate("viewer.addPoints(chunk([[-1, 0, 1]], [9, 9, 9], { number: 39, frame: 39 }))")
    assert page.evaluate("viewer.scene.points.nearest(([x]) => -x)")[0] == pytest.approx(38 / 20, abs=1e-3)


def test_the_distance_between_two_points_is_measured(page: Any) -> None:
    ends = [[-0.2, 0.1, 1.0], [0.4, -0.1, 1.5]]
    page.evaluate(
        "ends => { viewer.addPoints(chunk(ends, [0, 0, 0])); viewer.set({ showsBacks: true, cutsCeiling: false });"
        " viewer.measure(true); viewer.onMeasured = (marks, size) => { window.size = size; }; }",
        ends,
    )
    fly(page, np.eye(4))
    for end in ends:
        x, y = page.evaluate("point => viewer.project(point)", end)
        page.mouse.click(x, y)
    assert page.evaluate("window.size") == pytest.approx(np.linalg.norm(np.subtract(*ends)), abs=1e-3)


def test_the_path_of_a_long_video_takes_no_more_room(page: Any) -> None:
    before = page.evaluate("viewer.counts.bytes")
    count = page.evaluate(
        "() => { for (let n = 0; n < 20000; n++) viewer.scene.way.set(n, [n / 1000, 0, 0], n / 10);"
        " return [viewer.counts.path, viewer.scene.way.frames[0], viewer.scene.way.frames.at(-1)]; }"
    )
    assert count[0] <= 8192
    assert count[1:] == [0, 19999]
    assert page.evaluate("viewer.counts.bytes") == before


def test_frames_of_the_path_may_come_late(page: Any) -> None:
    page.evaluate("[5, 6, 2, 4, 3].forEach((frame) => viewer.scene.way.set(frame, [frame, 0, 0], frame))")
    assert page.evaluate("viewer.scene.way.frames") == [2, 3, 4, 5, 6]
    assert [place[0] for place in page.evaluate("viewer.scene.way.places()")] == [2, 3, 4, 5, 6]
