"""Views of a house with their exact depth, in whatever unit."""

from functools import cache

import torch
from torch import Tensor

from longtake.places.key_view import KeyView
from longtake.spatial.pose import invert_rigid
from longtake.spatial.similarity import Similarity
from longtake.world.tour import Tour, View

HOUSE = 18


@cache
def filmed(seed: int, frame: int, size: tuple[int, int] = (98, 126)) -> View:
    height, width = size
    (view,) = Tour(seed=seed, width=width, height=height).views_at([frame])
    return view


def key_view(view: View, metres: float = 1.0) -> KeyView:
    """Its depth in units of so many metres."""
    return KeyView(
        frame_index=view.index,
        image=(view.image * 255).round().byte(),
        depth=view.depth / metres,
        depth_confidence=torch.ones_like(view.depth),
        intrinsics=view.intrinsics,
    )


def truth(old: View, new: View, old_metres: float = 1.0, new_metres: float = 1.0) -> Similarity:
    motion: Tensor = invert_rigid(new.world_from_camera) @ old.world_from_camera
    scale = torch.tensor(old_metres / new_metres, dtype=torch.float64)
    return Similarity(scale, motion[:3, :3], motion[:3, 3] / new_metres)
