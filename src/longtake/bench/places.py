"""Whether a model knows a place again: some frames of it, then some of the same place much later, or of another world.

old                       new                     shown to one session, one after the other
│ 0  1  2  3  4  5  6  7  │ 8  9 10 11 12 13 14 15 │
                       └─┬─┘
        at most 0.5 m and 25 degrees apart, 40 frames or more between them, and away in between
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from longtake.bench.workers import Workers
from longtake.errors import InputError, SettingError
from longtake.evaluation.motion import motion, rotation_angle_deg, rotation_error_deg
from longtake.geometry.model import GeometryModel
from longtake.runtime.build import SessionSettings, open_session
from longtake.spatial.overlap import overlaps
from longtake.types import Geometry
from longtake.world.families import Family
from longtake.world.seeds import Split, seeds
from longtake.world.tour import Tour

STRETCH = 8
"""Frames of a place, and of the same place again."""
_NEAREST_FRAMES = 40
_NEAR_M, _NEAR_DEG = 0.5, 25.0
_MOST_TRIED = 10
"""Worlds for each place that is wanted: some ways never come back."""
KEPT_SHARE = 0.9
"""Of the true pairs, which the threshold on confidence keeps."""

_Each = TypeVar("_Each")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceSettings:
    """Which places are shown, and how."""

    session: SessionSettings
    num_places: int
    size: tuple[int, int]
    """Height and width."""
    way: int = 1000
    """Frames of each world within which it comes back."""
    split: Split = Split.TEST
    family: Family = Family.HOUSE

    def __post_init__(self) -> None:
        if self.num_places < 2:
            raise SettingError(
                f"Expected 2 places at least, of which each is strange to the other, got {self.num_places}."
            )
        if self.way < 2 * STRETCH + _NEAREST_FRAMES:
            least = 2 * STRETCH + _NEAREST_FRAMES
            raise SettingError(f"Expected ways of {least} frames at least, to come back on, but got {self.way}.")

    @property
    def num_steps(self) -> int:
        """Pairs to be shown, true and strange."""
        return 2 * self.num_places

    def seeds(self) -> list[int]:
        """Of the worlds that are looked through for places, until there are enough."""
        return list(itertools.islice(seeds(self.split), _MOST_TRIED * self.num_places))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Two stretches of one way that see the same."""

    seed: int
    old: int
    """The first frame of each stretch."""
    new: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairQuality:
    """What a session said of the new frames of a pair."""

    seed: int
    turn_error_deg: float
    """Median over new frames of how wrong the turn since the first old frame is."""
    turn_deg: float
    """How far it is truly turned: the error of one who says that it is not."""
    belonging: "Belonging"


@dataclass(frozen=True, slots=True, kw_only=True)
class Belonging:
    """How much a session's own word speaks for new frames being of the same place as old ones."""

    confidence: float
    """Mean logarithm of the confidence of depth, over all pixels of the new frames."""
    agreement: float
    """Share of a new frame's points that the old frame which sees most of them sees at the same depth, within 10 %;
    mean over new frames."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceQuality:
    """Over all places of one family and size."""

    settings: PlaceSettings
    pairs: tuple[PairQuality, ...]
    strange: tuple[Belonging, ...]
    """Of pairs whose new frames are of another world."""

    def turn_quantile_deg(self, share: float) -> float:
        return float(np.quantile([pair.turn_error_deg for pair in self.pairs], share))

    @property
    def still_deg(self) -> float:
        """The median error of one who says that the camera has not turned."""
        return float(np.median([pair.turn_deg for pair in self.pairs]))

    def threshold(self, of: Callable[[Belonging], float]) -> float:
        """What the 90 % of the true pairs that belong together most reach."""
        return float(np.quantile([of(pair.belonging) for pair in self.pairs], 1 - KEPT_SHARE))

    def strange_told_share(self, of: Callable[[Belonging], float]) -> float:
        """Share of the pairs that share nothing which stay below it."""
        return float(np.mean(np.array([of(each) for each in self.strange]) < self.threshold(of)))


def measure_places(model: GeometryModel, settings: PlaceSettings, progress: Callable[[int], None]) -> PlaceQuality:
    """Places of as many worlds, each followed by itself much later and by the next one's new frames."""
    device = next(model.parameters()).device
    places = _require_places(list(itertools.islice(find_places(settings), settings.num_places)), settings)
    shown = []
    for film, other in _beside_others([_film(place, settings, device) for place in places]):
        shown.append(_show(model, settings, film, other))
        progress(2)
    return _quality(settings, shown)


def measure_places_apart(
    open_model: Callable[[], GeometryModel],
    asked: Sequence[PlaceSettings],
    workers: Workers,
    progress: Callable[[int], None],
) -> list[PlaceQuality]:
    """The same of several settings, worlds handed out one by one; `open_model` is called for each and opens once."""
    found = [_require_places(_find_apart(settings, workers), settings) for settings in asked]
    tasks = [
        (settings, place, other)
        for settings, places in zip(asked, found, strict=True)
        for place, other in _beside_others(places)
    ]
    shown = iter(workers.in_order(partial(_show_task, open_model), tasks, lambda count: progress(2 * count)))
    return [
        _quality(settings, list(itertools.islice(shown, len(places))))
        for settings, places in zip(asked, found, strict=True)
    ]


def find_places(settings: PlaceSettings) -> Iterator[Place]:
    """One of each world whose camera comes back, drawn by the seed."""
    found = (_find_place(settings, seed) for seed in settings.seeds())
    return (place for place in found if place is not None)


