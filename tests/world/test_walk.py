import gc
import itertools
import tracemalloc
from functools import lru_cache

import numpy as np
import pytest

from longtake.world.house import build_house
from longtake.world.occupancy import CELL, Occupancy, steps_to
from longtake.world.plan import Door, Plan, Rectangle, Wall
from longtake.world.walk import LARGEST_TURN_RAD, LONGEST_STEP, SHORTEST_STEP, Footstep, walk

FRAMES = 3000


@lru_cache
def steps_of(seed: int, count: int = FRAMES) -> list[Footstep]:
    return list(itertools.islice(walk(build_house(seed), seed), count))


def turns_rad(poses: np.ndarray) -> np.ndarray:
    between = poses[:-1, :3, :3].transpose(0, 2, 1) @ poses[1:, :3, :3]
    return np.arccos(np.clip((np.trace(between, axis1=1, axis2=2) - 1) / 2, -1, 1))


@pytest.mark.parametrize("seed", range(4))
def test_steps_and_turns_stay_within_their_bounds(seed: int) -> None:
    poses = np.stack([step.world_from_camera for step in steps_of(seed)])
    lengths = np.linalg.norm(np.diff(poses[:, :3, 3], axis=0), axis=1)
    assert lengths.min() >= SHORTEST_STEP
    assert lengths.max() <= LONGEST_STEP
    turns = turns_rad(poses)
    assert turns.max() <= LARGEST_TURN_RAD
    assert turns.max() > LARGEST_TURN_RAD / 2
    assert np.quantile(turns, 0.1) < LARGEST_TURN_RAD / 4
    assert np.allclose(poses[:, :3, :3] @ poses[:, :3, :3].transpose(0, 2, 1), np.eye(3))


def test_a_third_of_the_time_is_spent_looking_around() -> None:
    shares = [np.mean([step.looks_around for step in steps_of(seed)]) for seed in range(4)]
    assert np.mean(shares) == pytest.approx(1 / 3, abs=0.03)


def test_looking_around_turns_away_from_the_way_ahead() -> None:
    away = {True: [], False: []}
    for seed in range(4):
        steps = steps_of(seed)
        for one, two in itertools.pairwise(steps):
            ahead = (two.world_from_camera - one.world_from_camera)[[0, 2], 3]
            forward = one.world_from_camera[[0, 2], 2]
            cosine = ahead @ forward / np.linalg.norm(ahead) / np.linalg.norm(forward)
            away[one.looks_around].append(np.degrees(np.arccos(np.clip(cosine, -1, 1))))
    assert np.median(away[True]) > 2 * np.median(away[False])


@pytest.mark.parametrize("seed", range(4))
def test_a_walk_goes_through_doors_into_every_room_and_returns(seed: int) -> None:
    house = build_house(seed)
    steps = steps_of(seed)
    assert {step.room for step in steps} == set(range(len(house.rooms)))
    changes = [(a.room, b.room) for a, b in itertools.pairwise(steps) if a.room != b.room]
    joined = {door.wall.rooms for door in house.plan.doors}
    assert all(tuple(sorted(change)) in {tuple(sorted(rooms)) for rooms in joined if rooms} for change in changes)
    positions = np.stack([step.world_from_camera[:3, 3] for step in steps])
    later = np.linalg.norm(positions[600:] - positions[0], axis=1)
    assert later.min() < 0.35


@pytest.mark.parametrize("seed", range(4))
def test_a_walk_keeps_clear_of_what_stands_about(seed: int) -> None:
    house = build_house(seed)
    for step in steps_of(seed):
        x, z = step.world_from_camera[[0, 2], 3]
        assert not house.occupancy.taken[int(z / CELL), int(x / CELL)]


def test_the_same_seed_walks_the_same_way() -> None:
    first, second, other = steps_of(3, 300), steps_of(3, 300), list(itertools.islice(walk(build_house(3), 4), 300))
    assert all(np.array_equal(a.world_from_camera, b.world_from_camera) for a, b in zip(first, second, strict=True))
    assert not np.array_equal(first[-1].world_from_camera, other[-1].world_from_camera)


@pytest.mark.extra
def test_memory_does_not_grow_with_a_long_walk() -> None:
    steps = walk(build_house(2), 2)
    used = []
    tracemalloc.start()
    for _ in range(4):
        for _ in itertools.islice(steps, 500):
            pass
        gc.collect()
        used.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert max(used[1:]) < 2 * used[0] + 100_000


def two_rooms() -> Plan:
    wall = Wall(0, 3.0, 0.0, 3.0, (0, 1))
    rooms = (Rectangle((0.0, 0.0), (3.0, 3.0)), Rectangle((3.0, 0.0), (6.0, 3.0)))
    return Plan(Rectangle((0.0, 0.0), (6.0, 3.0)), rooms, (wall,), (Door(wall, 1.5, 1.1, 2.0),))


def test_ways_lead_through_the_door_only() -> None:
    occupancy = Occupancy.of_plan(two_rooms(), 0.07)
    steps = steps_to(occupancy.walkable, (15, 45))
    assert steps[15, 15] == 30
    assert steps[5, 15] == 40
    assert occupancy.walkable[15, 30]
    assert not occupancy.walkable[5, 30]
    assert occupancy.every_door_is_open
