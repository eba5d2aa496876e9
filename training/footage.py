"""Walks through many houses, filmed: clips for training are cut from them faster than they could be drawn.

house 0   │ frame 0 │ 1 │ 2 │ … │           bytes for pixels, half floats for depth, all on the device
house 1   │    clip ──▶ ├───┼───┤           a clip begins anywhere, skips frames, or runs backwards
  …
house n                                     room for what is still being built and walked through, in other processes
"""

import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context

import numpy as np
import torch
from jaxtyping import Bool, Float, Float16, Float32, Int64, UInt8
from torch import Tensor

from longtake.errors import InputError
from longtake.world.house import House, build_house
from longtake.world.render import Cameras, Pictures, render
from longtake.world.scene import Scene, SceneSize
from longtake.world.seeds import seeds, split_of
from longtake.world.tour import Tour
from longtake.world.walk import walk
from training.cutting import OVERLAP_EVERY, ClipFrames, Cutter
from training.overlap import overlaps

HOUSES_AT_ONCE = 2
"""Drawn in one go; the same number each time, so that drawing is compiled once, and few enough for 32-bit indices."""
_SIZE = SceneSize(boxes=160, balls=10, tapers=34, rooms=6, things=24, materials=36)
"""Holds all houses but one in many hundreds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clips:
    """Some clips with their truth."""

    image: Float[Tensor, "clips frames 3 height width"]
    """0 to 1."""
    depth: Float[Tensor, "clips frames height width"]
    """Infinite where there is nothing but sky."""
    world_from_camera: Float[Tensor, "clips frames 4 4"]
    intrinsics: Float[Tensor, "clips frames 3 3"]
    is_known: Bool[Tensor, "clips frames"]
    """Whether where a frame was taken can be told from the first ones."""


class Footage:
    """What was filmed so far: as many frames in every house."""

    def __init__(self, num_houses: int, num_frames: int, size: tuple[int, int], device: torch.device) -> None:
        """Room for so many houses."""
        self._size, self._device = size, device
        self._image: UInt8[Tensor, "houses frames 3 height width"] = torch.empty(
            num_houses, num_frames, 3, *size, dtype=torch.uint8, device=device
        )
        self._depth: Float16[Tensor, "houses frames height width"] = torch.empty(
            num_houses, num_frames, *size, dtype=torch.float16, device=device
        )
        self._world_from_camera: Float32[Tensor, "houses frames 4 4"] = torch.empty(
            num_houses, num_frames, 4, 4, device=device
        )
        self._intrinsics: Float32[Tensor, "houses 3 3"] = torch.empty(num_houses, 3, 3, device=device)
        self._overlaps: list[Float32[np.ndarray, "sampled sampled"]] = []

    @property
    def num_houses(self) -> int:
        return len(self._overlaps)

    @property
    def num_frames(self) -> int:
        """Of every house."""
        return self._image.shape[1]

    @property
    def has_room(self) -> bool:
        return self.num_houses < len(self._image)

    def add(self, walked: "Sequence[Walked]") -> None:
        """Film these; of more than there is room for, the first."""
        room = slice(self.num_houses, min(self.num_houses + len(walked), len(self._image)))
        count = room.stop - room.start
        cameras = cameras_of(walked, self._size, self._device)
        pictures = film(walked, cameras)
        self._image[room] = (pictures.image[:count] * 255).round().to(torch.uint8)
        self._depth[room] = pictures.depth[:count].half()
        self._world_from_camera[room] = cameras.world_from_camera[:count]
        self._intrinsics[room] = cameras.intrinsics[:count, 0]
        for at in range(count):
            some = slice(None, None, OVERLAP_EVERY)
            views = pictures.depth[at, some], cameras.world_from_camera[at, some], cameras.intrinsics[at, 0]
            self._overlaps.append(overlaps(*views).cpu().numpy())

    def cut(self, num_clips: int, num_frames: int, rng: np.random.Generator, cutter: Cutter) -> Clips:
        """Clips from anywhere."""
        return self.take(cutter.cut(num_clips, num_frames, rng, self._overlaps))

    def take(self, frames: ClipFrames) -> Clips:
        """Clips of these frames."""
        house, frame = (torch.from_numpy(index).to(self._device) for index in (frames.walk, frames.frame))
        return Clips(
            image=self._image[house, frame].float() / 255,
            depth=self._depth[house, frame].float(),
            world_from_camera=self._world_from_camera[house, frame],
            intrinsics=self._intrinsics[house],
            is_known=torch.from_numpy(frames.is_known).to(self._device),
        )

    def beginnings(self, num_frames: int) -> Clips:
        """The first frames of every house."""
        walk = np.repeat(np.arange(self.num_houses)[:, None], num_frames, axis=1)
        frame = np.tile(np.arange(num_frames), (self.num_houses, 1))
        return self.take(ClipFrames(walk=walk, frame=frame, is_known=np.ones_like(walk, dtype=np.bool_)))


@dataclass(frozen=True, slots=True)
class Walked:
    """A house and a walk through it."""

    house: House
    world_from_camera: Float32[np.ndarray, "frames 4 4"]
    room: Int64[np.ndarray, " frames"]
    """Which room the camera is in."""


def cameras_of(walked: Sequence[Walked], size: tuple[int, int], device: torch.device) -> Cameras:
    """Those of walks that are filmed in one go."""
    height, width = size
    lenses = [Tour(seed=one.house.seed, width=width, height=height).intrinsics() for one in walked]
    poses = torch.from_numpy(np.stack([one.world_from_camera for one in walked])).to(device)
    return Cameras(
        world_from_camera=poses,
        intrinsics=torch.stack(lenses).to(device)[:, None].expand(-1, poses.shape[1], -1, -1),
        height=height,
        width=width,
    )


def film(walked: Sequence[Walked], cameras: Cameras) -> Pictures:
    """What these cameras see of the houses walked through."""
    device = cameras.world_from_camera.device
    pictures = render(Scene.of([one.house for one in walked], device, _SIZE), cameras, fuse=device.type == "cuda")
    assert bool(pictures.depth.isfinite().all()), "a ray met nothing"
    return pictures


class Walkers:
    """Processes that build houses and walk through them, a group at a time, in the order of the groups."""

    def __init__(self, groups: Sequence[Sequence[int]], num_frames: int, *, processes: int | None = None) -> None:
        """Groups of seeds; by default all processors but two work on them."""
        all_but_two = max(1, (os.cpu_count() or 2) - 2)
        self._pool = ProcessPoolExecutor(processes or all_but_two, mp_context=get_context("spawn"))
        with interrupts_ignored():  # and so they are by the processes that now begin, which leave Ctrl-C to this one
            self._coming: deque[Future[list[Walked]]] = deque(
                self._pool.submit(walk_through, group, num_frames) for group in groups
            )

    def next_group(self, *, wait: bool) -> list[Walked] | None:
        """The next houses; None if there are no more, or if they are not ready and are not waited for."""
        if not self._coming or not (wait or self._coming[0].done()):
            return None
        try:
            return self._coming.popleft().result()
        except BrokenProcessPool as error:
            raise InputError(
                "A process that builds houses was ended from outside, perhaps for want of memory; go on with fewer."
            ) from error

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def in_groups(some_seeds: Sequence[int]) -> list[Sequence[int]]:
    """As many in each as are drawn in one go."""
    return [some_seeds[start : start + HOUSES_AT_ONCE] for start in range(0, len(some_seeds), HOUSES_AT_ONCE)]


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """What begins meanwhile leaves Ctrl-C to this process."""
    if threading.current_thread() is not threading.main_thread():  # no other may say what is done with signals
        yield
        return
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def walk_through(some_seeds: Sequence[int], num_frames: int) -> list[Walked]:
    """The houses of these seeds, each with a walk; one that is too large for the scene gives way to the next."""
    houses = [next(filter(_fits, map(build_house, seeds(split_of(seed), start=seed)))) for seed in some_seeds]
    return [_walk(house, num_frames) for house in houses]


def _fits(house: House) -> bool:
    return SceneSize.of(house) | _SIZE == _SIZE


def _walk(house: House, num_frames: int) -> Walked:
    steps = list(islice(walk(house, house.seed), num_frames))
    poses = np.stack([step.world_from_camera for step in steps])
    return Walked(house, poses.astype(np.float32), np.array([step.room for step in steps], dtype=np.int64))


def recoloured(
    image: Float[Tensor, "clips frames 3 height width"], strength: float = 1.0
) -> Float[Tensor, "clips frames 3 height width"]:
    """As another camera would have taken it: each clip with its own light, contrast and tint, each frame with noise."""
    clips, device = len(image), image.device
    light = torch.empty(clips, 1, 1, 1, 1, device=device).uniform_(-0.3, 0.3).mul(strength).exp()
    contrast = 1 + strength * torch.empty(clips, 1, 1, 1, 1, device=device).uniform_(-0.25, 0.25)
    tint = torch.empty(clips, 1, 3, 1, 1, device=device).uniform_(-0.1, 0.1).mul(strength).exp()
    noise = strength * torch.empty(clips, 1, 1, 1, 1, device=device).uniform_(0, 0.03)
    mean = image.mean(dim=(1, 2, 3, 4), keepdim=True)
    changed = ((image - mean) * contrast + mean) * light * tint
    return (changed + noise * torch.randn_like(image)).clamp(0, 1)
