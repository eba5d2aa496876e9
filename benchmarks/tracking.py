"""Whether a session knows when it is lost, and finds itself again: walks that are cut, kidnapped, darkened, stopped."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import UInt8
from rich.table import Table
from torch import Tensor

from benchmarks.following import Followed, pose_errors
from benchmarks.loop_network import SIZE, LoopNetwork, loop_network
from benchmarks.many_worlds import Row, Task
from longtake.cli.tables import table
from longtake.errors import SettingError
from longtake.places.looped_session import LoopedSession
from longtake.places.verification import Verifier
from longtake.types import Geometry, Tracking, TrackingState
from longtake.world.families import Family
from longtake.world.seeds import Split, seeds
from longtake.world.tour import Tour

_AWAY = 50
"""Frames in another world, in the dark or of one picture: five seconds."""
_KIDNAPPED = 60
"""Frames of the way that a kidnapped camera does not see."""
_MOST_RATIO = 1.5
"""Of the error of a film and that of the walk, whole."""
FILMS = ("walk", "cut", "kidnapped", "dark", "still")
"""The first of nothing but ordinary frames."""


@dataclass(frozen=True, slots=True)
class Shot:
    """A frame as it is shown, and where it was taken if that is in the world of the walk."""

    image: UInt8[Tensor, "3 height width"]
    world_from_camera: Tensor | None


@dataclass(frozen=True, slots=True)
class Film:
    """What is shown to a session."""

    name: str
    shots: list[Shot]
    breaks: tuple[int, ...]
    """Frames with which the camera is to be lost."""
    is_blind: range
    """Frames that tell nothing of the world, in which it may be lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingFigures:
    """Of one film."""

    breaks: int
    detected: int
    """Of those, how many were followed by `lost` within a second."""
    delay_frames: int | None
    """Of the slowest that was."""
    false_lost: list[int]
    """Frames with which it was lost elsewhere."""
    weak: int
    """Frames of the walk that are."""
    sub_maps: int
    worlds: int
    """Sub-maps that are left when those that were joined are one."""
    found_after: int | None
    """Frames from when the walk's world was seen again until a place was known again."""
    metres: float | None
    """Root mean square of positions after one similarity, of frames in the world of the first; None of too few."""
    degrees: float | None
    share: float
    """Of the frames of the walk those that lie in the world of the first."""


def tracking_tasks(
    families: Sequence[Family], split: Split, worlds: int, frames: int, films: Sequence[str], model: str
) -> list[Task]:
    """Each film of each world."""
    if unknown := set(films) - set(FILMS):
        raise SettingError(f"Expected films among {', '.join(FILMS)}, but got {sorted(unknown)}.")
    return [
        {"family": family.value, "seed": seed, "film": film, "frames": frames, "model": model}
        for family in families
        for seed in itertools.islice(seeds(split), worlds)
        for film in films
    ]


def tracking_figures(task: Task) -> dict[str, Any]:
    """One film to its end."""
    film = film_of(Family(task["family"]), task["seed"], task["frames"], task["film"])
    return asdict(tracked(loop_network(task["model"]), film))


def tracking_blocks(rows: Sequence[Row]) -> Iterator[Table | str]:
    """A line a film, and what those of each kind come to."""
    headings = [
        *("family", "seed", "film", "lost", "frames late", "false", "weak", "sub-maps, worlds", "found after"),
        *("m", "degrees", "share", "m over the walk's"),
    ]
    whole = {_world(row): row.figures["metres"] for row in rows if row.task["film"] == "walk"}
    yield table(headings, (_cells(row, whole.get(_world(row))) for row in rows))
    for film in FILMS:
        if some := [row for row in rows if row.task["film"] == film]:
            yield f"{film}: {_summary(some, whole)}"


def _world(row: Row) -> tuple[Any, ...]:
    return tuple(row.task[name] for name in ("family", "seed", "frames", "model"))


def _summary(rows: Sequence[Row], whole: dict[tuple[Any, ...], float | None]) -> str:
    def total(name: str) -> int:
        return sum(row.figures[name] for row in rows)

    false = sum(len(row.figures["false_lost"]) for row in rows)
    found = [row.figures["found_after"] for row in rows if row.figures["found_after"] is not None]
    ratios = [
        row.figures["metres"] / reference
        for row in rows
        if (reference := whole.get(_world(row))) and row.figures["metres"] is not None
    ]
    said = (
        f"{len(rows)} films; {total('detected')} of {total('breaks')} breaks noticed within a second; {false} false "
        f"alarms in {sum(row.task['frames'] for row in rows)} frames; found again in {len(found)}, "
        f"after {sorted(found)} frames"
    )
    if not ratios:
        return said
    above = sum(ratio > _MOST_RATIO for ratio in ratios)
    return f"{said}; errors over the walk's at most {max(ratios):.2f}, above {_MOST_RATIO} in {above} of {len(ratios)}"


