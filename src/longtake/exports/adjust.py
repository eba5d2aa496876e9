"""Corrections before an export: a known camera, a metric scale, a level floor."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from longtake.errors import SettingError
from longtake.exports.cameras import KnownCamera, shared_camera
from longtake.exports.floor import Floor, floor_of
from longtake.exports.frame import MappedFrame
from longtake.exports.saved import saved_frames
from longtake.exports.scale import KnownHeight, KnownLength, metres_per_unit
from longtake.spatial.similarity import Similarity
from longtake.takes.header import Unit
from longtake.takes.take import Take


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportAdjustments:
    """Corrections that were asked for."""

    camera: KnownCamera | None = None
    fixed_camera: bool = False
    """One camera for all frames, found from the estimates of all."""
    length: KnownLength | None = None
    upright: bool = False

    def __post_init__(self) -> None:
        if self.camera is not None and self.fixed_camera:
            raise SettingError("A camera that is known needs no estimate; leave out intrinsics or fixed camera.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjustment:
    """The camera, scale and world that each frame of one take is exported with."""

    camera: KnownCamera | None = None
    metres_per_unit: float | None = None
    floor: Floor | None = None
    """In the take's world; the exported one is turned and moved by it. None leaves the world as it is."""
    unit: Unit = Unit.MODEL

    @property
    def exported_from_saved(self) -> Similarity:
        scale = torch.tensor(self.metres_per_unit or 1.0, dtype=torch.float64)
        larger = Similarity(scale, torch.eye(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64))
        return larger if self.floor is None else larger @ self.floor.upright_from_world()

    def of(self, frame: MappedFrame) -> MappedFrame:
        """A frame with its camera replaced, then its pose and depth moved into the exported world."""
        seen = frame if self.camera is None else self.camera.of(frame)
        if self.floor is None and self.metres_per_unit is None:
            return seen
        pose = self.exported_from_saved.of_cameras(seen.world_from_camera)
        depth = seen.depth if self.metres_per_unit is None else seen.depth * seen.depth.dtype.type(self.metres_per_unit)
        return replace(seen, world_from_camera=pose, depth=depth)


def plan_adjustment(take: Take, adjustments: ExportAdjustments) -> Adjustment:
    """Look through the take for what the adjustments need: all cameras, or the floor."""
    camera = shared_camera(take) if adjustments.fixed_camera else adjustments.camera
    needs_floor = adjustments.upright or isinstance(adjustments.length, KnownHeight)
    floor = floor_of(take, camera) if needs_floor else None
    scale = None if adjustments.length is None else metres_per_unit(adjustments.length, take, floor)
    return Adjustment(
        camera=camera,
        metres_per_unit=scale,
        floor=floor if adjustments.upright else None,
        unit=take.header.unit if scale is None else Unit.METRE,
    )


def adjusted_frames(take: Take, adjustment: Adjustment) -> Iterator[MappedFrame]:
    """All frames of a take as they are exported, one at a time."""
    for frame in saved_frames(take):
        yield adjustment.of(frame)
