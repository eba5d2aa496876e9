"""Rooms: houses of the same plans with surfaces, lights and things of every sort, and cameras at any height."""

from dataclasses import replace

import numpy as np

from longtake.world.content import INDOORS, Part, Room, Surroundings
from longtake.world.furniture import Shape, Solid, triple
from longtake.world.house import WALL_HALF, House, fixtures, place, upright, walls_of
from longtake.world.materials import Material, glow, light_tone, random_material
from longtake.world.occupancy import Occupancy
from longtake.world.placing import Placing
from longtake.world.plan import Plan, Rectangle, draw_plan
from longtake.world.things import Colour, Kind
from longtake.world.tracks import Motion, Track, any_motion
from longtake.world.walk import way

_MOTIONS = {Motion.WALK: 0.55, Motion.HANDHELD: 0.3, Motion.TURN: 0.1, Motion.STILL: 0.05}
_LOWEST_EYE, _HIGHEST_EYE = 0.4, 2.2
_HEAD_ROOM = 0.25
_CLEARANCE = 0.12
_TRIES = 10


def build_rooms(seed: int, rng: np.random.Generator) -> House:
    """The rooms of this seed."""
    height = float(rng.uniform(2.2, 4.5))
    plan = _with_other_doors(draw_plan(rng), height, rng)
    rooms = _paint(plan, rng)
    placing = Placing(None)
    for solid in walls_of(plan, height):
        placing.add((solid, None), own_pattern=False)
    for part in fixtures(plan, rooms, height, rng):
        placing.add((part.solid, _other(part, rng)), own_pattern=False)
    _hang_on_walls(placing, plan, height, rng)
    occupancy = _furnish(placing, plan, rooms, height, rng)
    house = House(
        seed=seed,
        plan=plan,
        height=height,
        rooms=rooms,
        things=(),
        parts=placing.parts,
        occupancy=occupancy,
        surroundings=_lights(rng),
        shadows=placing.shadows,
    )
    motion = any_motion(_MOTIONS, rng)
    if motion is Motion.WALK:
        return house
    points = way(house, rng, eye_height(house, rng))
    return replace(house, track=Track(motion=motion, points=points, is_closed=False, clearance=_CLEARANCE))


def eye_height(house: House, rng: np.random.Generator) -> float:
    """Anything that goes through all doors."""
    return float(
        rng.uniform(_LOWEST_EYE, min(_HIGHEST_EYE, min(door.height for door in house.plan.doors) - _HEAD_ROOM))
    )


def _with_other_doors(plan: Plan, height: float, rng: np.random.Generator) -> Plan:
    lintel = min(float(rng.uniform(1.95, 2.6)), height - 0.05)
    return replace(plan, doors=tuple(replace(door, height=lintel) for door in plan.doors))


def _paint(plan: Plan, rng: np.random.Generator) -> tuple[Room, ...]:
    """Surfaces of any sort; names only, for walls have any colour here."""
    rooms = []
    for area, colour in zip(plan.rooms, Colour, strict=False):
        bright, tint = rng.uniform(0.55, 1.15), 1 + rng.uniform(-0.15, 0.15, size=3)
        rooms.append(
            Room(
                area=area,
                colour=colour,
                walls=random_material(rng, 1.0, light_tone(rng)),
                floor=random_material(rng, 1.0),
                ceiling=random_material(rng, 1.0, light_tone(rng)),
                light=triple(bright * tint),
            )
        )
    return tuple(rooms)


def _lights(rng: np.random.Generator) -> Surroundings:
    """Light from one side beside the lamps, as through windows, and an exposure."""
    bearing, up = float(rng.uniform(0, 2 * np.pi)), float(rng.uniform(0.2, 1))
    strength, around = float(rng.choice([0.0, rng.uniform(0, 0.5)])), float(rng.uniform(0, 0.2))
    level = float(np.sqrt(1 - up * up))
    return replace(
        INDOORS,
        to_sun=(level * float(np.sin(bearing)), -up, level * float(np.cos(bearing))),
        sun=(strength, strength, 0.92 * strength),
        ambient=(around, around, around),
        exposure=float(rng.uniform(0.85, 1.25)),
    )


def _other(part: Part, rng: np.random.Generator) -> Material | None:
    """What shines stays as it is, what does not may be of anything."""
    is_kept = part.material is None or part.material.glow > 0 or rng.random() < 0.5
    return part.material if is_kept else random_material(rng, 0.4)


def _hang_on_walls(placing: Placing, plan: Plan, height: float, rng: np.random.Generator) -> None:
    """Panels, boards and boxes, flat against the walls and away from doors."""
    for wall in plan.walls:
        for _ in range(int(rng.integers(0, 4))):
            half = float(rng.uniform(0.08, 0.5))
            if wall.stop - wall.start < 2 * half + 0.6:
                continue
            middle = float(rng.uniform(wall.start + half + 0.2, wall.stop - half - 0.2))
            if any(
                door.wall == wall and abs(door.middle - middle) < door.width / 2 + half + 0.15 for door in plan.doors
            ):
                continue
            low = float(rng.uniform(0.2, height - 0.6))
            high = min(low + float(rng.uniform(0.15, 1.0)), height - 0.1)
            deep = WALL_HALF + float(rng.uniform(0.01, 0.09))
            material = random_material(rng, half)
            if rng.random() < 0.3:
                material = replace(material, mark=0.9, mark_size=0.15 * half)
            placing.add((upright(wall, middle - half, middle + half, (low, high), deep), material))


