"""Pictures of a scene with exact truth: colour, depth, normals and what each pixel shows."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longtake.world.ray_casting import Rays, first_hits, in_sight
from longtake.world.scene import Scene, Solids
from longtake.world.surface import colours, surfaces_at

TESTS_AT_ONCE = {"cpu": 1 << 18, "cuda": 1 << 29}
"""Tests of a ray against a solid computed in one go: what fits a processor's cache, or a few GB of a GPU."""
_LARGEST_INDEX = (1 << 31) - 1
"""Compiled kernels count tests with 32 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cameras:
    """Where pictures are taken from: some frames in each world of a scene."""

    world_from_camera: Float[Tensor, "houses frames 4 4"]
    intrinsics: Float[Tensor, "houses frames 3 3"]
    height: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """Rendered images with their truth."""

    image: Float[Tensor, "houses frames 3 height width"]
    """0 to 1."""
    depth: Float[Tensor, "houses frames height width"]
    """Along each camera's z axis, in metres; infinite where there is sky."""
    normal: Float[Tensor, "houses frames height width 3"]
    """Of length 1, in the world's axes, towards the camera."""
    thing: Int[Tensor, "houses frames height width"]
    """Which thing of the world, -1 for none."""


def render(scene: Scene, cameras: Cameras, *, fuse: bool = False, pad_rays: int = 0) -> Pictures:
    """Every frame of every world, some at a time.

    `fuse` compiles all steps of a ray into few kernels. On a GPU that is ten times as fast, after half a minute to
    compile for each new size, and worth it where many pictures are asked for; values differ by rounding alone. Pictures
    of several shapes share what is compiled where `pad_rays` fills up their rays to one number, that of the largest.
    """
    houses, frames = cameras.world_from_camera.shape[:2]
    house = torch.arange(houses, device=scene.ceiling.device).repeat_interleave(frames)
    world_from_camera, intrinsics = cameras.world_from_camera.flatten(0, 1), cameras.intrinsics.flatten(0, 1)
    num_rays, num_solids = max(pad_rays, cameras.height * cameras.width), scene.solids.center.shape[1]
    draw, tests_per_ray = (_fused_draw(), 8) if fuse else (_draw_in_pieces, num_solids)
    at_once = max(1, TESTS_AT_ONCE[house.device.type] // (num_rays * tests_per_ray))
    if fuse:
        at_once = max(1, min(at_once, len(house), _LARGEST_INDEX // (num_rays * num_solids)))
    parts = []
    for start in range(0, len(house), at_once):
        some = torch.arange(start, start + at_once if fuse else min(start + at_once, len(house)))
        # a last piece that is smaller repeats its last view, so that it needs no program of its own
        some = some.clamp_max(len(house) - 1).to(house.device)
        rays = camera_rays(world_from_camera[some], intrinsics[some], cameras.height, cameras.width)
        parts.append(draw(scene.pick(house[some]), _padded(rays, num_rays)))
    drawn = _joined(parts, dim=0, views=len(house), rays=cameras.height * cameras.width)
    shape = (houses, frames, cameras.height, cameras.width)
    return Pictures(
        image=drawn.colour.reshape(*shape, 3).movedim(-1, 2),
        depth=drawn.depth.reshape(shape),
        normal=drawn.normal.reshape(*shape, 3),
        thing=drawn.thing.reshape(shape),
    )


def view_depth(
    scene: Scene, world_from_camera: Float[Tensor, "4 4"], intrinsics: Float[Tensor, "3 3"], size: tuple[int, int]
) -> Float[Tensor, "height width"]:
    """Depth alone of one view of one world, infinite where there is sky."""
    rays = camera_rays(world_from_camera[None], intrinsics[None], *size)
    return first_hits(rays, replace(scene, solids=_only_in_sight(scene.solids, rays))).depth.view(size)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Colour, depth, normals and labels of some rays."""

    colour: Float[Tensor, "views rays 3"]
    depth: Float[Tensor, "views rays"]
    normal: Float[Tensor, "views rays 3"]
    thing: Int[Tensor, "views rays"]


def _draw(scene: Scene, rays: Rays) -> _Drawn:
    """The scene is given view by view."""
    hits = first_hits(rays, scene)
    surfaces = surfaces_at(rays, hits, scene)
    return _Drawn(colours(rays, hits, surfaces, scene), hits.depth, surfaces.normal, surfaces.thing)


@lru_cache
def _fused_draw() -> Callable[[Scene, Rays], _Drawn]:
    # Shapes are baked in: compiled for any shape, indices were 32 bits wide, too few for these many tests.
    return torch.compile(_draw, dynamic=False)


def _draw_in_pieces(scene: Scene, rays: Rays) -> _Drawn:
    """Without the solids that are out of sight, and as many rays at once as are best."""
    seen = replace(scene, solids=_only_in_sight(scene.solids, rays))
    at_once = max(1, TESTS_AT_ONCE[rays.origin.device.type] // (len(rays.origin) * seen.solids.center.shape[1]))
    parts = [
        _draw(seen, Rays(rays.origin, direction, rays.forward, rays.pixel))
        for direction in rays.direction.split(at_once, dim=1)
    ]
    return _joined(parts, dim=1, views=len(rays.origin), rays=rays.direction.shape[1])


def _joined(parts: list[_Drawn], *, dim: int, views: int, rays: int) -> _Drawn:
    """Views or rays of all parts, without what was filled up."""
    return _Drawn(
        torch.cat([drawn.colour for drawn in parts], dim=dim)[:views, :rays],
        torch.cat([drawn.depth for drawn in parts], dim=dim)[:views, :rays],
        torch.cat([drawn.normal for drawn in parts], dim=dim)[:views, :rays],
        torch.cat([drawn.thing for drawn in parts], dim=dim)[:views, :rays],
    )


def _padded(rays: Rays, num_rays: int) -> Rays:
    """As many rays a view; what is missing repeats the last."""
    missing = num_rays - rays.direction.shape[1]
    if missing == 0:
        return rays
    return replace(rays, direction=torch.cat([rays.direction, rays.direction[:, -1:].expand(-1, missing, -1)], dim=1))


def camera_rays(
    world_from_camera: Float[Tensor, "views 4 4"], intrinsics: Float[Tensor, "views 3 3"], height: int, width: int
) -> Rays:
    """A ray through the middle of each pixel, row by row; pixel (0, 0) has its middle at (0, 0)."""
    v = torch.arange(height, device=intrinsics.device, dtype=intrinsics.dtype)[:, None]
    u = torch.arange(width, device=intrinsics.device, dtype=intrinsics.dtype)
    x = (u - intrinsics[:, 0, 2, None, None]) / intrinsics[:, 0, 0, None, None]
    y = (v - intrinsics[:, 1, 2, None, None]) / intrinsics[:, 1, 1, None, None]
    x, y = torch.broadcast_tensors(x, y)
    direction = torch.stack([x, y, torch.ones_like(x)], dim=-1).flatten(1, 2)
    return Rays(
        origin=world_from_camera[:, :3, 3],
        direction=direction @ world_from_camera[:, :3, :3].transpose(-1, -2),
        forward=world_from_camera[:, :3, 2],
        pixel=1 / intrinsics[:, 0, 0],
    )


def _only_in_sight(solids: Solids, rays: Rays) -> Solids:
    """As many solids of each shape as the view with most has in sight, those in sight first."""
    cosine = torch.einsum("vri,vi->vr", rays.direction, rays.forward) / rays.direction.square().sum(dim=-1).sqrt()
    visible = in_sight(solids, rays, float(cosine.amin().clamp(-1, 1).acos()))
    ends = (0, solids.num_boxes, solids.num_boxes + solids.num_balls, solids.center.shape[1])
    picked, counts = [], []
    for start, stop in pairwise(ends):
        of_shape = visible[:, start:stop]
        counts.append(int(of_shape.sum(dim=1).amax()) if stop > start else 0)
        picked.append(of_shape.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, : counts[-1]] + start)
    return solids.gather(torch.cat(picked, dim=1), num_boxes=counts[0], num_balls=counts[1])
