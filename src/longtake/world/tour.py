"""A tour: a way through a world, filmed. Frames come one by one with their truth, as long as they are asked for."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from longtake.errors import SettingError
from longtake.world.content import World
from longtake.world.families import Family, build_world, field_of_view_rad, route
from longtake.world.house import House, build_house
from longtake.world.render import Cameras, render
from longtake.world.scene import Scene
from longtake.world.things import Sightings
from longtake.world.walk import WALK_FPS, Footstep

_FRAMES_AT_ONCE = {"cpu": 1, "cuda": 64}
_MOST_PIXELS = 4096 * 2160
"""Of an image; one takes about 200 bytes a pixel while it is drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One frame of a tour and all that is true of it."""

    index: int
    timestamp_s: float
    image: Float[Tensor, "3 height width"]
    """0 to 1."""
    depth: Float[Tensor, "height width"]
    """Infinite where there is sky."""
    normal: Float[Tensor, "height width 3"]
    thing: Int[Tensor, "height width"]
    """Which thing each pixel shows, -1 for none."""
    world_from_camera: Float[Tensor, "4 4"]
    """In float64."""
    intrinsics: Float[Tensor, "3 3"]
    room: int
    pixels: Int[Tensor, "things"]
    column: Float[Tensor, "things"]
    """Mean column of a thing's pixels over the image's width, NaN where it is not visible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tour:
    """A family and a seed, an image size and a frame rate; equal tours give equal frames."""

    seed: int
    width: int
    height: int
    fps: float = WALK_FPS
    family: Family = Family.HOUSE
    walk: int = 0
    """Which of the ways through this world."""

    def __post_init__(self) -> None:
        if self.width < 1 or self.height < 1:
            raise SettingError(f"Expected images of one pixel at least each way, but got {self.width}x{self.height}.")
        if self.width * self.height > _MOST_PIXELS:
            raise SettingError(f"Expected images of {_MOST_PIXELS} pixels at most, but got {self.width}x{self.height}.")
        if not self.fps > 0:
            raise SettingError(f"Expected more than 0 frames a second, but got {self.fps:g}.")
        if self.walk < 0:
            raise SettingError(f"Expected the number of a walk from 0 on, but got {self.walk}.")

    def house(self) -> House:
        """The house, which alone can be asked about."""
        if self.family is not Family.HOUSE:
            raise SettingError(f"Only houses have rooms and things with names, but the family is {self.family}.")
        return build_house(self.seed)

    def world(self) -> World:
        return build_world(self.family, self.seed)

    def intrinsics(self) -> Float[Tensor, "3 3"]:
        """Square pixels, the family's field of view along the longer side, the middle at half the size."""
        focal = max(self.width, self.height) / 2 / float(np.tan(field_of_view_rad(self.family, self.seed) / 2))
        return torch.tensor([[focal, 0.0, self.width / 2], [0.0, focal, self.height / 2], [0.0, 0.0, 1.0]])

    def views(self, device: torch.device | str = "cpu") -> Iterator[View]:
        """Frame after frame, without an end; what came before is not held."""
        world = self.world()
        scene, intrinsics = Scene.of([world], device), self.intrinsics().to(device)
        steps = enumerate(route(self.family, world, self.walk))
        while True:
            some = list(itertools.islice(steps, _FRAMES_AT_ONCE[scene.ceiling.device.type]))
            yield from self._film(scene, intrinsics, some, len(world.things))

    def cameras(self, num_frames: int) -> Float64[Tensor, "frames 4 4"]:
        """Where the camera is in the first frames; nothing is filmed."""
        steps = itertools.islice(route(self.family, self.world(), self.walk), num_frames)
        return torch.from_numpy(np.stack([step.world_from_camera for step in steps]))

    def views_at(self, indices: Sequence[int], device: torch.device | str = "cpu") -> Iterator[View]:
        """Some frames alone, in the order of time."""
        world, wanted = self.world(), set(indices)
        scene, intrinsics = Scene.of([world], device), self.intrinsics().to(device)
        for index, step in itertools.islice(enumerate(route(self.family, world, self.walk)), max(indices) + 1):
            if index in wanted:
                yield from self._film(scene, intrinsics, [(index, step)], len(world.things))

    def _film(
        self, scene: Scene, intrinsics: Float[Tensor, "3 3"], steps: list[tuple[int, Footstep]], num_things: int
    ) -> Iterator[View]:
        poses = torch.from_numpy(np.stack([step.world_from_camera for _, step in steps]))
        cameras = Cameras(
            world_from_camera=poses[None].to(intrinsics),
            intrinsics=intrinsics.expand(1, len(steps), 3, 3),
            height=self.height,
            width=self.width,
        )
        pictures = render(scene, cameras)
        pixels, columns = visible(pictures.thing[0], num_things)
        for place, (index, step) in enumerate(steps):
            yield View(
                index=index,
                timestamp_s=index / self.fps,
                image=pictures.image[0, place],
                depth=pictures.depth[0, place],
                normal=pictures.normal[0, place],
                thing=pictures.thing[0, place],
                world_from_camera=poses[place],
                intrinsics=intrinsics,
                room=step.room,
                pixels=pixels[place],
                column=columns[place],
            )


def visible(
    thing: Int[Tensor, "frames height width"], num_things: int
) -> tuple[Int[Tensor, "frames things"], Float[Tensor, "frames things"]]:
    """How many pixels show each thing, and their mean column over the width (NaN where none does)."""
    frames, _, width = thing.shape
    entry = torch.where(thing >= 0, thing, num_things).flatten(1)
    pixels = torch.zeros(frames, num_things + 1, dtype=torch.long, device=thing.device)
    pixels = pixels.scatter_add(1, entry, torch.ones_like(entry))[:, :num_things]
    columns = ((torch.arange(width, device=thing.device) + 0.5) / width).expand_as(thing).flatten(1)
    sums = torch.zeros(frames, num_things + 1, device=thing.device).scatter_add(1, entry, columns)[:, :num_things]
    return pixels, sums / pixels


def sightings(tour: Tour, house: World, views: Iterable[View]) -> Sightings:
    """What was visible in these frames, in a few numbers a frame."""
    seen = [(view.timestamp_s, view.room, view.pixels.cpu().numpy(), view.column.cpu().numpy()) for view in views]
    times, rooms, pixels, columns = zip(*seen, strict=True)
    return Sightings(
        things=house.things,
        rooms=tuple(room.colour for room in house.rooms),
        timestamp_s=np.array(times),
        room=np.array(rooms),
        pixels=np.stack(pixels),
        column=np.stack(columns),
        image_pixels=tour.width * tour.height,
    )
