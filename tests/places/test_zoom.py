"""The focal length of a picture by points that it shares with known places: a zoom is told, and how surely."""

import math

import pytest
import torch

from longtake.places.key_view import KeyView
from longtake.places.zoom import focal_ratio
from longtake.world.tour import Tour, View

SIZE = {"width": 126, "height": 98}


def views(*frames: int, seed: int = 18) -> list[View]:
    return Tour(seed=seed, **SIZE).views_at(list(frames))


def key_view(view: View, zoom: float = 1.0) -> KeyView:
    """As it is, or its middle made as large again: what is said of its intrinsics does not know of that."""
    image, depth = view.image, view.depth
    if zoom > 1:
        height, width = depth.shape
        y, x = (torch.linspace(-1, 1, side) / zoom for side in (height, width))
        grid = torch.stack(torch.meshgrid(y, x, indexing="ij")[::-1], dim=-1)[None]
        image = torch.nn.functional.grid_sample(image[None], grid, align_corners=True)[0]
        depth = torch.nn.functional.grid_sample(depth[None, None], grid, align_corners=True)[0, 0]
    return KeyView(
        frame_index=view.index,
        image=image,
        depth=depth,
        depth_confidence=torch.ones_like(depth),
        intrinsics=view.intrinsics.double(),
    )


@pytest.mark.parametrize("zoom", [1.0, 1.1, 1.25, 1.5])
def test_a_zoom_is_told_by_places_and_how_surely(zoom: float) -> None:
    *places, seen = views(60, 64, 68, 62)
    found = focal_ratio([key_view(place) for place in places], key_view(seen, zoom))
    assert found is not None
    assert found.deviation < 0.05
    assert abs(found.log - math.log(zoom)) < max(0.03, 3 * found.deviation)


def test_places_that_share_nothing_do_not_tell() -> None:
    (place,), (seen,) = views(60), views(5, seed=28)
    assert focal_ratio([key_view(place)], key_view(seen, 1.3)) is None
    assert focal_ratio([], key_view(seen)) is None


def test_a_depth_that_is_wrong_in_the_picture_is_no_zoom() -> None:
    """Only that of the place is asked."""
    place, seen = views(60, 62)
    right, wrong = key_view(seen), key_view(seen)
    rows = torch.linspace(0.8, 1.2, wrong.depth.shape[0], dtype=wrong.depth.dtype)[:, None]
    wrong = KeyView(**{name: getattr(wrong, name) for name in KeyView.__slots__} | {"depth": wrong.depth * rows})
    one, other = (focal_ratio([key_view(place)], view) for view in (right, wrong))
    assert one is not None
    assert other is not None
    assert other.log == pytest.approx(one.log, abs=0.03)
