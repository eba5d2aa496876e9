"""`longtake world`: film a way through a procedural world and write it as a take with its truth."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from jaxtyping import UInt8
from PIL import Image
from rich.console import Console

from longtake.api.progress import plain_console
from longtake.cli.options import AsJson, Size, command_app, parse_size
from longtake.cli.progress import counted_steps
from longtake.cli.tables import show
from longtake.errors import SettingError
from longtake.runtime.execution import choose_device
from longtake.takes.depth_files import DepthFiles, step_for
from longtake.takes.folder_lock import locked
from longtake.takes.frames import TakeFrame, Visible
from longtake.takes.header import Content, TakeHeader
from longtake.takes.images import ImageFiles
from longtake.takes.writer import TakeWriter
from longtake.types import counted
from longtake.world.content import World
from longtake.world.families import Family, family_named
from longtake.world.house import House
from longtake.world.question import Question
from longtake.world.question_sampler import QuestionSampler
from longtake.world.seeds import split_of
from longtake.world.things import Sightings
from longtake.world.tour import Tour, View, sightings
from longtake.world.visibility import until
from longtake.world.walk import WALK_FPS

SHEET_NAME = "sheet.png"
_SHEET_COLUMNS, _SHEET_ROWS = 4, 3
_DEPTHS = ("png", "npz", "none")
_ASKED_EVERY_S = 5.0
_QUESTIONS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSettings:
    """What to film, and what to write."""

    out: Path
    seed: int
    family: Family = Family.HOUSE
    frames: int
    size: str
    fps: float = WALK_FPS
    images: str = "mp4"
    depth: str = "png"
    questions: int = 0
    device: str = "cpu"
    overwrite: bool = False


app = command_app()


@app.command()
def world(
    out: Annotated[Path, typer.Option(help="Folder to write; new or empty.")],
    seed: Annotated[int, typer.Option(min=0, help="Which world and which way through it.")] = 7,
    family: Annotated[str, typer.Option(help=f"{', '.join(Family)}.")] = Family.HOUSE.value,
    frames: Annotated[int, typer.Option(min=1, help="Length of the way.")] = 600,
    size: Size = "448x336",
    fps: Annotated[float, typer.Option(help="Frames a second.")] = WALK_FPS,
    images: Annotated[str, typer.Option(help="mp4, png or jpg.")] = "mp4",
    depth: Annotated[str, typer.Option(help="png (16 bits), npz (float32) or none.")] = "png",
    questions: Annotated[int | None, typer.Option(min=0, help="Questions to ask along the way; 40 in a house.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    overwrite: Annotated[bool, typer.Option(help="Replace a take that is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Film a walk through a procedural world, with its exact truth: poses, depth, what is visible, questions."""
    settings = WorldSettings(
        out=out,
        seed=seed,
        family=family_named(family),
        frames=frames,
        size=size,
        fps=fps,
        images=images,
        depth=depth,
        questions=_num_questions(questions, family_named(family)),
        device=device,
        overwrite=overwrite,
    )
    torch.set_num_threads(1)  # rays are cast in pieces too small to share
    seen, asked = film(settings, plain_console(stderr=as_json))
    record = _record(settings, seen, asked)
    filmed = f"{counted(len(seen), 'frame')} of {settings.family} {seed} ({record['split']})"
    if settings.family is Family.HOUSE:
        filmed += (
            f": {record['rooms_visited']} of {record['rooms']} rooms, {record['things_seen']} of {record['things']} "
            f"things, {counted(len(asked), 'question')}"
        )
    show(record, [f"{filmed}, in {out}"], as_json=as_json)


def _num_questions(asked_for: int | None, family: Family) -> int:
    if family is Family.HOUSE:
        return _QUESTIONS if asked_for is None else asked_for
    if asked_for:
        raise SettingError(f"Only houses can be asked about, but the family is {family}; leave the questions out.")
    return 0


def film(settings: WorldSettings, console: Console) -> tuple[Sightings, list[Question]]:
    """Write the take; return what was seen and asked."""
    height, width = parse_size(settings.size)
    tour = Tour(seed=settings.seed, width=width, height=height, fps=settings.fps, family=settings.family)
    house = tour.world()
    header = _header(settings, tour, house)
    sheet = _Sheet(settings.frames)
    device = choose_device(settings.device)
    with locked(settings.out), TakeWriter(settings.out, header, overwrite=settings.overwrite) as writer:
        views = islice(tour.views(device), settings.frames)
        steps = counted_steps(views, f"Filming {settings.family} {settings.seed}", settings.frames, console)
        seen = sightings(tour, house, _written(steps, tour, house, writer, sheet))
        questions = _ask(settings.seed, seen, settings.questions)
        if questions:
            writer.write_questions([question.to_json() for question in questions])
    sheet.save(settings.out / SHEET_NAME)
    return seen, questions