def _cells(row: Row, whole: float | None) -> list[str]:
    one, task = row.figures, row.task
    ratio = one["metres"] / whole if whole and one["metres"] is not None else None
    return [
        *(task["family"], str(task["seed"]), task["film"]),
        *(f"{one['detected']} of {one['breaks']}", _or_none(one["delay_frames"]), str(len(one["false_lost"]))),
        *(str(one["weak"]), f"{one['sub_maps']}, {one['worlds']}", _or_none(one["found_after"])),
        *(_or_none(one["metres"]), _or_none(one["degrees"]), f"{one['share']:.2f}", _or_none(ratio)),
    ]


def film_of(family: Family, seed: int, frames: int, name: str) -> Film:
    """A walk, whole or disturbed in its middle."""
    shots, half = _filmed(family, seed, frames + _KIDNAPPED), frames // 2
    blind = range(half, half + _AWAY)
    if name == "walk":
        return Film(name, shots[:frames], (), range(0))
    if name == "cut":
        elsewhere = [Shot(shot.image, None) for shot in _filmed(family, seed + 100, _AWAY)]
        return Film(name, [*shots[:half], *elsewhere, *shots[half:frames]], (half, half + _AWAY), range(0))
    if name == "kidnapped":
        return Film(name, [*shots[:half], *shots[half + _KIDNAPPED :]], (half,), range(0))
    if name == "dark":
        dark = [Shot(torch.zeros_like(shot.image), None) for shot in shots[half : half + _AWAY]]
        return Film(name, [*shots[:half], *dark, *shots[half + _AWAY : frames]], (half,), blind)
    return Film(name, [*shots[:half], *[shots[half]] * _AWAY, *shots[half:frames]], (), blind)


def tracked(network: LoopNetwork, film: Film) -> TrackingFigures:
    """One film, shown to a session."""
    session = LoopedSession(network.open(), Verifier(network.card))
    followed, said, found = Followed(), dict[int, Tracking](), list[int]()
    for number, shot in enumerate(film.shots):
        geometry = session.step(shot.image)
        _hear(followed, said, geometry)
        if any(one.state is TrackingState.RELOCALISED for one in geometry.tracking or ()):
            found.append(number)
    _hear(followed, said, session.finish())
    walk = session.walk
    assert walk.graph is not None
    islands = walk.graph.islands()
    nodes = [walk.nodes.of_frame(frame) for frame in range(len(film.shots))]
    lost = [frame for frame, one in said.items() if one.state is TrackingState.LOST]
    of_walk = [frame for frame, shot in enumerate(film.shots) if shot.world_from_camera is not None]
    placed = [frame for frame in of_walk if islands[nodes[frame]] == 0]
    delays = [min((frame - at for frame in lost if at <= frame <= at + 10), default=None) for at in film.breaks]
    noticed = [delay for delay in delays if delay is not None]
    explained = {frame for at in film.breaks for frame in range(at, at + 11)} | set(film.is_blind)
    explained |= {frame + 1 for frame in film.is_blind}
    begins = [frame for frame in lost if frame - 1 not in lost and frame not in explained]
    back = max((*film.breaks, *film.is_blind), default=0)
    errors = None
    if len(placed) > 8:
        truth = torch.stack([pose for frame in placed if (pose := film.shots[frame].world_from_camera) is not None])
        errors = pose_errors(torch.stack([followed.cameras[frame] for frame in placed]), truth)
    return TrackingFigures(
        breaks=len(film.breaks),
        detected=len(noticed),
        delay_frames=max(noticed, default=None),
        false_lost=begins,
        weak=sum(said[frame].state is TrackingState.WEAK for frame in of_walk if frame not in film.is_blind),
        sub_maps=len({one.sub_map for one in said.values() if one.sub_map is not None}),
        worlds=len({int(islands[node]) for node in set(nodes) if not walk.nodes.is_lost[node]}),
        found_after=min((frame - back for frame in found if frame >= back), default=None),
        metres=None if errors is None else errors.metres,
        degrees=None if errors is None else errors.degrees,
        share=len(placed) / len(of_walk),
    )


def _filmed(family: Family, seed: int, frames: int) -> list[Shot]:
    tour = Tour(seed=seed, width=SIZE[1], height=SIZE[0], family=family)
    views = itertools.islice(tour.views(), frames)
    return [Shot((view.image * 255).round().byte(), view.world_from_camera.double()) for view in views]


def _hear(followed: Followed, said: dict[int, Tracking], geometry: Geometry) -> None:
    followed.hear(geometry)
    said |= dict(zip(geometry.frame_index, geometry.tracking or (), strict=True))


def _or_none(number: int | float | None) -> str:
    if number is None:
        return "-"
    return str(number) if isinstance(number, int) else f"{number:.3f}"
