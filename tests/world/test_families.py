"""Every family of worlds: drawn by its seed alone, true to its geometry, and filmed by cameras that see something."""

import math
import subprocess
import sys
from functools import cache
from itertools import islice

import numpy as np
import pytest
import torch
from selected import rest_in_extra

from longtake.errors import SettingError
from longtake.spatial.pinhole import unproject
from longtake.spatial.pose import invert_rigid
from longtake.world.content import World
from longtake.world.distance import distance_to
from longtake.world.families import (
    ANY_SIZE,
    HELD_OUT,
    Family,
    build_world,
    families_named,
    family_named,
    field_of_view_rad,
    route,
)
from longtake.world.furniture import Shape, Solid
from longtake.world.ray_casting import NEAREST
from longtake.world.render import Cameras, Pictures, render
from longtake.world.scene import Scene, SceneSize
from longtake.world.tour import Tour
from longtake.world.tracks import Motion
from longtake.world.walk import Footstep

NEW = [family for family in Family if family is not Family.HOUSE]
SEEDS = range(4)
FRAMES = 120
HEIGHT, WIDTH = 30, 40

built = cache(build_world)


@cache
def steps_of(family: Family, seed: int) -> list[Footstep]:
    return list(islice(route(family, built(family, seed)), FRAMES))


def poses_of(family: Family, seed: int) -> np.ndarray:
    return np.stack([step.world_from_camera for step in steps_of(family, seed)])


def cameras_at(family: Family, seed: int, frames: list[int], size: tuple[int, int] = (HEIGHT, WIDTH)) -> Cameras:
    height, width = size
    intrinsics = Tour(seed=seed, width=width, height=height, family=family).intrinsics()
    return Cameras(
        world_from_camera=torch.from_numpy(poses_of(family, seed)[frames]).float()[None],
        intrinsics=intrinsics.expand(1, len(frames), 3, 3),
        height=height,
        width=width,
    )


def pictures_at(family: Family, seed: int, frames: list[int], size: tuple[int, int] = (HEIGHT, WIDTH)) -> Pictures:
    return render(Scene.of([built(family, seed)]), cameras_at(family, seed, frames, size))


def every_seed(seeds: range = SEEDS) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("family", "seed"), [(family, seed) for family in NEW for seed in seeds])


def test_table_is_kept_for_tests() -> None:
    assert HELD_OUT is Family.TABLE


def test_several_families_are_named_once_each_and_the_one_held_out_comes_first() -> None:
    assert families_named(["house", "table", "house"]) == (Family.TABLE, Family.HOUSE)
    everything = families_named(["all"])
    assert (everything[0], set(everything), len(everything)) == (HELD_OUT, set(Family), len(Family))
    with pytest.raises(SettingError, match="no family of worlds 'attic'"):
        families_named(["attic"])


@pytest.mark.parametrize("family", NEW)
def test_a_seed_gives_one_world_and_one_way(family: Family) -> None:
    world, again, other = (build_world(family, seed) for seed in (3, 3, 4))
    assert world.parts == again.parts
    assert world.surroundings == again.surroundings
    assert world.parts != other.parts
    one, two = (list(islice(route(family, one), 12)) for one in (world, again))
    assert all(np.array_equal(a.world_from_camera, b.world_from_camera) for a, b in zip(one, two, strict=True))


def test_families_of_one_seed_share_nothing() -> None:
    assert len({built(family, 5).parts[0] for family in Family}) == len(Family)
    assert len({field_of_view_rad(family, 5) for family in Family}) == len(Family)


@pytest.mark.parametrize("family", NEW)
def test_a_negative_seed_is_refused(family: Family) -> None:
    with pytest.raises(SettingError, match="from 0, but got -1"):
        build_world(family, -1)


def test_a_family_is_found_by_its_name_or_all_are_named() -> None:
    assert family_named("outdoors") is Family.OUTDOORS
    with pytest.raises(SettingError, match="no family of worlds 'moon'; choose house, rooms, clutter, outdoors"):
        family_named("moon")


@every_seed(range(8))
def test_every_world_fits_one_size_of_scene(family: Family, seed: int) -> None:
    assert SceneSize.of(built(family, seed)) | ANY_SIZE == ANY_SIZE


