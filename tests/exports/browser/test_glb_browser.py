"""The GLB file as three.js loads and draws it in a real browser."""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from longtake.exports.cloud import Cloud, CloudSettings
from longtake.exports.frame import FrameStatus, MappedFrame
from longtake.exports.glb import GlbSink
from longtake.exports.point_filter import PointFilter
from longtake.spatial.placement import Placement
from longtake.types import FrameKind
from longtake.world.tour import View

pytestmark = pytest.mark.extra

LIMIT_PX = 0.05
ALL_PIXELS = CloudSettings(points=PointFilter(drop_percent=0.0, largest_jump=None), voxel=1e-4)
TURN = np.array([1.0, -1.0, -1.0])
"""From our world, y down and z forward, to glTF's."""
SITE = "http://viewer.invalid/"
"""Never asked for: the browser's requests are answered here."""


def write_glb(path: Path, frames: Sequence[MappedFrame], settings: CloudSettings) -> Cloud:
    with GlbSink(path, settings) as sink:
        for frame in frames:
            sink.write(frame)
    return sink.cloud.cloud()


@contextmanager
def opened(browser: Any, three: Path, glb: Path) -> Iterator[Any]:
    """The viewer's page with a file loaded; whatever it complains of or asks the network for is an error."""
    heard: list[str] = []

    def answer(route: Any) -> None:
        asked = route.request.url.removeprefix(SITE)
        if asked in own:
            route.fulfill(path=own[asked])
        elif asked.startswith("three/"):
            route.fulfill(path=three / asked.removeprefix("three/"))
        else:
            heard.append(route.request.url)
            route.abort()

    own = {"": Path(__file__).with_name("viewer.html"), "scene.glb": glb}
    page = browser.new_page(viewport={"width": 900, "height": 700})
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("console", lambda said: heard.append(said.text) if said.type in ("error", "warning") else None)
    page.route("**/*", answer)
    page.goto(SITE)
    page.wait_for_function("window.viewer")
    yield page
    page.close()
    assert heard == []


def shot_of(page: Any) -> np.ndarray:
    shot = Image.open(io.BytesIO(page.locator("canvas").screenshot()))
    return np.asarray(shot.convert("RGB")).astype(int)


def test_points_colours_and_cameras_are_loaded(
    tmp_path: Path, cut_frames: list[MappedFrame], browser: Any, three: Path
) -> None:
    cloud = write_glb(tmp_path / "map.glb", cut_frames, CloudSettings())
    with opened(browser, three, tmp_path / "map.glb") as page:
        counts, about = page.evaluate("viewer.counts()"), page.evaluate("viewer.about()")
        points, light = (np.array(page.evaluate(f"viewer.{name}()")) for name in ("points", "colours"))
    assert counts == {"clouds": 1, "lines": 1, "cameras": len(cut_frames)}
    assert [camera["index"] for camera in about] == [frame.index for frame in cut_frames]
    assert len(cloud.points) > 1000
    np.testing.assert_allclose(points, cloud.points * TURN, rtol=1e-6, atol=1e-6)
    shown = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    assert np.array_equal(np.round(255 * shown), cloud.colours)


def with_lens_in_the_middle(view: View) -> MappedFrame:
    """The first row and column are cut off: the principal point lies half a pixel right of and below the middle."""
    picture = (view.image.movedim(0, -1) * 255).round().byte().numpy()
    height, width = picture.shape[0] - 1, picture.shape[1] - 1
    intrinsics = view.intrinsics.double()
    intrinsics[:2, 2] -= 1
    assert intrinsics[:2, 2].tolist() == [(width - 1) / 2, (height - 1) / 2]
    return MappedFrame(
        index=view.index,
        timestamp_s=view.timestamp_s,
        status=FrameStatus.OK,
        kind=FrameKind.KEYFRAME,
        window=0,
        world_from_camera=view.world_from_camera,
        intrinsics=intrinsics,
        depth=view.depth.numpy()[1:, 1:].copy(),
        confidence=np.ones((height, width), dtype=np.float32),
        image=picture[1:, 1:].copy(),
        source_image=picture[1:, 1:].copy(),
        placement=Placement(width, height, 1.0, 1.0),
    )


