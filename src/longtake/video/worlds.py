"""Ways through procedural worlds as videos without an end, or with one where it is asked for."""

import math
import re
from collections.abc import Generator, Mapping
from functools import partial
from itertools import islice
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import torch
from jaxtyping import UInt8

from longtake.errors import InputError, SettingError
from longtake.video.frame import PendingFrame
from longtake.video.reading import EVERY_FRAME, Source
from longtake.video.sampling import Extent, FrameSampling
from longtake.world.families import Family, family_named, route
from longtake.world.render import Cameras, render
from longtake.world.scene import Scene
from longtake.world.tour import Tour
from longtake.world.walk import Footstep

_SIZE = "448x336"
_FPS = "10"
_EXAMPLE = "world:7?frames=300&size=448x336&fps=10"
_OTHER_EXAMPLE = "world:7?family=outdoors"


class WorldTour(Source):
    """A tour's images; those that nobody wants are not drawn."""

    def __init__(
        self,
        tour: Tour,
        sampling: FrameSampling = EVERY_FRAME,
        *,
        num_frames: int | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(
            f"world {tour.seed}{_of_family(tour)}{_of_walk(tour)}", sampling, shows_world=tour.family is Family.HOUSE
        )
        if num_frames is not None and num_frames < 1:
            raise SettingError(f"Expected a world of 1 frame at least, but got {num_frames}.")
        self._tour, self._num_frames, self._device = tour, num_frames, device

    @property
    def extent(self) -> Extent:
        return Extent(num_frames=self._num_frames, fps=self._tour.fps)

    @property
    def identity(self) -> Mapping[str, Any]:
        size = {"width": self._tour.width, "height": self._tour.height}
        family = {} if self._tour.family is Family.HOUSE else {"family": self._tour.family.value}
        return {**size, **family, **({"walk": self._tour.walk} if self._tour.walk else {})}

    def all_frames(self) -> Generator[PendingFrame, None, None]:
        world = self._tour.world()
        scene = Scene.of([world], self._device)
        steps = route(self._tour.family, world, self._tour.walk)
        for place, step in enumerate(islice(steps, self._num_frames)):
            yield PendingFrame(place / self._tour.fps, partial(self._draw, scene, step))

    def _draw(self, scene: Scene, step: Footstep) -> UInt8[np.ndarray, "height width 3"]:
        intrinsics = self._tour.intrinsics().to(self._device)
        cameras = Cameras(
            world_from_camera=torch.from_numpy(step.world_from_camera)[None, None].to(intrinsics),
            intrinsics=intrinsics[None, None],
            height=self._tour.height,
            width=self._tour.width,
        )
        image = render(scene, cameras).image[0, 0]
        return (image.movedim(0, -1) * 255).round().byte().cpu().numpy()


def open_world(text: str, sampling: FrameSampling = EVERY_FRAME, *, device: torch.device | str = "cpu") -> WorldTour:
    """A world as people write it: `world:7`, `world:7?frames=300&size=448x336&fps=10`, `world:7?family=outdoors`.

    `world:7?walk=1` goes another way through the same world.
    """
    seed, _, query = text.removeprefix("world:").partition("?")
    settings = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := settings.keys() - {"frames", "size", "fps", "family", "walk"}:
        others = ", ".join(sorted(unknown))
        raise InputError(f"A world has frames, size and fps, but no {others}; write {_EXAMPLE} or {_OTHER_EXAMPLE}.")
    family = family_named(settings.get("family", Family.HOUSE))
    width, _, height = settings.get("size", _SIZE).partition("x")
    try:
        tour = Tour(
            seed=_whole(seed),
            width=_whole(width),
            height=_whole(height),
            fps=_rate(settings.get("fps", _FPS)),
            family=family,
            walk=_whole(settings.get("walk", "0")),
        )
        num_frames = _whole(settings["frames"]) if "frames" in settings else None
    except ValueError as error:
        raise InputError(f"Expected a world such as {_EXAMPLE}, but got '{text}'.") from error
    return WorldTour(tour, sampling, num_frames=num_frames, device=device)


def _of_family(tour: Tour) -> str:
    return "" if tour.family is Family.HOUSE else f" of {tour.family}"


def _of_walk(tour: Tour) -> str:
    return f", walk {tour.walk}" if tour.walk else ""


def _rate(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(f"'{text}' is not finite")
    return float(text)


def _whole(text: str) -> int:
    if not re.fullmatch("[0-9]{1,15}", text):
        raise ValueError(f"'{text}' is not a whole number from 0 of at most 15 digits")
    return int(text)
