"""Worlds as tensors: what rays are cast at, and what surfaces are made of. Several worlds share a scene, padded alike.

solids    0        num_boxes   num_boxes + num_balls        num_solids
          │ boxes   │ balls     │ tapers                     │            padding lies where no ray goes
materials 0                                  3 num_rooms              num_materials
          │ walls, floor, ceiling of each room │ those of the parts    │
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from longtake.errors import SettingError
from longtake.world.content import Part, Room, World
from longtake.world.furniture import Shape, Solid
from longtake.world.materials import Material
from longtake.world.noise_textures import noise, shades

NOWHERE = 1e4
"""Where padding lies, in metres along every axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solids:
    """Solids of each world; `furniture.Shape` says what `half` means."""

    center: Float[Tensor, "houses solids 3"]
    half: Float[Tensor, "houses solids 3"]
    rotation: Float[Tensor, "houses solids 3 3"]
    """From a solid's own axes to the world's."""
    material: Int[Tensor, "houses solids"]
    """-1 where the room says."""
    thing: Int[Tensor, "houses solids"]
    """-1 for what is no thing."""
    own_pattern: Bool[Tensor, "houses solids"]
    num_boxes: int
    num_balls: int
    varied: bool
    """Whether some are tilted, or ellipsoids; if not, less has to be computed."""

    def pick(self, houses: Int[Tensor, "picked"]) -> "Solids":
        return self._at(houses, num_boxes=self.num_boxes, num_balls=self.num_balls)

    def gather(self, index: Int[Tensor, "houses picked"], *, num_boxes: int, num_balls: int) -> "Solids":
        """Some solids of each world."""
        house = torch.arange(len(index), device=index.device)[:, None]
        return self._at((house, index), num_boxes=num_boxes, num_balls=num_balls)

    def _at(self, place: Tensor | tuple[Tensor, Tensor], *, num_boxes: int, num_balls: int) -> "Solids":
        return Solids(
            center=self.center[place],
            half=self.half[place],
            rotation=self.rotation[place],
            material=self.material[place],
            thing=self.thing[place],
            own_pattern=self.own_pattern[place],
            num_boxes=num_boxes,
            num_balls=num_balls,
            varied=self.varied,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneSize:
    """How much of everything there is room for: scenes of one size have tensors of one shape, whatever their worlds."""

    boxes: int
    balls: int
    tapers: int
    rooms: int
    things: int
    materials: int
    """Beside those of the rooms."""
    varied: bool = False
    """Whether worlds may have what houses do not: tilted solids, ellipsoids, sky, sun, haze, decorated materials."""

    @classmethod
    def of(cls, house: World) -> "SceneSize":
        """The size that one world needs."""
        boxes, balls, tapers = (len(_of_shape(house, shape)) for shape in Shape)
        return cls(
            boxes=boxes,
            balls=balls,
            tapers=tapers,
            rooms=len(house.rooms),
            things=len(_standing(house)),
            materials=len(_own_materials(house)),
            varied=house.is_varied,
        )

    def __or__(self, other: "SceneSize") -> "SceneSize":
        """The smallest size that holds both."""
        return SceneSize(
            boxes=max(self.boxes, other.boxes),
            balls=max(self.balls, other.balls),
            tapers=max(self.tapers, other.tapers),
            rooms=max(self.rooms, other.rooms),
            things=max(self.things, other.things),
            materials=max(self.materials, other.materials),
            varied=self.varied or other.varied,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Several worlds, ready for rays."""

    solids: Solids
    num_things: int
    """Of the world with most, or more."""
    ceiling: Float[Tensor, "houses"]
    """Height of each world's ceiling above the floor, infinite where there is none."""
    room_low: Float[Tensor, "houses rooms 2"]
    room_high: Float[Tensor, "houses rooms 2"]
    light: Float[Tensor, "houses rooms 3"]
    materials: Float[Tensor, "houses materials numbers"]
    standing: Float[Tensor, "houses things 4"]
    """Where each thing stands, x and z, how far it reaches, and the height y it stands at."""
    surroundings: Float[Tensor, "houses settings"]
    noise: Float[Tensor, "texels 3"]
    """Grain, the same for all worlds; `noise_textures` says how it is made."""
    shades: Float[Tensor, "shades"]

    @property
    def varied(self) -> bool:
        return self.solids.varied

    @classmethod
    def of(cls, houses: Sequence[World], device: torch.device | str = "cpu", size: SceneSize | None = None) -> "Scene":
        """These worlds on a device; of a size that holds them all, or a larger one."""
        needed = reduce(or_, map(SceneSize.of, houses))
        size = needed if size is None else size
        if size | needed != size:
            raise SettingError(f"The worlds need a scene of {needed}, but one of {size} was asked for.")
        tables = [_materials(house, size.rooms) for house in houses]
        num_materials = 3 * size.rooms + size.materials
        empty = tables[0][0].row()
        nowhere = (NOWHERE, NOWHERE)
        return cls(
            solids=_solids(houses, tables, size, device),
            num_things=size.things,
            ceiling=torch.tensor([house.height for house in houses], device=device),
            room_low=_rows([[room.area.low for room in house.rooms] for house in houses], size.rooms, nowhere, device),
            room_high=_rows(
                [[room.area.high for room in house.rooms] for house in houses], size.rooms, nowhere, device
            ),
            light=_rows([[room.light for room in house.rooms] for house in houses], size.rooms, (0.0,) * 3, device),
            materials=_rows([[one.row() for one in table] for table in tables], num_materials, empty, device),
            standing=_rows([_standing(house) for house in houses], size.things, (*nowhere, 1.0, 0.0), device),
            surroundings=torch.tensor([house.surroundings.row() for house in houses], device=device),
            noise=noise().to(device),
            shades=shades().to(device),
        )

    def __len__(self) -> int:
        return len(self.ceiling)

    def pick(self, houses: Int[Tensor, "picked"]) -> "Scene":
        """Some of the worlds, in this order; a world may come several times."""
        return replace(
            self,
            solids=self.solids.pick(houses),
            ceiling=self.ceiling[houses],
            room_low=self.room_low[houses],
            room_high=self.room_high[houses],
            light=self.light[houses],
            materials=self.materials[houses],
            standing=self.standing[houses],
            surroundings=self.surroundings[houses],
        )


def _materials(house: World, num_rooms: int) -> list[Material]:
    """Every material once, after those of the rooms; missing rooms repeat the last."""
    rooms: list[Room] = [*house.rooms, *[house.rooms[-1]] * (num_rooms - len(house.rooms))]
    table = [material for room in rooms for material in (room.walls, room.floor, room.ceiling)]
    return [*table, *_own_materials(house)]


def _own_materials(house: World) -> list[Material]:
    return list(dict.fromkeys(part.material for part in house.parts if part.material is not None))


def _standing(house: World) -> list[tuple[float, float, float, float]]:
    """Middle and reach of what each thing covers of the floor, then those of what stands about without a name."""
    rows = []
    for index in range(len(house.things)):
        solids = [part.solid for part in house.parts if part.thing == index]
        x, z = (sum(solid.center[axis] for solid in solids) / len(solids) for axis in (0, 2))
        reach = max(math.hypot(s.center[0] - x, s.center[2] - z) + min(s.half[0], s.half[2]) for s in solids)
        rows.append((x, z, reach, 0.0))
    return [*rows, *((x, z, reach, y) for x, y, z, reach in house.shadows)]


def _solids(
    houses: Sequence[World], tables: Sequence[list[Material]], size: SceneSize, device: torch.device | str
) -> Solids:
    widths = {Shape.BOX: size.boxes, Shape.BALL: size.balls, Shape.TAPER: size.tapers}
    indices = [{material: index for index, material in enumerate(table)} for table in tables]

    def gather(rows: list[list[list[tuple[float, ...]]]], padding: tuple[float, ...]) -> Tensor:
        """Rows by shape and house, padded shape by shape."""
        return torch.cat(
            [_rows(of_shape, widths[shape], padding, device) for shape, of_shape in zip(Shape, rows, strict=True)],
            dim=1,
        )

    parts = [[_of_shape(house, shape) for house in houses] for shape in Shape]
    labels = gather(
        [
            [[_label(part, index) for part in of_house] for of_house, index in zip(of_shape, indices, strict=True)]
            for of_shape in parts
        ],
        (-1.0, -1.0, 0.0),
    ).long()
    angles = gather([[[_angles(part.solid) for part in of_house] for of_house in row] for row in parts], (0.0,) * 3)
    return Solids(
        center=gather([[[p.solid.center for p in of_house] for of_house in row] for row in parts], (NOWHERE,) * 3),
        half=gather([[[p.solid.half for p in of_house] for of_house in row] for row in parts], (0.0,) * 3),
        rotation=_rotation(angles),
        material=labels[..., 0],
        thing=labels[..., 1],
        own_pattern=labels[..., 2] > 0,
        num_boxes=size.boxes,
        num_balls=size.balls,
        varied=size.varied,
    )


def _of_shape(house: World, shape: Shape) -> list[Part]:
    return [part for part in house.parts if part.solid.shape is shape]


def _angles(solid: Solid) -> tuple[float, float, float]:
    return (solid.turn_rad, solid.pitch_rad, solid.roll_rad)


def _rotation(angles: Float[Tensor, "houses solids 3"]) -> Float[Tensor, "houses solids 3 3"]:
    """Roll about z, then pitch about x, then turn about y."""
    (turn_cos, pitch_cos, roll_cos), (turn_sin, pitch_sin, roll_sin) = (
        values.unbind(dim=-1) for values in (angles.cos(), angles.sin())
    )
    rows = [
        turn_cos * roll_cos + turn_sin * pitch_sin * roll_sin,
        turn_sin * pitch_sin * roll_cos - turn_cos * roll_sin,
        turn_sin * pitch_cos,
        pitch_cos * roll_sin,
        pitch_cos * roll_cos,
        -pitch_sin,
        turn_cos * pitch_sin * roll_sin - turn_sin * roll_cos,
        turn_sin * roll_sin + turn_cos * pitch_sin * roll_cos,
        turn_cos * pitch_cos,
    ]
    return torch.stack(rows, dim=-1).view(*angles.shape, 3)


def _label(part: Part, index: dict[Material, int]) -> tuple[float, float, float]:
    """Numbers of material and thing, -1 for none, and whether the pattern is its own."""
    material = -1 if part.material is None else index[part.material]
    return (float(material), -1.0 if part.thing is None else float(part.thing), float(part.own_pattern))


def _rows(
    lists: Sequence[Sequence[tuple[float, ...]]], count: int, padding: tuple[float, ...], device: torch.device | str
) -> Float[Tensor, "houses rows columns"]:
    """Lists of rows, filled up to the same count."""
    filled = [[*rows, *[padding] * (count - len(rows))] for rows in lists]
    return torch.tensor(filled, dtype=torch.float32, device=device).view(len(lists), count, len(padding))
