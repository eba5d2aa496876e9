"""A training in miniature: one house or two, a tiny network, houses built in a thread of this process."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from longtake.spatial.pose import matrix_from_quaternion, rigid_pose
from longtake.world.families import Family
from training import walkers
from training.footage import Clips, Footage
from training.recipe import Recipe, Stage, read_recipe, shipped_recipe
from training.walkers import Trip, Walked, walk_through

SIZE = (28, 42)


@pytest.fixture(scope="session")
def filmed() -> Footage:
    """Twelve frames of houses 0 and 3; tests share it and must leave it as it is."""
    footage = Footage(3, 12, SIZE, torch.device("cpu"))
    footage.add(walk_through([Trip(Family.HOUSE, 0), Trip(Family.HOUSE, 3)], 12))
    return footage


@pytest.fixture(scope="session")
def miniature() -> Recipe:
    """Eight steps."""
    recipe = read_recipe(shipped_recipe("micro-map-quick"))
    return replace(recipe, stages=(Stage(steps=5, clip_frames=(4, 6)), Stage(steps=3, clip_frames=(8,))))


@cache
def walk_once(trips: tuple[Trip, ...], num_frames: int) -> list[Walked]:
    return walk_through(trips, num_frames)


@pytest.fixture
def asked_seeds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Houses are built in a thread, which needs no time to start; the seeds that were asked for, as they come."""
    seeds: list[int] = []

    class Threads(ThreadPoolExecutor):
        def __init__(self, processes: int, **_: object) -> None:
            super().__init__(1)

        def submit(self, walk: Any, group: Sequence[Trip], num_frames: int) -> Future[Any]:  # type: ignore[override]
            seeds.extend(trip.seed for trip in group)
            return super().submit(walk_once, tuple(group), num_frames)

    monkeypatch.setattr(walkers, "ProcessPoolExecutor", Threads)
    return seeds


@pytest.fixture(scope="session")
def wandering() -> Clips:
    """Two clips of ten frames along ways that nobody filmed, with walls at any depth."""
    generator = torch.Generator().manual_seed(5)
    steps = 0.1 * torch.randn(2, 10, 4, generator=generator)
    turns = torch.tensor([0.1, 0.2, 0.3, 1.0]) + steps.cumsum(dim=1)
    places = 0.1 * torch.randn(2, 10, 3, generator=generator).cumsum(dim=1)
    lens = torch.tensor([[30.0, 0.0, 21.0], [0.0, 30.0, 14.0], [0.0, 0.0, 1.0]])
    return Clips(
        image=torch.rand(2, 10, 3, *SIZE, generator=generator),
        depth=1 + 3 * torch.rand(2, 10, *SIZE, generator=generator),
        world_from_camera=rigid_pose(matrix_from_quaternion(turns), places),
        intrinsics=lens.expand(2, 10, 3, 3),
        is_known=torch.ones(2, 10, dtype=torch.bool),
    )
