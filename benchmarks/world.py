"""Frames a second of the procedural world: many houses at once, as training asks for them, and one after the other."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch

from longtake.bench.machine import device_name, synchronize
from longtake.world.house import build_house
from longtake.world.render import Cameras, render
from longtake.world.scene import Scene
from longtake.world.tour import Tour
from longtake.world.walk import walk

STREAMED = {"cpu": 16, "cuda": 256}
"""Frames timed one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldFigures:
    """What was measured at one size."""

    device: str
    width: int
    height: int
    batch_houses: int
    batch_frames: int
    """Of each house."""
    fused: bool
    batch_frames_per_s: float
    stream_frames_per_s: float
    """One tour, frame by frame, with counts of what is visible."""
    houses_per_s: float
    """Built from their seeds, in Python."""
    steps_per_s: float
    """Of a walk's path, without pictures."""


def measure_world(size: tuple[int, int], device: torch.device, *, houses: int, frames: int, fuse: bool) -> WorldFigures:
    """Time each part until its results are there, after one round to warm up."""
    height, width = size
    start = time.perf_counter()
    built = [build_house(seed) for seed in range(houses)]
    houses_per_s = houses / (time.perf_counter() - start)
    start = time.perf_counter()
    steps = [list(islice(walk(house, house.seed), frames)) for house in built]
    steps_per_s = houses * frames / (time.perf_counter() - start)
    scene = Scene.of(built, device)
    poses = np.stack([[step.world_from_camera for step in of_house] for of_house in steps])
    cameras = Cameras(
        world_from_camera=torch.from_numpy(poses).float().to(device),
        intrinsics=Tour(seed=0, width=width, height=height).intrinsics().to(device).expand(houses, frames, 3, 3),
        height=height,
        width=width,
    )
    batch_s = _seconds(lambda: render(scene, cameras, fuse=fuse), device)
    views = Tour(seed=0, width=width, height=height).views(device)
    streamed = STREAMED[device.type]
    stream_s = _seconds(lambda: list(islice(views, streamed)), device) / streamed
    return WorldFigures(
        device=device_name(device),
        width=width,
        height=height,
        batch_houses=houses,
        batch_frames=frames,
        fused=fuse,
        batch_frames_per_s=houses * frames / batch_s,
        stream_frames_per_s=1 / stream_s,
        houses_per_s=houses_per_s,
        steps_per_s=steps_per_s,
    )


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Of the faster of two rounds, after one to warm up."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        synchronize(device)
        times.append(time.perf_counter() - start)
    return min(times[1:])
