"""Whether a session knows when it is lost, and finds itself again: walks that are cut, kidnapped, darkened, stopped."""

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import torch
import typer
from jaxtyping import UInt8
from torch import Tensor

from benchmarks.loop_walks import follow, pose_errors, required_card
from longtake.cli.options import AsJson, Families, split_names
from longtake.cli.progress import counting
from longtake.cli.tables import show, table
from longtake.errors import SettingError
from longtake.geometry.model import GeometryModel
from longtake.hub.load import load_model
from longtake.places.loop_card import LoopCard
from longtake.places.looped_session import LoopedSession
from longtake.places.verification import Verifier
from longtake.runtime.build import open_session, usual_settings
from longtake.types import Geometry, Tracking, TrackingState
from longtake.world.families import Family, families_named
from longtake.world.seeds import Split, seeds
from longtake.world.tour import Tour

_SIZE = (98, 126)
_AWAY = 50
"""Frames in another world, in the dark or of one picture: five seconds."""
_KIDNAPPED = 60
"""Frames of the way that a kidnapped camera does not see."""
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

    family: str
    seed: int
    film: str
    breaks: int
    detected: int
    """Of those, how many were followed by `lost` within a second."""
    delay_frames: int | None
    """Of the slowest that was."""
    false_lost: int
    """Times that it was lost elsewhere."""
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


def tracking(
    *,
    family: Families = Family.HOUSE.value,
    worlds: Annotated[int, typer.Option(min=1, help="Unseen ones of each family.")] = 3,
    frames: Annotated[int, typer.Option(min=60, help="Of each walk.")] = 400,
    films: Annotated[str, typer.Option(help="Some of walk, cut, kidnapped, dark, still.")] = "all",
    split: Annotated[Split, typer.Option(help="Which worlds.")] = Split.VALIDATION,
    model: Annotated[str, typer.Option(help="A geometry model with a card of loops.")] = "micro-map",
    as_json: AsJson = False,
) -> None:
    """Walks that are cut, kidnapped, darkened or stopped in their middle: when that is noticed, and what is found."""
    torch.set_num_threads(1)
    card = required_card(model)
    wanted = FILMS if films == "all" else tuple(films.split(","))
    if unknown := set(wanted) - set(FILMS):
        raise SettingError(f"Expected films among {', '.join(FILMS)}, but got {sorted(unknown)}.")
    network, families, figures = load_model(model).eval(), families_named(split_names(family)), []
    with counting("walking", len(families) * worlds * len(wanted)) as advance:
        for one in families:
            for seed in itertools.islice(seeds(split), worlds):
                for film in films_of(one, seed, frames, wanted):
                    figures.append(tracked(network, card, film, one, seed))
                    advance(1)
    rows = [
        [
            *(one.family, str(one.seed), one.film, f"{one.detected} of {one.breaks}", _or_none(one.delay_frames)),
            *(str(one.false_lost), str(one.weak), f"{one.sub_maps}, {one.worlds}", _or_none(one.found_after)),
            *(_or_none(one.metres), _or_none(one.degrees), f"{one.share:.2f}"),
        ]
        for one in figures
    ]
    headings = [
        *("family", "seed", "film", "lost", "frames late", "false", "weak", "sub-maps, worlds", "found after"),
        *("m", "degrees", "share"),
    ]
    show([asdict(one) for one in figures], [table(headings, rows)], as_json=as_json)


def films_of(family: Family, seed: int, frames: int, wanted: Sequence[str]) -> list[Film]:
    """The same walk, whole and disturbed in its middle."""
    shots, half = _filmed(family, seed, frames + _KIDNAPPED), frames // 2
    blind = range(half, half + _AWAY)
    made = []
    for name in wanted:
        if name == "walk":
            made.append(Film(name, shots[:frames], (), range(0)))
        elif name == "cut":
            elsewhere = [Shot(shot.image, None) for shot in _filmed(family, seed + 100, _AWAY)]
            breaks = (half, half + _AWAY)
            made.append(Film(name, [*shots[:half], *elsewhere, *shots[half:frames]], breaks, range(0)))
        elif name == "kidnapped":
            made.append(Film(name, [*shots[:half], *shots[half + _KIDNAPPED :]], (half,), range(0)))
        elif name == "dark":
            dark = [Shot(torch.zeros_like(shot.image), None) for shot in shots[half : half + _AWAY]]
            made.append(Film(name, [*shots[:half], *dark, *shots[half + _AWAY : frames]], (half,), blind))
        else:
            still = [shots[half]] * _AWAY
            made.append(Film(name, [*shots[:half], *still, *shots[half:frames]], (), blind))
    return made


def tracked(network: GeometryModel, card: LoopCard, film: Film, family: Family, seed: int) -> TrackingFigures:
    """One film to its end."""
    session = LoopedSession(open_session(network, usual_settings(network.config), _SIZE), Verifier(card))
    known, said, found = dict[int, Tensor](), dict[int, Tracking](), list[int]()
    for number, shot in enumerate(film.shots):
        geometry = session.step(shot.image)
        _hear(known, said, geometry)
        if any(one.state is TrackingState.RELOCALISED for one in geometry.tracking or ()):
            found.append(number)
    _hear(known, said, session.finish())
    walk = session.walk
    assert walk.graph is not None
    islands = walk.graph.islands()
    nodes = [walk.node_of(frame) for frame in range(len(film.shots))]
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
        errors = pose_errors(torch.stack([known[frame] for frame in placed]), truth)
    return TrackingFigures(
        family=family.value,
        seed=seed,
        film=film.name,
        breaks=len(film.breaks),
        detected=len(noticed),
        delay_frames=max(noticed, default=None),
        false_lost=len(begins),
        weak=sum(said[frame].state is TrackingState.WEAK for frame in of_walk if frame not in film.is_blind),
        sub_maps=len({one.sub_map for one in said.values() if one.sub_map is not None}),
        worlds=len({int(islands[node]) for node in set(nodes) if not walk.is_lost[node]}),
        found_after=min((frame - back for frame in found if frame >= back), default=None),
        metres=None if errors is None else errors.metres,
        degrees=None if errors is None else errors.degrees,
        share=len(placed) / len(of_walk),
    )


def _filmed(family: Family, seed: int, frames: int) -> list[Shot]:
    tour = Tour(seed=seed, width=_SIZE[1], height=_SIZE[0], family=family)
    views = itertools.islice(tour.views(), frames)
    return [Shot((view.image * 255).round().byte(), view.world_from_camera.double()) for view in views]


def _hear(known: dict[int, Tensor], said: dict[int, Tracking], geometry: Geometry) -> None:
    follow(known, geometry)
    said |= dict(zip(geometry.frame_index, geometry.tracking or (), strict=True))


def _or_none(number: int | float | None) -> str:
    if number is None:
        return "-"
    return str(number) if isinstance(number, int) else f"{number:.3f}"