def test_clutter_has_from_dozens_to_hundreds_of_solids_of_every_shape() -> None:
    counts = [len(built(Family.CLUTTER, seed).parts) for seed in range(8)]
    assert min(counts) > 50
    assert max(counts) > 150
    solids = [part.solid for part in built(Family.CLUTTER, 0).parts]
    assert {solid.shape for solid in solids} == set(Shape)
    assert np.mean([solid.pitch_rad != 0 for solid in solids]) > 0.1


@every_seed()
def test_a_camera_never_comes_close_to_a_solid(family: Family, seed: int) -> None:
    world = built(family, seed)
    solids, eyes = [part.solid for part in world.parts], poses_of(family, seed)[:, :3, 3]
    clearance = 0.12 if world.track is None else world.track.clearance
    assert distance_to(eyes, solids).min() >= 0.85 * clearance
    assert eyes[:, 1].max() < 0 or math.isinf(world.surroundings.ground)
    assert eyes[:, 1].min() > -world.height


@every_seed()
def test_poses_are_rigid_and_a_picture_is_never_mostly_sky(family: Family, seed: int) -> None:
    poses = poses_of(family, seed)
    assert np.allclose(poses[:, :3, :3] @ poses[:, :3, :3].transpose(0, 2, 1), np.eye(3))
    for size in ((32, 18), (18, 42)):
        pictures = pictures_at(family, seed, list(range(0, FRAMES, 12)), size)
        sky = pictures.depth.isinf().float().mean(dim=(2, 3))
        assert sky.max() <= 0.7
        assert pictures.depth.min() > NEAREST
        assert pictures.image.isfinite().all()
        assert (pictures.image.flatten(2).std(dim=-1) > 0.01).float().mean() > 0.9


@every_seed()
def test_neighbouring_frames_overlap(family: Family, seed: int) -> None:
    frames = sorted({0, 1, 40, 41, 80, 81})
    cameras, pictures = cameras_at(family, seed, frames), pictures_at(family, seed, frames)
    flows, inside = [], []
    for one in (0, 2, 4):
        u, v, depth = landed(cameras, pictures.depth.clamp_max(1e4), one, one + 1)
        rows, columns = torch.meshgrid(torch.arange(HEIGHT), torch.arange(WIDTH), indexing="ij")
        flows.append(float(torch.hypot(u - columns.flatten(), v - rows.flatten()).median()) / WIDTH)
        inside.append(float(((depth > 0) & (u > -0.5) & (v > -0.5) & (u < WIDTH) & (v < HEIGHT)).double().mean()))
    assert max(flows) < 0.15
    assert min(inside) > 0.7
    if (track := built(family, seed).track) is None or track.motion is not Motion.STILL:
        assert 0.002 < np.median(flows) < 0.1


