"""The renderer against a slow second one, against itself from other places, and against finite differences."""

import itertools
import math

import numpy as np
import pytest
import torch
from selected import rest_in_extra
from torch import Tensor

from longtake.spatial.pinhole import unproject
from longtake.spatial.pose import invert_rigid
from longtake.world.furniture import Shape, Solid
from longtake.world.house import House, build_house
from longtake.world.ray_casting import NEAREST
from longtake.world.render import Cameras, Pictures, render
from longtake.world.scene import Scene
from longtake.world.tour import Tour, View, visible
from longtake.world.walk import walk

HEIGHT, WIDTH = 60, 80
SEEDS = (0, 3, 4, 7, 11)


def cameras_of(house: House, seed: int, frames: list[int]) -> Cameras:
    steps = list(itertools.islice(walk(house, seed), max(frames) + 1))
    poses = torch.from_numpy(np.stack([steps[i].world_from_camera for i in frames])).float()
    focal = WIDTH / 2 / math.tan(math.radians(75) / 2)
    intrinsics = torch.tensor([[focal, 0.0, WIDTH / 2], [0.0, focal, HEIGHT / 2], [0.0, 0.0, 1.0]])
    return Cameras(
        world_from_camera=poses[None], intrinsics=intrinsics.expand(1, len(frames), 3, 3), height=HEIGHT, width=WIDTH
    )


def slow_hit(solid: Solid, origin: np.ndarray, direction: np.ndarray) -> float:
    """Where a ray enters a solid, by bisection between points outside and inside, in float64."""

    def inside(t: np.ndarray) -> np.ndarray:
        x, y, z = (origin[:, None] + direction[:, None] * t) - np.array(solid.center)[:, None]
        cos, sin = math.cos(solid.turn_rad), math.sin(solid.turn_rad)
        x, z = cos * x - sin * z, sin * x + cos * z
        a, b, c = solid.half
        match solid.shape:
            case Shape.BOX:
                return (abs(x) <= a) & (abs(y) <= b) & (abs(z) <= c)
            case Shape.BALL:
                return x * x + y * y + z * z <= a * a
            case Shape.TAPER:
                radius = c + (a - c) * (y + b) / (2 * b)
                return (abs(y) <= b) & (x * x + z * z <= radius * radius)

    # march through the ball around the solid only, so that steps are fine
    away = np.array(solid.center) - origin
    radius = float(np.linalg.norm(solid.half))
    speed = float(np.linalg.norm(direction))
    middle = float(away @ direction) / speed**2
    if np.linalg.norm(away - middle * direction) > radius:
        return math.inf
    steps = np.linspace(max(middle - radius / speed, NEAREST), middle + radius / speed, 4001)
    found = inside(steps)
    if not found.any():
        return math.inf
    first = int(found.argmax())
    if first == 0:
        return math.inf
    low, high = steps[first - 1], steps[first]
    for _ in range(50):
        half = (low + high) / 2
        low, high = (low, half) if inside(np.array([half]))[0] else (half, high)
    return float(high)


@pytest.mark.parametrize("seed", SEEDS)
def test_depth_equals_that_of_a_slow_march_through_every_solid(seed: int) -> None:
    house = build_house(seed)
    cameras = cameras_of(house, seed, [0, 150])
    pictures = render(Scene.of([house]), cameras)
    rng = np.random.default_rng(seed)
    close = []
    for frame, row, column in zip(
        rng.integers(2, size=60), rng.integers(HEIGHT, size=60), rng.integers(WIDTH, size=60), strict=True
    ):
        pose = cameras.world_from_camera[0, frame].double().numpy()
        k = cameras.intrinsics[0, frame].double().numpy()
        direction = pose[:3, :3] @ np.array([(column - k[0, 2]) / k[0, 0], (row - k[1, 2]) / k[1, 1], 1.0])
        flat = (0.0 if direction[1] > 0 else -house.height) - pose[1, 3]
        expected = min([flat / direction[1], *(slow_hit(part.solid, pose[:3, 3], direction) for part in house.parts)])
        close.append(abs(float(pictures.depth[0, frame, row, column]) - expected) < 2e-5 * (1 + expected))
    # a march of fixed steps may miss a grazed edge by itself
    assert np.mean(close) >= 0.98


@pytest.mark.parametrize("seed", SEEDS)
def test_leaving_out_what_is_out_of_sight_changes_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    house = build_house(seed)
    cameras, scene = cameras_of(house, seed, [0, 90, 200]), Scene.of([house])
    fast = render(scene, cameras)
    monkeypatch.setattr("longtake.world.render._only_in_sight", lambda solids, rays: solids)
    slow = render(scene, cameras)
    assert torch.equal(fast.depth, slow.depth)
    assert torch.equal(fast.thing, slow.thing)
    assert torch.equal(fast.image, slow.image)


