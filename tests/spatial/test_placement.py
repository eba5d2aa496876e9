"""Cameras and depth find their way between the source's pixels and the network's, to a small part of a pixel."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from longtake.spatial.pinhole import unproject
from longtake.spatial.placement import Placement
from longtake.video.resize import Fit, Preprocessor, match_sizes, resize_image

SHAPES = [(640, 480), (480, 640), (1242, 375), (101, 77), (77, 101), (40, 90), (320, 240)]


def dot(width: int, height: int, x: float, y: float, sigma: float) -> Image.Image:
    """A bright spot whose middle is at (x, y), the first pixel's centre being (0, 0)."""
    v, u = np.mgrid[:height, :width]
    light = np.exp(-((u - x) ** 2 + (v - y) ** 2) / (2 * sigma**2))
    return Image.fromarray(np.repeat((250 * light).round().astype(np.uint8)[..., None], 3, axis=-1))


def middle(pixels: np.ndarray) -> tuple[float, float]:
    v, u = np.mgrid[: pixels.shape[0], : pixels.shape[1]]
    return float((u * pixels).sum() / pixels.sum()), float((v * pixels).sum() / pixels.sum())


def intrinsics(focal_x: float, focal_y: float, center_x: float, center_y: float) -> torch.Tensor:
    rows = [[focal_x, 0.0, center_x], [0.0, focal_y, center_y], [0.0, 0.0, 1.0]]
    return torch.tensor(rows, dtype=torch.float64)


def project(camera: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
    homogeneous = points @ camera.T
    return homogeneous[:, :2] / homogeneous[:, 2:]


@pytest.mark.parametrize("fit", Fit)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("across", "down"), [(0.5, 0.5), (0.37, 0.61), (0.7, 0.42)])
def test_spot_is_resampled_to_where_the_camera_says(
    fit: Fit, shape: tuple[int, int], across: float, down: float
) -> None:
    width, height = shape
    x, y, sigma = across * width + 0.3, down * height - 0.2, min(shape) / 16
    resized = resize_image(dot(width, height, x, y, sigma), fit, size=224)
    # Whatever is white around the picture is no light.
    light = resized.pixels[0].double().numpy() * (resized.pixels[0].numpy() < 252)
    camera = resized.placement.intrinsics_to_model(intrinsics(1.0, 1.0, x, y))
    found = middle(light)
    assert found == pytest.approx((float(camera[0, 2]), float(camera[1, 2])), abs=0.05)


@pytest.mark.parametrize("fit", [Fit.CROP, Fit.PAD])
@pytest.mark.parametrize("shape", [(640, 360), (640, 480), (480, 640), (360, 640), (1024, 436), (500, 500), (400, 300)])
@pytest.mark.parametrize(("across", "down"), [(0.5, 0.5), (0.37, 0.61)])
def test_spot_is_where_the_camera_says_in_whichever_trained_size_is_taken(
    fit: Fit, shape: tuple[int, int], across: float, down: float
) -> None:
    width, height = shape
    x, y, sigma = across * width + 0.3, down * height - 0.2, min(shape) / 16
    prepare = Preprocessor(fit=fit, size=126, sizes=((98, 126), (84, 154), (126, 98), (154, 84), (70, 168)))
    resized = prepare(np.asarray(dot(width, height, x, y, sigma)))
    camera = resized.placement.intrinsics_to_model(intrinsics(1.0, 1.0, x, y))
    v, u = np.mgrid[: resized.pixels.shape[1], : resized.pixels.shape[2]]
    # where the picture ends, what fills it up is mixed in
    is_near = np.hypot(u - float(camera[0, 2]), v - float(camera[1, 2])) < 5 * sigma * resized.placement.scale_x
    light = resized.pixels[0].double().numpy() * (resized.pixels[0].numpy() < 252) * is_near
    assert middle(light) == pytest.approx((float(camera[0, 2]), float(camera[1, 2])), abs=0.05)


def test_spot_in_a_batch_of_mixed_sizes_is_where_the_camera_says() -> None:
    wide, tall = dot(128, 96, 60.3, 40.8, 5.0), Image.new("RGB", (60, 120))
    picture = match_sizes([resize_image(wide, size=112), resize_image(tall, size=112)])[0]
    assert picture.pixels.shape == (3, 112, 112)
    light = picture.pixels[0].double().numpy() * (picture.pixels[0].numpy() < 252)
    camera = picture.placement.intrinsics_to_model(intrinsics(1.0, 1.0, 60.3, 40.8))
    assert middle(light) == pytest.approx((float(camera[0, 2]), float(camera[1, 2])), abs=0.05)


@given(
    width=st.integers(1, 4000),
    height=st.integers(1, 4000),
    scale_x=st.floats(0.05, 4),
    scale_y=st.floats(0.05, 4),
    offset_x=st.floats(-300, 300),
    offset_y=st.floats(-300, 300),
)
@settings(deadline=None, max_examples=60)
def test_points_project_to_the_same_place_through_both_cameras(
    width: int, height: int, scale_x: float, scale_y: float, offset_x: float, offset_y: float
) -> None:
    placement = Placement(width, height, scale_x, scale_y, offset_x, offset_y)
    points = torch.tensor([[0.3, -0.2, 1.0], [-2.0, 1.0, 5.0], [0.0, 0.0, 0.5]], dtype=torch.float64)
    source = intrinsics(500.0, 480.0, 321.5, 240.25)
    source[0, 1] = 2.5
    model = placement.intrinsics_to_model(source)
    in_source, in_model = project(source, points), project(model, points)
    expected_x = (in_source[:, 0] + 0.5) * scale_x + offset_x - 0.5
    expected_y = (in_source[:, 1] + 0.5) * scale_y + offset_y - 0.5
    torch.testing.assert_close(in_model, torch.stack([expected_x, expected_y], dim=1))
    torch.testing.assert_close(placement.intrinsics_to_source(model), source, rtol=1e-9, atol=1e-6)