def landed(cameras: Cameras, depth: torch.Tensor, i: int, j: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Where the points of frame i lie in frame j: columns, rows and depth, in float64."""
    points = unproject(
        depth[0, i].double(), cameras.intrinsics[0, i].double(), cameras.world_from_camera[0, i].double()
    )
    other = invert_rigid(cameras.world_from_camera[0, j].double())
    seen = (points @ other[:3, :3].T + other[:3, 3]).flatten(0, 1)
    pixels = seen @ cameras.intrinsics[0, j].double().T
    return pixels[:, 0] / seen[:, 2], pixels[:, 1] / seen[:, 2], seen[:, 2]


def test_fields_of_view_go_from_narrow_to_wide() -> None:
    degrees = np.degrees([field_of_view_rad(family, seed) for family in NEW for seed in range(40)])
    assert degrees.min() >= 35
    assert degrees.max() <= 100
    assert np.quantile(degrees, 0.1) < 45
    assert np.quantile(degrees, 0.9) > 90
    wide = Tour(seed=1, width=84, height=36, family=Family.OUTDOORS).intrinsics()
    tall = Tour(seed=1, width=36, height=84, family=Family.OUTDOORS).intrinsics()
    assert wide[0, 0] == tall[1, 1]


def test_every_motion_is_met() -> None:
    worlds = [built(family, seed) for family in NEW for seed in range(8)]
    assert {world.track.motion for world in worlds if world.track is not None} == set(Motion)
    assert any(world.track is None for world in worlds)


def test_many_ways_come_back_to_where_they_were() -> None:
    returns = []
    for family in NEW:
        for seed in range(2):
            eyes = np.stack([s.world_from_camera[:3, 3] for s in islice(route(family, built(family, seed)), 400)])
            stride = np.linalg.norm(np.diff(eyes, axis=0), axis=1).mean()
            apart = np.linalg.norm(eyes[200:, None] - eyes[None, :100], axis=2)
            returns.append(apart.min() < 2 * stride + 1e-3)
    assert np.mean(returns) >= 0.6


@pytest.mark.parametrize(("family", "seed"), [(family, 1) for family in NEW])
def test_points_of_one_frame_are_met_again_from_another_in_place_depth_and_colour(family: Family, seed: int) -> None:
    """A ray from frame j through the very place a point of frame i lands meets that point, where it is visible."""
    scene, cameras = Scene.of([built(family, seed)]), cameras_at(family, seed, [60, 62])
    pictures = render(scene, cameras)
    is_sky = pictures.depth[0, 0].isinf().flatten()
    u, v, depth = landed(cameras, pictures.depth.clamp_max(1e4), 0, 1)
    inside = ~is_sky & (depth > 0.05) & (u >= 0) & (v >= 0) & (u <= WIDTH - 1) & (v <= HEIGHT - 1)
    picked = inside.nonzero()[:, 0][::5]
    # cameras of one pixel whose middles are exactly those places
    shifted = cameras.intrinsics[:, 1:].double().repeat(1, len(picked), 1, 1)
    shifted[0, :, 0, 2] -= u[picked]
    shifted[0, :, 1, 2] -= v[picked]
    poses = cameras.world_from_camera[:, 1:].expand(-1, len(picked), -1, -1)
    spots = render(scene, Cameras(world_from_camera=poses, intrinsics=shifted.float(), height=1, width=1))
    differences = spots.depth.flatten().double() - depth[picked]
    seen = differences > -2e-3 * depth[picked]
    same = differences.abs() < 2e-3 * depth[picked]
    assert seen.double().mean() > 0.7
    assert same[seen].double().mean() > 0.97
    colour = (spots.image[0, :, :, 0, 0] - pictures.image[0, 0].flatten(1).T[picked]).abs().amax(dim=1)
    # detail finer than a pixel fades with distance, so colours agree but for that
    assert colour[same].median() < 0.02
    assert colour[same].quantile(0.9) < 0.12


@pytest.mark.parametrize(("family", "seed"), [(family, 2) for family in NEW])
def test_normals_are_those_of_neighbouring_points(family: Family, seed: int) -> None:
    cameras = cameras_at(family, seed, [30])
    grid = [(u, v) for v in range(3, HEIGHT, 6) for u in range(3, WIDTH, 6)]
    # pixels a hundredth as wide: neighbours lie on one surface, as a rule, and nearly flat
    zoomed = cameras.intrinsics.double().repeat(1, len(grid), 1, 1)
    zoomed[..., :2, :2] *= 100
    for place, (u, v) in enumerate(grid):
        zoomed[0, place, 0, 2] = 1 - (u - WIDTH / 2) * 100
        zoomed[0, place, 1, 2] = 1 - (v - HEIGHT / 2) * 100
    poses = cameras.world_from_camera.expand(-1, len(grid), -1, -1)
    patches = Cameras(world_from_camera=poses, intrinsics=zoomed.float(), height=3, width=3)
    picture = render(Scene.of([built(family, seed)]), patches)
    points = unproject(picture.depth[0].double(), zoomed[0], poses[0].double())
    across = torch.linalg.cross(points[:, 2, 1] - points[:, 0, 1], points[:, 1, 2] - points[:, 1, 0])
    normal, finite = picture.normal[0, :, 1, 1].double(), picture.depth[0].isfinite().all(dim=(1, 2))
    agreement = (normal * across / across.norm(dim=-1, keepdim=True)).sum(dim=-1)[finite]
    assert torch.allclose(normal.norm(dim=-1), torch.ones((), dtype=torch.float64))
    assert agreement.median() > 0.999
    assert (agreement > 0.98).double().mean() > 0.9
    toward = points - poses[0, :, None, None, :3, 3]
    assert ((picture.normal[0] * toward).sum(dim=-1)[picture.depth[0].isfinite()] < 1e-3).all()


def test_sky_has_no_depth_faces_the_camera_and_has_the_colour_of_its_direction_alone() -> None:
    pictures = pictures_at(Family.OUTDOORS, 0, [0, 60])
    is_sky = pictures.depth.isinf()
    assert is_sky.any()
    assert (pictures.thing[is_sky] == -1).all()
    cameras = cameras_at(Family.OUTDOORS, 0, [0, 60])
    far = unproject(torch.ones_like(pictures.depth), cameras.intrinsics, cameras.world_from_camera)
    toward = far - cameras.world_from_camera[:, :, None, None, :3, 3]
    cosine = (pictures.normal * toward).sum(dim=-1) / toward.norm(dim=-1)
    assert torch.allclose(cosine[is_sky], -torch.ones(()), atol=1e-5)


def slow_hit(solid: Solid, origin: np.ndarray, direction: np.ndarray) -> float:
    """Where a ray enters a solid, by a march in float64."""
    away, radius = np.array(solid.center) - origin, float(np.linalg.norm(solid.half))
    speed = float(np.linalg.norm(direction))
    middle = float(away @ direction) / speed**2
    if np.linalg.norm(away - middle * direction) > radius:
        return math.inf
    low, high = max(middle - radius / speed, NEAREST), middle + radius / speed
    for _ in range(4):
        steps = np.linspace(low, high, 400)
        own = (origin + direction * steps[:, None] - np.array(solid.center)) @ solid.world_from_own
        found = is_inside(solid, own)
        if not found.any() or found[0]:
            return math.inf
        first = int(found.argmax())
        low, high = steps[first - 1], steps[first]
    return float(high)


def is_inside(solid: Solid, own: np.ndarray) -> np.ndarray:
    a, b, c = solid.half
    x, y, z = own.T
    match solid.shape:
        case Shape.BOX:
            return (abs(x) <= a) & (abs(y) <= b) & (abs(z) <= c)
        case Shape.BALL:
            return (x / a) ** 2 + (y / b) ** 2 + (z / c) ** 2 <= 1
        case Shape.TAPER:
            radius = c + (a - c) * (y + b) / (2 * b)
            return (abs(y) <= b) & (x * x + z * z <= radius * radius)


@pytest.mark.parametrize(
    ("family", "seed"), rest_in_extra([(Family.CLUTTER, 3), *((family, 5) for family in NEW)], keep=2)
)
def test_depth_equals_that_of_a_slow_march_through_every_solid(family: Family, seed: int) -> None:
    world = built(family, seed)
    cameras, pictures = cameras_at(family, seed, [10, 100]), pictures_at(family, seed, [10, 100])
    rng = np.random.default_rng(seed)
    close = []
    for frame, row, column in rng.integers([2, HEIGHT, WIDTH], size=(40, 3)).tolist():
        pose, k = cameras.world_from_camera[0, frame].double().numpy(), cameras.intrinsics[0, frame].double().numpy()
        direction = pose[:3, :3] @ np.array([(column - k[0, 2]) / k[0, 0], (row - k[1, 2]) / k[1, 1], 1.0])
        flat = ((world.surroundings.ground if direction[1] > 0 else -world.height) - pose[1, 3]) / direction[1]
        expected = min([flat, *(slow_hit(part.solid, pose[:3, 3], direction) for part in world.parts)])
        expected = math.inf if expected > world.surroundings.reach else expected
        found = float(pictures.depth[0, frame, row, column])
        close.append(found == expected or abs(found - expected) < 1e-4 * (1 + expected))
    # a march of fixed steps may miss a grazed edge by itself
    assert np.mean(close) >= 0.97


def test_distance_to_a_solid_is_never_more_than_is_true() -> None:
    rng = np.random.default_rng(0)
    for part in built(Family.CLUTTER, 3).parts[:60]:
        solid = part.solid
        inside = rng.uniform(-1, 1, size=(400, 3)) * [solid.half[0], solid.half[1], max(solid.half[0], solid.half[2])]
        inside = inside[is_inside(solid, inside)] @ solid.world_from_own.T + np.array(solid.center)
        points = rng.normal(size=(20, 3)) * 2 * max(solid.half) + np.array(solid.center)
        near = np.linalg.norm(points[:, None] - inside[None], axis=2).min(axis=1)
        assert (distance_to(points, [solid]) <= near + 1e-9).all()
        assert (distance_to(inside, [solid]) <= 1e-9).all()


def mixed_scene() -> tuple[list[World], Cameras]:
    worlds = [built(family, 1) for family in Family]
    cameras = [cameras_at(family, 1, [0, 50]) for family in Family]
    return worlds, Cameras(
        world_from_camera=torch.cat([one.world_from_camera for one in cameras]),
        intrinsics=torch.cat([one.intrinsics for one in cameras]),
        height=HEIGHT,
        width=WIDTH,
    )


def test_families_rendered_together_look_as_they_do_alone() -> None:
    worlds, cameras = mixed_scene()
    together = render(Scene.of(worlds, size=ANY_SIZE), cameras)
    for index, family in enumerate(Family):
        alone = pictures_at(family, 1, [0, 50])
        # a house alone is computed in another order, and rounding decides what a ray along an edge meets
        assert ((together.image[index] - alone.image[0]).abs() < 1e-3).float().mean() > 0.99
        nearly = torch.isclose(together.depth[index], alone.depth[0], rtol=1e-4)
        assert nearly.float().mean() > 0.995


def test_padded_rays_change_nothing() -> None:
    scene, cameras = Scene.of([built(Family.CLUTTER, 1)]), cameras_at(Family.CLUTTER, 1, [0, 50])
    plain, padded = render(scene, cameras), render(scene, cameras, pad_rays=1300)
    assert torch.equal(plain.depth, padded.depth)
    assert torch.equal(plain.image, padded.image)


# In a process of its own: torch's compiler cannot look through the checks of types that tests add to functions.
ONE_PROGRAM = """
from itertools import islice
import numpy as np, torch
from longtake.world import render as rendering
from longtake.world.families import ANY_SIZE, Family, build_world, route
from longtake.world.scene import Scene
from longtake.world.tour import Tour

programs = []
def count(graph, inputs):
    programs.append(graph)
    return graph

compiled = torch.compile(rendering._draw, dynamic=False, fullgraph=True, backend=count)
rendering._fused_draw = lambda: compiled
worlds = [build_world(family, 1) for family in Family]
poses = [[s.world_from_camera for s in islice(route(f, w), 1)] for f, w in zip(Family, worlds)]
scene = Scene.of(worlds, size=ANY_SIZE)
for height, width in ((14, 18), (18, 14), (12, 20), (20, 12), (10, 24), (16, 16)):
    lenses = [Tour(seed=1, width=width, height=height, family=family).intrinsics() for family in Family]
    cameras = rendering.Cameras(
        world_from_camera=torch.from_numpy(np.array(poses)).float(),
        intrinsics=torch.stack(lenses)[:, None],
        height=height,
        width=width,
    )
    fused = rendering.render(scene, cameras, fuse=True, pad_rays=256)
    assert fused.depth.shape == (len(worlds), 1, height, width)
    assert torch.isclose(fused.depth, rendering.render(scene, cameras).depth, rtol=1e-4).float().mean() > 0.99
print(len(programs))
"""


@pytest.mark.extra
def test_one_compiled_program_draws_all_families_in_pictures_of_every_shape() -> None:
    done = subprocess.run([sys.executable, "-c", ONE_PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1"]


@pytest.mark.parametrize("family", Family)
def test_another_walk_goes_another_way_through_the_same_world(family: Family) -> None:
    tours = [Tour(seed=9, width=28, height=28, family=family, walk=number) for number in (0, 1, 1)]
    usual, other, again = (tour.cameras(6) for tour in tours)
    assert torch.equal(other, again)
    assert not torch.equal(usual, other)
    assert torch.equal(usual, Tour(seed=9, width=28, height=28, family=family).cameras(6))
    with pytest.raises(SettingError, match="number of a walk"):
        Tour(seed=9, width=28, height=28, walk=-1)


def test_objects_are_before_nothing_and_never_out_of_sight() -> None:
    pictures = [pictures_at(Family.OBJECTS, seed, [0, 20, 40, 60]) for seed in range(6)]
    sky = torch.stack([picture.depth.isinf().float().mean(dim=(2, 3)).flatten() for picture in pictures])
    assert sky.max() < 0.97
    assert sky.mean() > 0.2
