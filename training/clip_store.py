"""Walks filmed for questions: pictures on the device, and what was visible in them as a few numbers on the host."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int32, Int64, UInt8
from torch import Tensor

from longtake.world.things import Sightings
from longtake.world.tour import visible
from longtake.world.walk import WALK_FPS
from training.footage import cameras_of, film
from training.walkers import HOUSE_SIZE, Walked


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Some clips of one length: which frames of which houses."""

    house: Int64[np.ndarray, " clips"]
    frame: Int64[np.ndarray, "clips frames"]


class ClipStore:
    """What was filmed so far: as many frames in every house."""

    def __init__(self, num_worlds: int, num_frames: int, size: tuple[int, int], device: torch.device) -> None:
        """Room for so many houses."""
        self._size, self._device = size, device
        self._image: UInt8[Tensor, "houses frames 3 height width"] = torch.empty(
            num_worlds, num_frames, 3, *size, dtype=torch.uint8, device=device
        )
        self._seen: list[Sightings] = []

    @property
    def num_worlds(self) -> int:
        return len(self._seen)

    @property
    def has_room(self) -> bool:
        return self.num_worlds < len(self._image)

    def add(self, walked: Sequence[Walked]) -> None:
        """Film these; of more than there is room for, the first."""
        pictures = film(walked, cameras_of(walked, self._size, self._device), HOUSE_SIZE)
        for at, one in enumerate(walked[: len(self._image) - self.num_worlds]):
            self._image[self.num_worlds] = (pictures.image[at] * 255).round().to(torch.uint8)
            self._seen.append(_sightings(one, pictures.thing[at]))

    def cut(self, num_clips: int, num_frames: int, rng: np.random.Generator, strides: tuple[int, int]) -> Cut:
        """Clips from anywhere, each with a frame rate of its own."""
        num_filmed = self._image.shape[1]
        shortest, longest = strides
        longest = min(longest, (num_filmed - 1) // (num_frames - 1))
        stride = rng.integers(shortest, longest, endpoint=True, size=num_clips)
        start = rng.integers(0, num_filmed - (num_frames - 1) * stride)
        frame = start[:, None] + stride[:, None] * np.arange(num_frames)
        return Cut(house=rng.integers(self.num_worlds, size=num_clips), frame=frame)

    def seen_in(self, cut: Cut) -> list[Sightings]:
        """What was visible in the frames of each clip."""
        return [_some(self._seen[house], frame) for house, frame in zip(cut.house, cut.frame, strict=True)]

    def pairs(
        self, cut: Cut, grid_frames: Int32[np.ndarray, "clips grids 2"]
    ) -> Float[Tensor, "clips grids 2 3 height width"]:
        """Pictures of clips, two for each grid; 0 to 1."""
        frame = np.take_along_axis(cut.frame[:, None], grid_frames.astype(np.int64), axis=2)
        house = torch.from_numpy(cut.house).to(self._device)
        picked = self._image[house[:, None, None], torch.from_numpy(frame).to(self._device)]
        return picked.float() / 255


def _sightings(
    walked: Walked, thing: Int32[Tensor, "frames height width"] | Int64[Tensor, "frames height width"]
) -> Sightings:
    things = walked.world.things
    pixels, column = visible(thing, len(things))
    return Sightings(
        things=things,
        rooms=tuple(room.colour for room in walked.world.rooms),
        timestamp_s=np.arange(len(thing)) / WALK_FPS,
        room=walked.room,
        pixels=pixels.to(torch.int32).cpu().numpy(),
        column=column.cpu().numpy(),
        image_pixels=thing.shape[1] * thing.shape[2],
    )


def _some(seen: Sightings, frame: Int64[np.ndarray, " frames"]) -> Sightings:
    """Of these frames alone."""
    return Sightings(
        things=seen.things,
        rooms=seen.rooms,
        timestamp_s=seen.timestamp_s[frame],
        room=seen.room[frame],
        pixels=seen.pixels[frame],
        column=seen.column[frame],
        image_pixels=seen.image_pixels,
    )