def _header(settings: WorldSettings, tour: Tour, house: World) -> TakeHeader:
    if settings.depth not in _DEPTHS:
        raise SettingError(f"Expected depth as {', '.join(_DEPTHS)}, but got '{settings.depth}'.")
    kinds = {"mp4": ImageFiles.VIDEO, "png": ImageFiles.PNG, "jpg": ImageFiles.JPEG}
    if settings.images not in kinds:
        raise SettingError(f"Expected images as {', '.join(kinds)}, but got '{settings.images}'.")
    depth = {"png": DepthFiles(step_for(house.farthest)), "npz": DepthFiles(None), "none": None}[settings.depth]
    return TakeHeader(
        content=Content.TRUTH,
        width=tour.width,
        height=tour.height,
        fps=tour.fps,
        images=kinds[settings.images],
        depth=depth,
        world={
            "seed": settings.seed,
            "family": settings.family.value,
            "split": split_of(settings.seed).value,
            **(_inventory(tour.house()) if tour.family is Family.HOUSE else {}),
        },
    )


def _inventory(house: House) -> dict[str, Any]:
    """Rooms and things, which have names in houses alone."""
    return {
        "ceiling_m": house.height,
        "rooms": [{"name": room.colour, "low": room.area.low, "high": room.area.high} for room in house.rooms],
        "doors": [{"position": door.position, "width": door.width} for door in house.plan.doors],
        "things": [
            {"name": thing.name, "colour": thing.colour, "kind": thing.kind, "room": house.rooms[thing.room].colour}
            for thing in house.things
        ],
    }


def _written(views: Iterable[View], tour: Tour, house: World, writer: TakeWriter, sheet: "_Sheet") -> Iterator[View]:
    """Each view, once it is on its way to the disk."""
    for view in views:
        image = (view.image.movedim(0, -1) * 255).round().byte().cpu().numpy()
        sheet.add(view.index, image)
        writer.write(
            TakeFrame(
                index=view.index,
                timestamp_s=view.timestamp_s,
                world_from_camera=view.world_from_camera,
                intrinsics=view.intrinsics.cpu(),
                image=image,
                depth=None if writer.header.depth is None else view.depth.cpu().numpy(),
                room=house.rooms[view.room].colour if tour.family is Family.HOUSE else None,
                visible=tuple(
                    Visible(thing.name, int(pixels), float(column))
                    for thing, pixels, column in zip(house.things, view.pixels, view.column, strict=True)
                    if pixels > 0
                ),
            )
        )
        yield view


def _ask(seed: int, seen: Sightings, wanted: int) -> list[Question]:
    """Questions along the way, a few every five seconds, until there are as many as wanted."""
    if wanted == 0:
        return []
    frames_between = max(1, round(_ASKED_EVERY_S / (seen.timestamp_s[1] - seen.timestamp_s[0]))) if len(seen) > 1 else 1
    stops = [*range(frames_between, len(seen), frames_between), len(seen)]
    sampler = QuestionSampler(np.random.default_rng([seed, 3]))
    asked: list[Question] = []
    for place, stop in enumerate(stops):
        share = math.ceil((wanted - len(asked)) / (len(stops) - place))
        asked += sampler.ask(until(seen, stop), share)
    return asked[:wanted]


class _Sheet:
    """A dozen frames, evenly spaced, on one picture."""

    def __init__(self, num_frames: int) -> None:
        count = min(num_frames, _SHEET_COLUMNS * _SHEET_ROWS)
        self._shown = {round(index) for index in np.linspace(0, num_frames - 1, count)}
        self._tiles: list[UInt8[np.ndarray, "height width 3"]] = []

    def add(self, index: int, image: UInt8[np.ndarray, "height width 3"]) -> None:
        if index in self._shown:
            self._tiles.append(image)

    def save(self, path: Path) -> None:
        height, width, _ = self._tiles[0].shape
        sheet = np.zeros((_SHEET_ROWS * height, _SHEET_COLUMNS * width, 3), np.uint8)
        for place, tile in enumerate(self._tiles):
            row, column = divmod(place, _SHEET_COLUMNS)
            sheet[row * height : (row + 1) * height, column * width : (column + 1) * width] = tile
        rows = math.ceil(len(self._tiles) / _SHEET_COLUMNS)
        Image.fromarray(sheet[: rows * height]).save(path)


def _record(settings: WorldSettings, seen: Sightings, questions: list[Question]) -> dict[str, Any]:
    return {
        "folder": str(settings.out),
        "frames": len(seen),
        "seconds": len(seen) / settings.fps,
        "rooms": len(seen.rooms),
        "rooms_visited": len(set(seen.room.tolist())),
        "things": len(seen.things),
        "things_seen": int((seen.pixels > 0).any(axis=0).sum()),
        "questions": len(questions),
        "split": split_of(settings.seed).value,
    }