def _find_apart(settings: PlaceSettings, workers: Workers) -> list[Place]:
    """The same, as many worlds at a time as places are wanted."""
    seeds_left, places = iter(settings.seeds()), list[Place]()
    while len(places) < settings.num_places and (some := list(itertools.islice(seeds_left, settings.num_places))):
        found = workers.in_order(partial(_find_place, settings), some, lambda _: None)
        places += [place for place in found if place is not None]
    return places[: settings.num_places]


def _find_place(settings: PlaceSettings, seed: int) -> Place | None:
    found = revisits(_tour(seed, settings).cameras(settings.way))
    if not len(found):
        return None
    old, new = found[int(np.random.default_rng([seed, STRETCH]).integers(len(found)))].tolist()
    return Place(seed=seed, old=old, new=new)


def _beside_others(each: Sequence[_Each]) -> Iterator[tuple[_Each, _Each]]:
    """With the next one; the last with the first."""
    return zip(each, [*each[1:], each[0]], strict=True)


def _show_task(
    open_model: Callable[[], GeometryModel], task: tuple[PlaceSettings, Place, Place]
) -> tuple[PairQuality, Belonging]:
    settings, *places = task
    model = open_model()
    film, other = (_film(place, settings, next(model.parameters()).device) for place in places)
    return _show(model, settings, film, other)


def _show(
    model: GeometryModel, settings: PlaceSettings, film: "_Film", other: "_Film"
) -> tuple[PairQuality, Belonging]:
    """A place and itself again, then the same place and another's new frames."""
    pair = _judged(_shown(model, settings, film.images), film)
    images = torch.cat([film.images[:STRETCH], other.images[STRETCH:]])
    return pair, _belonging(_shown(model, settings, images))


def _quality(settings: PlaceSettings, shown: Sequence[tuple[PairQuality, Belonging]]) -> PlaceQuality:
    pairs, strange = zip(*shown, strict=True)
    return PlaceQuality(settings=settings, pairs=pairs, strange=strange)


def revisits(world_from_camera: Float64[Tensor, "frames 4 4"]) -> Int64[Tensor, "pairs 2"]:
    """First frames of all pairs of stretches of which the new one begins where the old one ended."""
    near = _near(world_from_camera)
    steps_away = (~near).cumsum(dim=1)
    last, first = torch.meshgrid(torch.arange(len(near)), torch.arange(len(near)), indexing="ij")
    was_away = steps_away > steps_away.gather(1, last)
    fits = (last >= STRETCH - 1) & (first <= len(near) - STRETCH) & (first - last >= _NEAREST_FRAMES)
    pairs: Tensor = (near & was_away & fits).nonzero()
    return pairs - torch.tensor([STRETCH - 1, 0])


def _near(world_from_camera: Float64[Tensor, "frames 4 4"]) -> Bool[Tensor, "frames frames"]:
    centres, rotations = world_from_camera[:, :3, 3], world_from_camera[:, :3, :3].flatten(1)
    cosine = ((rotations @ rotations.T - 1) / 2).clamp(-1, 1)
    turned: Tensor = cosine >= float(np.cos(np.radians(_NEAR_DEG)))
    return turned & (torch.cdist(centres, centres) <= _NEAR_M)


@dataclass(frozen=True, slots=True)
class _Film:
    """Old and new frames of a place."""

    seed: int
    images: Float[Tensor, "frames 3 height width"]
    world_from_camera: Float64[Tensor, "frames 4 4"]


def _film(place: Place, settings: PlaceSettings, device: torch.device) -> _Film:
    frames = [*range(place.old, place.old + STRETCH), *range(place.new, place.new + STRETCH)]
    views = list(_tour(place.seed, settings).views_at(frames, device))
    return _Film(
        place.seed, torch.stack([view.image for view in views]), torch.stack([view.world_from_camera for view in views])
    )


def _tour(seed: int, settings: PlaceSettings) -> Tour:
    height, width = settings.size
    return Tour(seed=seed, width=width, height=height, family=settings.family)


def _shown(model: GeometryModel, settings: PlaceSettings, images: Float[Tensor, "frames 3 height width"]) -> Geometry:
    return Geometry.join(list(open_session(model, settings.session, settings.size).run(images)))


def _judged(found: Geometry, film: _Film) -> PairQuality:
    new = torch.arange(STRETCH, 2 * STRETCH)
    first = torch.zeros_like(new)
    turns, true_turns = (
        motion(cameras.double().cpu(), first, new) for cameras in (found.world_from_camera, film.world_from_camera)
    )
    return PairQuality(
        seed=film.seed,
        turn_error_deg=float(rotation_error_deg(turns, true_turns).quantile(0.5)),
        turn_deg=float(rotation_angle_deg(true_turns[:, :3, :3]).quantile(0.5)),
        belonging=_belonging(found),
    )


def _belonging(found: Geometry) -> Belonging:
    seen_again = overlaps(found.depth, found.world_from_camera, found.intrinsics)[STRETCH:, :STRETCH]
    return Belonging(
        confidence=float(found.depth_confidence[STRETCH:].log().mean()),
        agreement=float(seen_again.amax(dim=1).mean()),
    )


def _require_places(places: Sequence[Place], settings: PlaceSettings) -> Sequence[Place]:
    if len(places) < 2:
        raise InputError(
            f"Expected worlds of {settings.family} whose camera comes back within {settings.way} frames, but of "
            f"{_MOST_TRIED * settings.num_places} there were {len(places)}; take a longer --way."
        )
    return places