def strays_px(page: Any, true: Sequence[Any]) -> np.ndarray:
    """By how much columns and rows of true points are off, as three's cameras project them, in every other frame."""
    strays = []
    height, width = true[0].depth.shape
    for here, there in permutations(range(len(true)), 2):
        points = true[here].points()[::7]
        want = true[there].pixels(points)
        u, v, z = want.T
        counts = (z > 0.1) & (u > -0.5) & (u < width - 0.5) & (v > -0.5) & (v < height - 0.5)
        asked = [there, (points[counts] * TURN).tolist()]
        sides = np.array(page.evaluate("([camera, points]) => viewer.project(camera, points)", asked)).reshape(-1, 3)
        got = (sides[:, :2] * [1, -1] + 1) / 2 * [width, height] - 0.5
        strays.append(got - want[counts, :2])
    joined = np.concatenate(strays)
    assert len(joined) > 500
    return joined


def test_points_project_onto_the_pixels_that_see_them(
    tmp_path: Path, views: list[View], truth: Callable[..., list[Any]], browser: Any, three: Path
) -> None:
    frames = [with_lens_in_the_middle(view) for view in views[::3]]
    write_glb(tmp_path / "map.glb", frames, CloudSettings())
    with opened(browser, three, tmp_path / "map.glb") as page:
        strays = strays_px(page, truth(frames))
    worst = float(np.linalg.norm(strays, axis=1).max())
    print(f"three.js: {worst:.2e} px over {len(strays)} points")
    assert worst < LIMIT_PX


def test_lens_off_the_middle_is_put_right_by_what_the_node_says(
    tmp_path: Path, frames: list[MappedFrame], truth: Callable[..., list[Any]], browser: Any, three: Path
) -> None:
    write_glb(tmp_path / "map.glb", frames[::3], CloudSettings())
    with opened(browser, three, tmp_path / "map.glb") as page:
        strays = strays_px(page, truth(frames[::3]))
        about = page.evaluate("viewer.about()")[0]
    _, _, cx, cy = about["intrinsics"]
    off = np.array([cx - (about["width"] - 1) / 2, cy - (about["height"] - 1) / 2])
    assert (np.abs(off) > LIMIT_PX).all()
    assert np.linalg.norm(strays + off, axis=1).max() < LIMIT_PX


def test_view_through_a_loaded_camera_is_the_picture_it_took(
    tmp_path: Path, frames: list[MappedFrame], browser: Any, three: Path
) -> None:
    """Each pixel gave one point, which is drawn one pixel large: any turn, flip, shift or tint would show."""
    frame = frames[4]
    write_glb(tmp_path / "map.glb", [frame], ALL_PIXELS)
    height, width = frame.depth.shape
    with opened(browser, three, tmp_path / "map.glb") as page:
        page.evaluate("([width, height]) => viewer.look(0, width, height)", [width, height])
        drawn = shot_of(page)
    assert drawn.shape == frame.image.shape
    inner = np.s_[1:-1, 1:-1]  # the camera's own pyramid is drawn along the border
    off = np.abs(drawn - frame.image)[inner].max(axis=-1)
    print(f"{(off <= 1).mean():.2%} of the pixels are as they were, the median is off by {np.median(off)}")
    assert (off <= 1).mean() > 0.99
    shifted = np.abs(np.roll(drawn, 1, axis=1) - frame.image)[inner].max(axis=-1)
    assert (shifted <= 1).mean() < 0.9


def test_map_is_seen_from_outside(tmp_path: Path, cut_frames: list[MappedFrame], browser: Any, three: Path) -> None:
    write_glb(tmp_path / "map.glb", cut_frames, CloudSettings())
    with opened(browser, three, tmp_path / "map.glb") as page:
        page.evaluate("viewer.lookFromOutside(300, 240)")
        drawn = shot_of(page)
    assert drawn.shape == (240, 300, 3)
    assert (drawn < 250).any(axis=-1).mean() > 0.02
    assert len(np.unique(drawn.reshape(-1, 3), axis=0)) > 100