def test_many_cameras_are_mapped_at_once_in_their_own_precision() -> None:
    placement = Placement(640, 480, 0.5, 0.4, 3.0, -7.0)
    cameras = torch.stack([intrinsics(400.0 + k, 410.0, 320.0, 240.0) for k in range(3)])
    for to in (placement.intrinsics_to_model, placement.intrinsics_to_source):
        torch.testing.assert_close(to(cameras), torch.stack([to(camera) for camera in cameras]))
        assert to(cameras.float()).dtype == torch.float32
        torch.testing.assert_close(to(cameras.float()).double(), to(cameras), rtol=1e-5, atol=1e-4)


def test_unchanged_picture_keeps_camera_and_depth() -> None:
    placement = Placement(5, 4, 1.0, 1.0)
    camera = intrinsics(5.0, 5.0, 2.5, 2.0)
    depth = np.arange(20, dtype=np.float32).reshape(4, 5)
    assert torch.equal(placement.intrinsics_to_source(camera), camera)
    assert torch.equal(placement.intrinsics_to_model(camera), camera)
    np.testing.assert_array_equal(placement.depth_to_source(depth), depth)


def slow_depth(placement: Placement, depth: np.ndarray) -> np.ndarray:
    """Pixel by pixel, the network's pixel whose square holds the centre of the source's."""
    mapped = np.zeros((placement.source_height, placement.source_width), depth.dtype)
    for row in range(placement.source_height):
        for column in range(placement.source_width):
            x = (column + 0.5) * placement.scale_x + placement.offset_x
            y = (row + 0.5) * placement.scale_y + placement.offset_y
            if 0 <= x < depth.shape[1] and 0 <= y < depth.shape[0]:
                mapped[row, column] = depth[int(y), int(x)]
    return mapped


@pytest.mark.parametrize("fit", Fit)
@pytest.mark.parametrize("shape", SHAPES[3:])
def test_depth_comes_back_as_the_slow_rule_says(fit: Fit, shape: tuple[int, int]) -> None:
    placement = resize_image(Image.new("RGB", shape), fit, size=56).placement
    height, width = resize_image(Image.new("RGB", shape), fit, size=56).pixels.shape[1:]
    depth = 1 + np.random.default_rng(3).random((height, width)).astype(np.float32)
    mapped = placement.depth_to_source(depth)
    assert mapped.shape == shape[::-1]
    assert mapped.dtype == np.float32
    np.testing.assert_array_equal(mapped, slow_depth(placement, depth))


def test_rows_that_were_cut_off_are_unknown_and_all_others_known() -> None:
    resized = resize_image(Image.new("RGB", (40, 90)), Fit.CROP, size=56)
    mapped = resized.placement.depth_to_source(np.ones((56, 56)))
    assert set(np.unique(mapped[:25])) == {0.0}
    assert set(np.unique(mapped[65:])) == {0.0}
    assert mapped[25:65].all()
    for fit in (Fit.PAD, Fit.SQUARE):
        assert resize_image(Image.new("RGB", (40, 90)), fit, size=56).placement.depth_to_source(np.ones((56, 56))).all()


@pytest.mark.parametrize("fit", [Fit.CROP, Fit.PAD, Fit.SQUARE])
def test_points_of_a_plane_are_the_same_from_both_sides(fit: Fit) -> None:
    resized = resize_image(Image.new("RGB", (96, 64)), fit, size=112)
    height, width = resized.pixels.shape[1:]
    model = intrinsics(90.0, 90.0, width / 2, height / 2)
    source = resized.placement.intrinsics_to_source(model)
    # A plane that leans: depth is a function of where a ray goes.
    normal = torch.tensor([0.3, -0.2, 1.0], dtype=torch.float64)

    def plane_depth(camera: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
        rays = unproject(torch.ones(rows, columns, dtype=torch.float64), camera, torch.eye(4, dtype=torch.float64))
        return 2.0 / (rays @ normal)

    exact = plane_depth(source, 64, 96)
    mapped = torch.from_numpy(resized.placement.depth_to_source(plane_depth(model, height, width).numpy()))
    # Nearest pixels are off by half of one at most, and without a drift to any side.
    slope = float((exact[:, 1:] - exact[:, :-1]).abs().max() + (exact[1:] - exact[:-1]).abs().max())
    assert float((mapped - exact).abs().max()) <= slope / 2 * 1.3
    assert abs(float((mapped - exact).mean())) <= slope / 50


@pytest.mark.parametrize(
    ("placement", "share"),
    [
        (Placement(56, 42, 1.0, 1.0), 1.0),
        (Placement(270, 480, 126 / 270, 224 / 480, offset_y=-49.0), 126 / 224),
        (Placement(100, 50, 0.5, 0.5, offset_x=3.0, offset_y=8.5), 1.0),
    ],
)
def test_how_much_of_a_picture_is_seen(placement: Placement, share: float) -> None:
    assert placement.seen_share((126, 126) if placement.source_width == 270 else (42, 56)) == pytest.approx(share)
