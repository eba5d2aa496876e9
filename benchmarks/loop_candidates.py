"""Candidates for loops with their truth: a frame of long ago and a new one, which see the same place or do not.

Each frame is looked at by a session of its own that has seen the frames before it, as a window has:

16 frames                 │ the clip for a side session
│ 0  1  2  3  4  5  6  7  │ 8  9 10 11 12 13 14 15 │
                            └ the new view        └ the old view
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import torch
from jaxtyping import Float, Float64, UInt8
from torch import Tensor

from longtake.geometry.model import GeometryModel
from longtake.places.key_view import KeyView, shared_intrinsics
from longtake.places.side_look import CLIP
from longtake.runtime.build import open_session, usual_settings
from longtake.spatial.pose import invert_rigid
from longtake.spatial.similarity import Similarity
from longtake.types import Geometry
from longtake.world.families import Family
from longtake.world.seeds import Split, seeds
from longtake.world.tour import Tour, View

_STRETCH = 2 * CLIP
_EVERY = 16
"""Frames of a way, each of them a view."""
_LONG_AGO = 60
"""Frames."""
_KNOWN_SHARE = 0.3
"""Of each picture, which the other must hold too of a place that is seen again."""
_SAME_SHARE = 0.02
"""Of the picture: views that have more in common are not false."""
_SAMPLED = 4
"""Every so many pixels are asked whether both views see them."""


class Kind(StrEnum):
    """What a candidate is."""

    TRUE = "true"
    SAME_WORLD = "same world"
    """Another part of the same world, the one that looks most like it."""
    OTHER_WORLD = "other world"
    """Of all worlds before, what looks most like it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateSettings:
    """Which candidates are made."""

    family: Family = Family.HOUSE
    split: Split = Split.VALIDATION
    num_worlds: int = 8
    num_places: int = 2
    """Of each world, if its camera comes back so often."""
    way: int = 1000
    size: tuple[int, int] = (98, 126)
    """Height and width."""

    def seeds(self) -> list[int]:
        """Of the worlds."""
        return list(itertools.islice(seeds(self.split), self.num_worlds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Two views, what a side session would see, and the truth."""

    kind: Kind
    family: Family
    seed: int
    old: KeyView
    new: KeyView
    old_clip: UInt8[Tensor, "frames 3 height width"]
    """Ends with the old view."""
    new_clip: UInt8[Tensor, "frames 3 height width"]
    """Begins with the new view."""
    new_from_old: Similarity | None
    """Between the two cameras, each in the unit of its own depth; none where they see different places."""
    metres: float
    """In a unit of the new view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What a session said of one stretch, and the truth of its view."""

    view: KeyView
    clip: UInt8[Tensor, "frames 3 height width"]
    world_from_camera: Float64[Tensor, "4 4"]
    metres: float
    intrinsics: Float[Tensor, "stretch 3 3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """What some frames of the way through a world look like."""

    tour: Tour
    frames: Sequence[int]
    descriptors: Float[Tensor, "frames channels"]

    def most_alike(self, descriptor: Float[Tensor, " channels"]) -> tuple[float, int]:
        """How alike the most similar frame is, and which."""
        alike = torch.nn.functional.cosine_similarity(self.descriptors, descriptor, dim=1)
        place = int(alike.argmax())
        return float(alike[place]), self.frames[place]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """A world with some views of the way through it, and what each looks like."""

    tour: Tour
    views: Sequence[View]
    descriptors: Float[Tensor, "views channels"]

    @property
    def looks(self) -> Looks:
        """Without the views themselves."""
        return Looks(tour=self.tour, frames=[view.index for view in self.views], descriptors=self.descriptors)

    def only(self, fits: Callable[[View], bool]) -> "_Way":
        """Some of its views alone."""
        places = [place for place, view in enumerate(self.views) if fits(view)]
        return replace(self, views=[self.views[place] for place in places], descriptors=self.descriptors[places])


def candidates(
    model: GeometryModel, settings: CandidateSettings, progress: Callable[[int], None]
) -> Iterator[Candidate]:
    """World by world: places seen again, what looks most like them elsewhere, and in the worlds before."""
    before: list[Looks] = []
    for seed in settings.seeds():
        way = _way(model, settings, seed)
        yield from _of_world(model, settings, way, before)
        before.append(way.looks)
        progress(1)


def world_looks(model: GeometryModel, settings: CandidateSettings, seed: int) -> Looks:
    """Of one world, for those that come after it."""
    return _way(model, settings, seed).looks


def world_candidates(
    model: GeometryModel, settings: CandidateSettings, seed: int, before: Sequence[Looks]
) -> Iterator[Candidate]:
    """Of one world alone, among the looks of those before it."""
    return _of_world(model, settings, _way(model, settings, seed), before)


def _of_world(
    model: GeometryModel, settings: CandidateSettings, way: _Way, before: Sequence[Looks]
) -> Iterator[Candidate]:
    order = np.random.default_rng([way.tour.seed, CLIP]).permutation(len(way.views)).tolist()
    known = (place for place in order if _again(way, way.views[place]).views)
    for place in itertools.islice(known, settings.num_places):
        yield from _of_place(model, settings, way, before, place)


def _again(way: _Way, view: View) -> _Way:
    """What was seen long before and has a good part of the picture in common."""
    return way.only(
        lambda other: (
            other.index <= view.index - _LONG_AGO and min(shared(other, view), shared(view, other)) >= _KNOWN_SHARE
        )
    )


def _of_place(
    model: GeometryModel, settings: CandidateSettings, way: _Way, before: Sequence[Looks], place: int
) -> Iterator[Candidate]:
    view, descriptor = way.views[place], way.descriptors[place]
    new = _look(model, way.tour, view.index - CLIP, CLIP)
    olds = [(Kind.TRUE, way.tour, _again(way, view).looks.most_alike(descriptor)[1])]
    elsewhere = way.only(lambda other: max(shared(other, view), shared(view, other)) < _SAME_SHARE)
    if elsewhere.views:
        olds.append((Kind.SAME_WORLD, way.tour, elsewhere.looks.most_alike(descriptor)[1]))
    if before:
        alike = [(*other.most_alike(descriptor), other.tour) for other in before]
        _, frame, tour = max(alike, key=lambda one: one[0])
        olds.append((Kind.OTHER_WORLD, tour, frame))
    for kind, tour, frame in olds:
        old = _look(model, tour, frame - _STRETCH + 1, _STRETCH - 1)
        guesses = [old.intrinsics, new.intrinsics]
        if kind is not Kind.OTHER_WORLD:
            guesses = [torch.cat(guesses)] * 2  # one camera
        yield Candidate(
            kind=kind,
            family=settings.family,
            seed=way.tour.seed,
            old=replace(old.view, intrinsics=shared_intrinsics(guesses[0])),
            new=replace(new.view, intrinsics=shared_intrinsics(guesses[1])),
            old_clip=old.clip,
            new_clip=new.clip,
            new_from_old=_truth(old, new) if kind is Kind.TRUE else None,
            metres=new.metres,
        )


def _way(model: GeometryModel, settings: CandidateSettings, seed: int) -> _Way:
    height, width = settings.size
    tour = Tour(seed=seed, width=width, height=height, family=settings.family)
    views = list(tour.views_at(range(_STRETCH - 1, settings.way, _EVERY)))
    return _Way(tour=tour, views=views, descriptors=_describe(model, views))


def _describe(model: GeometryModel, views: Sequence[View]) -> Float[Tensor, "views channels"]:
    with torch.no_grad():
        grid = model.grid(*views[0].depth.shape)
        return torch.cat([model.descriptor(model.encode(view.image[None, None], grid))[0] for view in views])


def _look(model: GeometryModel, tour: Tour, first: int, place: int) -> _Known:
    """16 frames from `first` on, seen by a session of their own, of which the one at a place is the view."""
    views = list(tour.views_at(range(first, first + _STRETCH)))
    images = torch.stack([(view.image * 255).round().byte() for view in views])
    session = open_session(model, usual_settings(model.config), (tour.height, tour.width))
    found = Geometry.join(list(session.run(images)))
    finite = views[place].depth.isfinite()
    return _Known(
        view=replace(KeyView.of(found, place, images[place], found.intrinsics[place]), frame_index=first + place),
        clip=images[CLIP:],
        world_from_camera=views[place].world_from_camera,
        metres=float((views[place].depth[finite] / found.depth[place][finite]).median()),
        intrinsics=found.intrinsics,
    )


def _truth(old: _Known, new: _Known) -> Similarity:
    motion = invert_rigid(new.world_from_camera) @ old.world_from_camera
    scale = torch.tensor(old.metres / new.metres, dtype=torch.float64)
    return Similarity(scale, motion[:3, :3], motion[:3, 3] / new.metres)


def shared(one: View, other: View) -> float:
    """Share of a view's picture that the other sees too."""
    depth = one.depth.double()[::_SAMPLED, ::_SAMPLED]
    rows, columns = (torch.arange(count, dtype=torch.float64) * _SAMPLED for count in depth.shape)
    rays = torch.stack([columns.expand_as(depth), rows[:, None].expand_as(depth), torch.ones_like(depth)], dim=-1)
    points = (rays @ one.intrinsics.double().inverse().T * depth[..., None])[depth.isfinite()]
    motion = invert_rigid(other.world_from_camera) @ one.world_from_camera
    seen = points @ motion[:3, :3].T + motion[:3, 3]
    seen = seen[seen[:, 2] > 0.05]
    pixels = (seen @ other.intrinsics.double().T)[:, :2] / seen[:, 2:]
    column, row = pixels.round().long().unbind(dim=1)
    height, width = other.depth.shape
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    there = other.depth.double()[row[inside], column[inside]]
    return float(((seen[inside, 2] / there - 1).abs() < 0.05).sum() / depth.numel())