def _furnish(
    placing: Placing, plan: Plan, rooms: tuple[Room, ...], height: float, rng: np.random.Generator
) -> Occupancy:
    """Furniture, heaps of boxes, leaning and hanging things, as long as every door stays open."""
    occupancy = Occupancy.of_plan(plan, WALL_HALF)
    palette = [random_material(rng, float(np.exp(rng.uniform(-2, 0)))) for _ in range(20)]
    palette += [glow((1.0, 0.9, 0.75))] if rng.random() < 0.5 else []
    for room in rooms:
        for _ in range(int(rng.integers(4, 13))):
            kind = Kind(rng.choice([kind.value for kind in Kind]))
            if rng.random() < 0.5:
                solids, footprint = _unusual(room.area, height, rng)
                is_free = occupancy.allows(footprint) and occupancy.with_solids(footprint).every_door_is_open
                placed = (solids, footprint) if is_free else None
            else:
                found = place(kind, room.area, occupancy, rng)
                placed = None if found is None else ((*found, *_on_boards(kind, found, rng)), found)
            if placed is None:
                continue
            solids, footprint = placed
            coats = [palette[int(rng.integers(len(palette)))] for _ in solids]
            if kind is not Kind.SHELF and rng.random() < 0.5:
                coats = [coats[0]] * len(solids)
            if placing.add(*zip(solids, coats, strict=True)):
                occupancy = occupancy.with_solids(footprint)
                x, _, z = footprint[0].center
                placing.shade(x, 0.0, z, max(footprint[0].half[0], footprint[0].half[2], 0.15))
    return occupancy


def _unusual(area: Rectangle, height: float, rng: np.random.Generator) -> tuple[tuple[Solid, ...], tuple[Solid, ...]]:
    """A heap, a leaning board or something that hangs, and the box that a camera keeps clear of."""
    x, z = (float(rng.uniform(low + 0.4, high - 0.4)) for low, high in zip(area.low, area.high, strict=True))
    turn = float(rng.uniform(0, 2 * np.pi))
    style = int(rng.integers(3))
    if style == 0:
        solids, top = [], 0.0
        for _ in range(int(rng.integers(1, 5))):
            half = triple(rng.uniform(0.08, 0.28, size=3))
            solids.append(Solid(Shape.BOX, (x, top - half[1], z), half, turn + float(rng.normal(0, 0.3))))
            top -= 2 * half[1]
        reach = 0.36
    elif style == 1:
        half_y, lean = float(rng.uniform(0.3, 0.9)), float(rng.uniform(0.1, 0.45))
        board = (float(rng.uniform(0.05, 0.4)), half_y, float(rng.uniform(0.01, 0.05)))
        solids = [Solid(Shape.BOX, (x, -half_y * float(np.cos(lean)), z), board, turn, lean)]
        reach = max(board[0], half_y * float(np.sin(lean)) + board[2])
    else:
        radius, low = float(rng.uniform(0.1, 0.3)), float(rng.uniform(0.5, height - 0.6))
        cord = Solid(Shape.TAPER, (x, -(low + height) / 2, z), (0.01, (height - low) / 2, 0.01))
        half = (radius, radius * float(rng.uniform(0.4, 1)), radius * float(rng.uniform(0.6, 1)))
        shape = Shape(int(rng.integers(3)))
        solids = [cord, Solid(shape, (x, -low, z), half, turn, *(float(a) for a in rng.uniform(-0.5, 0.5, size=2)))]
        reach = 1.2 * radius
    return tuple(solids), (Solid(Shape.BOX, (x, -0.5, z), (reach, 0.5, reach)),)


def _on_boards(kind: Kind, solids: tuple[Solid, ...], rng: np.random.Generator) -> tuple[Solid, ...]:
    """Small boxes on the boards of a shelf, some of them tilted."""
    if kind is not Kind.SHELF:
        return ()
    boards = [solid for solid in solids if solid.half[1] < 0.03 < solid.half[0]]
    small = []
    for board in boards[:-1]:
        for _ in range(int(rng.integers(1, 6))):
            half = rng.uniform([0.015, 0.05, 0.04], [0.05, 0.13, 0.09])
            along = float(rng.uniform(-0.8, 0.8)) * board.half[0]
            box = Solid(Shape.BOX, (along, 0.0, -0.02), triple(half))
            x, y, z = board.center
            placed = box.moved(x, y - board.half[1] - float(half[1]), z, board.turn_rad)
            small.append(replace(placed, roll_rad=float(rng.choice([0.0, 0.15]))))
    return tuple(small)
