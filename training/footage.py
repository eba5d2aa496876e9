"""Ways through many worlds, filmed: clips for training are cut from them faster than they could be drawn.

world 0   │ frame 0 │ 1 │ 2 │ … │           bytes for pixels, half floats for depth, all on the device
world 1   │    clip ──▶ ├───┼───┤           a clip begins anywhere, skips frames, runs backwards, comes back
  …
world n                                     room for what is still being built and gone through, in other processes
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float16, Float32, UInt8
from torch import Tensor

from longtake.spatial.overlap import overlaps
from longtake.world.families import ANY_SIZE
from longtake.world.render import Cameras, Pictures, render
from longtake.world.scene import Scene, SceneSize
from longtake.world.tour import Tour
from training.cutting import OVERLAP_EVERY, ClipFrames, Cutter, Remembered
from training.walkers import Walked

Size = tuple[int, int]
"""Height and width."""


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
    """What was filmed so far, all of one size: as many frames in every world."""

    def __init__(self, num_worlds: int, num_frames: int, size: Size, device: torch.device, pad_rays: int = 0) -> None:
        """Room for so many worlds; `pad_rays` as `render` takes it."""
        self.size, self._device, self._pad_rays = size, device, pad_rays
        self._image: UInt8[Tensor, "houses frames 3 height width"] = torch.empty(
            num_worlds, num_frames, 3, *size, dtype=torch.uint8, device=device
        )
        self._depth: Float16[Tensor, "houses frames height width"] = torch.empty(
            num_worlds, num_frames, *size, dtype=torch.float16, device=device
        )
        self._world_from_camera: Float32[Tensor, "houses frames 4 4"] = torch.empty(
            num_worlds, num_frames, 4, 4, device=device
        )
        self._intrinsics: Float32[Tensor, "houses 3 3"] = torch.empty(num_worlds, 3, 3, device=device)
        self._overlaps: list[Float32[np.ndarray, "sampled sampled"]] = []

    @property
    def num_worlds(self) -> int:
        return len(self._overlaps)

    @property
    def num_frames(self) -> int:
        """Of every house."""
        return self._image.shape[1]

    @property
    def has_room(self) -> bool:
        return self.num_worlds < len(self._image)

    def add(self, walked: "Sequence[Walked]") -> None:
        """Film these; of more than there is room for, the first."""
        room = slice(self.num_worlds, min(self.num_worlds + len(walked), len(self._image)))
        count = room.stop - room.start
        cameras = cameras_of(walked, self.size, self._device)
        pictures = film(walked, cameras, ANY_SIZE, self._pad_rays)
        self._image[room] = (pictures.image[:count] * 255).round().to(torch.uint8)
        self._depth[room] = pictures.depth[:count].half()
        self._world_from_camera[room] = cameras.world_from_camera[:count]
        self._intrinsics[room] = cameras.intrinsics[:count, 0]
        for at in range(count):
            some = slice(None, None, OVERLAP_EVERY)
            views = pictures.depth[at, some], cameras.world_from_camera[at, some], cameras.intrinsics[at, some]
            self._overlaps.append(overlaps(*views).cpu().numpy())

    def cut(
        self, num_clips: int, num_frames: int, rng: np.random.Generator, cutter: Cutter, remembered: Remembered
    ) -> Clips:
        """Clips from anywhere."""
        return self.take(cutter.cut(num_clips, num_frames, rng, self._overlaps, remembered))

    def pairs(self, length: int, rng: np.random.Generator, cutter: Cutter, *, strange: bool) -> Clips:
        """A stretch of each world, then one of the same place again, or of another world."""
        return self.take(cutter.pairs(length, rng, self._overlaps, strange=strange))

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
        walk = np.repeat(np.arange(self.num_worlds)[:, None], num_frames, axis=1)
        frame = np.tile(np.arange(num_frames), (self.num_worlds, 1))
        return self.take(ClipFrames(walk=walk, frame=frame, is_known=np.ones_like(walk, dtype=np.bool_)))


class Reels:
    """Footage of several sizes or kinds, each by its key, filmed in an order that was fixed beforehand."""

    def __init__(self, order: Sequence[tuple[Hashable, Size]], num_frames: int, device: torch.device) -> None:
        """For each world that will come, the key of its footage and the size of its pictures."""
        self._order = list(order)
        sizes = dict(self._order)
        counts = Counter(key for key, _ in self._order)
        pad_rays = max(height * width for height, width in sizes.values())
        self._footage = {key: Footage(counts[key], num_frames, size, device, pad_rays) for key, size in sizes.items()}

    @property
    def num_worlds(self) -> int:
        return sum(footage.num_worlds for footage in self._footage.values())

    @property
    def has_room(self) -> bool:
        return self.num_worlds < len(self._order)

    def add(self, walked: Sequence[Walked]) -> None:
        """Film the next ones; those that are drawn in one go have one key."""
        key, _ = self._order[self.num_worlds]
        self._footage[key].add(walked)

    def filmed(self) -> Mapping[Hashable, Footage]:
        """What there is some of."""
        return {key: footage for key, footage in self._footage.items() if footage.num_worlds}


def cameras_of(walked: Sequence[Walked], size: tuple[int, int], device: torch.device) -> Cameras:
    """Those of walks that are filmed in one go."""
    height, width = size
    lenses = [Tour(seed=one.world.seed, width=width, height=height, family=one.family).intrinsics() for one in walked]
    poses = torch.from_numpy(np.stack([one.world_from_camera for one in walked])).to(device)
    return Cameras(
        world_from_camera=poses,
        intrinsics=torch.stack(lenses).to(device)[:, None].expand(-1, poses.shape[1], -1, -1),
        height=height,
        width=width,
    )


def film(walked: Sequence[Walked], cameras: Cameras, size: SceneSize, pad_rays: int = 0) -> Pictures:
    """What these cameras see of the worlds gone through, in a scene of this size."""
    device = cameras.world_from_camera.device
    scene = Scene.of([one.world for one in walked], device, size)
    pictures = render(scene, cameras, fuse=device.type == "cuda", pad_rays=pad_rays)
    assert not bool(pictures.depth.isnan().any()), "a ray met nothing"
    return pictures