def land(source: Cameras, pictures: Pictures, i: int, j: int) -> tuple[Tensor, Tensor, Tensor]:
    """Where the points of frame i lie in frame j: columns, rows and depth, in float64."""
    points = unproject(
        pictures.depth[0, i].double(), source.intrinsics[0, i].double(), source.world_from_camera[0, i].double()
    )
    other = invert_rigid(source.world_from_camera[0, j].double())
    seen = (points @ other[:3, :3].T + other[:3, 3]).flatten(0, 1)
    pixels = seen @ source.intrinsics[0, j].double().T
    return pixels[:, 0] / seen[:, 2], pixels[:, 1] / seen[:, 2], seen[:, 2]


@pytest.mark.parametrize("seed", rest_in_extra(SEEDS, keep=1))
def test_points_of_one_frame_are_met_again_from_another_in_place_depth_and_colour(seed: int) -> None:
    """A ray from frame j through the very place a point of frame i lands meets that point, where it is visible."""
    house = build_house(seed)
    cameras, scene = cameras_of(house, seed, [40, 42]), Scene.of([house])
    pictures = render(scene, cameras)
    u, v, depth = land(cameras, pictures, 0, 1)
    inside = (depth > 0.1) & (u >= 0) & (v >= 0) & (u <= WIDTH - 1) & (v <= HEIGHT - 1)
    picked = inside.nonzero()[:, 0][::7]
    # cameras of one pixel whose middle is exactly that place
    shifted = cameras.intrinsics[:, 1:].double().repeat(1, len(picked), 1, 1)
    shifted[0, :, 0, 2] -= u[picked]
    shifted[0, :, 1, 2] -= v[picked]
    poses = cameras.world_from_camera[:, 1:].expand(-1, len(picked), -1, -1)
    spots = render(scene, Cameras(world_from_camera=poses, intrinsics=shifted.float(), height=1, width=1))
    differences = (spots.depth[0, :, 0, 0].double() - depth[picked]).float()
    points = unproject(spots.depth[0].double(), shifted[0], poses[0].double())[:, 0, 0]
    back = invert_rigid(cameras.world_from_camera[0, 0].double())
    in_first = (points @ back[:3, :3].T + back[:3, 3]) @ cameras.intrinsics[0, 0].double().T
    distance_px = (in_first[:, :2] / in_first[:, 2:] - torch.stack([picked % WIDTH, picked // WIDTH], dim=1)).norm(
        dim=1
    )
    colour = (spots.image[0, :, :, 0, 0] - pictures.image[0, 0].flatten(1)[:, picked].T).abs().amax(dim=1)
    seen = differences > -2e-3 * depth[picked]
    assert seen.float().mean() > 0.7
    same = differences.abs() < 2e-3 * depth[picked]
    assert same[seen].float().mean() > 0.99
    assert distance_px[same].max() < 0.05
    # detail finer than a pixel fades with distance, so colours agree but for that
    assert colour[same].median() < 0.01
    assert colour[same].quantile(0.95) < 0.06


@pytest.mark.parametrize("seed", rest_in_extra(SEEDS, keep=2))
def test_normals_are_those_of_neighbouring_points(seed: int) -> None:
    house = build_house(seed)
    fine = cameras_of(house, seed, [25])
    # pixels a hundredth as wide: neighbours lie on one surface, as a rule, and nearly flat
    places = torch.tensor(list(itertools.product(range(4, WIDTH, 9), range(4, HEIGHT, 9))), dtype=torch.float64)
    zoomed = fine.intrinsics.double().repeat(1, len(places), 1, 1)
    zoomed[..., :2, :2] *= 100
    zoomed[0, :, :2, 2] = 1 - (places - torch.tensor([WIDTH / 2, HEIGHT / 2])) * 100
    poses = fine.world_from_camera.expand(-1, len(places), -1, -1)
    patches = Cameras(world_from_camera=poses, intrinsics=zoomed.float(), height=3, width=3)
    pictures = render(Scene.of([house]), patches)
    points = unproject(pictures.depth[0].double(), zoomed[0], poses[0].double())
    across = torch.linalg.cross(points[:, 2, 1] - points[:, 0, 1], points[:, 1, 2] - points[:, 1, 0])
    finite = across / across.norm(dim=-1, keepdim=True)
    normals = pictures.normal[0, :, 1, 1].double()
    agreement = (normals * finite).sum(dim=-1)
    assert torch.allclose(normals.norm(dim=-1), torch.ones(len(normals), dtype=torch.float64))
    assert agreement.median() > 0.99999
    assert (agreement > 0.995).double().mean() > 0.97


def test_normals_face_the_camera() -> None:
    house = build_house(7)
    cameras = cameras_of(house, 7, [0, 60])
    pictures = render(Scene.of([house]), cameras)
    points = unproject(pictures.depth, cameras.intrinsics, cameras.world_from_camera)
    toward = points - cameras.world_from_camera[:, :, None, None, :3, 3]
    assert ((pictures.normal * toward).sum(dim=-1) < 1e-4).all()


def test_every_ray_meets_something_within_the_house() -> None:
    for seed in range(12):
        house = build_house(seed)
        pictures = render(Scene.of([house]), cameras_of(house, seed, [0, 80, 170]))
        assert torch.isfinite(pictures.depth).all()
        assert pictures.depth.max() < math.hypot(*house.plan.footprint.size, house.height)
        assert pictures.depth.min() > 0.1
        assert 0.15 < pictures.image.mean() < 0.85


def test_houses_rendered_together_look_as_they_do_alone() -> None:
    houses = [build_house(seed) for seed in (1, 4, 8)]
    scene = Scene.of(houses)
    cameras = [cameras_of(house, house.seed, [0, 33]) for house in houses]
    together = render(
        scene,
        Cameras(
            world_from_camera=torch.cat([one.world_from_camera for one in cameras]),
            intrinsics=torch.cat([one.intrinsics for one in cameras]),
            height=HEIGHT,
            width=WIDTH,
        ),
    )
    picked = render(scene.pick(torch.tensor([2])), cameras[2])
    for index, (house, camera) in enumerate(zip(houses, cameras, strict=True)):
        alone = render(Scene.of([house]), camera)
        assert torch.equal(together.thing[index], alone.thing[0])
        assert torch.allclose(together.depth[index], alone.depth[0], atol=1e-5)
        assert torch.allclose(together.image[index], alone.image[0], atol=1e-3)
    assert torch.equal(picked.depth[0], together.depth[2])


def test_visible_things_are_counted_pixel_by_pixel() -> None:
    thing = torch.tensor([[[0, 0, -1, 2], [0, -1, -1, 2]], [[-1, -1, -1, -1], [1, 1, 1, 1]]])
    pixels, column = visible(thing, 4)
    assert pixels.tolist() == [[3, 0, 2, 0], [0, 4, 0, 0]]
    assert column[0, 0] == pytest.approx((0.125 + 0.375 + 0.125) / 3)
    assert column[0, 2] == pytest.approx(0.875)
    assert column[1, 1] == pytest.approx(0.5)
    assert column.isnan().tolist() == [[False, True, False, True], [True, False, True, True]]


def test_a_tour_tells_the_truth_about_its_frames() -> None:
    tour = Tour(seed=7, width=WIDTH, height=HEIGHT)
    views: list[View] = list(itertools.islice(tour.views(), 12))
    again = list(itertools.islice(tour.views(), 12))
    house = tour.house()
    for index, (view, same) in enumerate(zip(views, again, strict=True)):
        assert view.index == index
        assert view.timestamp_s == index / 10
        assert torch.equal(view.image, same.image)
        assert view.pixels.tolist() == [int((view.thing == k).sum()) for k in range(len(house.things))]
        low, high = house.rooms[view.room].area.low, house.rooms[view.room].area.high
        assert low[0] <= view.world_from_camera[0, 3] < high[0]
        assert low[1] <= view.world_from_camera[2, 3] < high[1]


@pytest.mark.parametrize("quarter_turns", range(4))
def test_rays_exactly_along_an_axis_meet_what_those_beside_them_meet(quarter_turns: int) -> None:
    """A level camera that looks along an axis: its middle row and column have directions of exactly zero."""
    house = build_house(7)
    step = next(iter(walk(house, 7)))
    level = torch.from_numpy(step.world_from_camera).float()
    level[:3, :3] = torch.tensor([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]]).matrix_power(quarter_turns)
    cameras = Cameras(
        world_from_camera=level[None, None],
        intrinsics=torch.tensor([[40.0, 0.0, 20.0], [0.0, 40.0, 15.0], [0.0, 0.0, 1.0]])[None, None],
        height=31,
        width=41,
    )
    depth = render(Scene.of([house]), cameras).depth[0, 0]
    assert depth.isfinite().all()
    around = torch.stack([depth[13:14].expand(5, -1), depth[17:18].expand(5, -1)])
    inside = (depth[13:18] >= around.amin(dim=0) * 0.7) & (depth[13:18] <= around.amax(dim=0) * 1.4)
    assert inside.float().mean() > 0.8
    assert (depth[15] < 20).all()
    assert (depth[:, 20] < 20).all()
