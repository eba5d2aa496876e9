"""How well a model maps ways through worlds it has never seen, in streaming mode, against the truth.

Each world is filmed once, and all variants see the same frames; a shorter walk is a longer one's beginning.
"""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from longtake.bench.workers import Workers
from longtake.errors import SettingError
from longtake.evaluation.agreement import ClipGeometry
from longtake.evaluation.scoring import Summary, summary_over_worlds
from longtake.evaluation.walk_quality import FilmedWalk, MappedWalk, WorldQuality, score_walk
from longtake.geometry.model import GeometryModel
from longtake.runtime.build import SessionSettings, open_session
from longtake.types import Geometry
from longtake.world.families import Family
from longtake.world.seeds import Split, seeds
from longtake.world.tour import Tour

FEWEST_FRAMES = 3
"""Which an alignment with scale needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapVariant:
    """Settings of a session, by name."""

    name: str
    session: SessionSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class QualitySettings:
    """What is mapped, and how."""

    variants: tuple[MapVariant, ...]
    frames: tuple[int, ...]
    """Lengths of the walks."""
    num_worlds: int
    size: tuple[int, int]
    """Height and width."""
    split: Split = Split.TEST
    family: Family = Family.HOUSE

    def __post_init__(self) -> None:
        if not self.variants or not self.frames or self.num_worlds < 1:
            raise SettingError("Expected a variant, a length and a world at least; name one of each.")
        if min(self.frames) < FEWEST_FRAMES:
            raise SettingError(f"Expected walks of {FEWEST_FRAMES} frames at least, but got {min(self.frames)}.")

    @property
    def num_steps(self) -> int:
        """Frames filmed and frames watched."""
        return self.num_worlds * (max(self.frames) + len(self.variants) * sum(self.frames))

    def seeds(self) -> list[int]:
        """Of the worlds."""
        return list(itertools.islice(seeds(self.split), self.num_worlds))

    def cases(self) -> list[tuple[int, MapVariant]]:
        """Every length with every variant."""
        return list(itertools.product(self.frames, self.variants))


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityRow:
    """All worlds, mapped for so many frames by one variant."""

    variant: MapVariant
    num_frames: int
    worlds: tuple[WorldQuality, ...]

    @property
    def frame_ms(self) -> float:
        """Mean time that the session took for a frame."""
        return 1e3 * sum(world.watched_s for world in self.worlds) / (len(self.worlds) * self.num_frames)

    def summaries(self) -> Mapping[str, Summary | None]:
        """Every figure over worlds, by name."""
        columns = [world.figures() for world in self.worlds]
        return {name: summary_over_worlds([figures[name] for figures in columns]) for name in columns[0]}

    def better_share(self, name: str) -> float | None:
        """Share of worlds in which the model beats a baseline, by the name of a `times_` figure."""
        known = [times for world in self.worlds if (times := world.figures()[name]) is not None]
        return sum(times > 1 for times in known) / len(known) if known else None


@dataclass(frozen=True, slots=True)
class QualityCase:
    """Worlds of one family, filmed in one size, and what came of them."""

    settings: QualitySettings
    rows: tuple[QualityRow, ...]


def measure_quality(
    model: GeometryModel, settings: QualitySettings, progress: Callable[[int], None]
) -> list[QualityRow]:
    """A row for each length and variant, over the first worlds of the split."""
    require_room(model, settings)
    return _rows(settings, [_map_world(model, settings, seed, progress) for seed in settings.seeds()])


def measure_quality_apart(
    open_model: Callable[[], GeometryModel],
    asked: Sequence[QualitySettings],
    workers: Workers,
    progress: Callable[[int], None],
) -> list[QualityCase]:
    """The same of several settings, worlds handed out one by one; `open_model` is called for each and opens once."""
    tasks = [(settings, seed) for settings in asked for seed in settings.seeds()]
    worlds = iter(workers.in_order(partial(_map_task, open_model), tasks, progress))
    return [
        QualityCase(settings, tuple(_rows(settings, list(itertools.islice(worlds, settings.num_worlds)))))
        for settings in asked
    ]


def require_room(model: GeometryModel, settings: QualitySettings) -> None:
    """A setting that is refused is refused before the work."""
    for variant in settings.variants:
        open_session(model, variant.session, settings.size)


def _map_task(open_model: Callable[[], GeometryModel], task: tuple[QualitySettings, int]) -> list[WorldQuality]:
    settings, seed = task
    return _map_world(open_model(), settings, seed, lambda _: None)


def _map_world(
    model: GeometryModel, settings: QualitySettings, seed: int, progress: Callable[[int], None]
) -> list[WorldQuality]:
    """Filmed once, and mapped for every length by every variant."""
    device = next(model.parameters()).device
    film = film_world(seed, max(settings.frames), settings.size, device, progress, family=settings.family)
    found = []
    for num_frames, variant in settings.cases():
        found.append(_watch(model, variant, seed, film.first(num_frames)))
        progress(num_frames)
    return found


def _rows(settings: QualitySettings, worlds: Sequence[Sequence[WorldQuality]]) -> list[QualityRow]:
    return [
        QualityRow(variant=variant, num_frames=num_frames, worlds=tuple(world[place] for world in worlds))
        for place, (num_frames, variant) in enumerate(settings.cases())
    ]


def film_world(
    seed: int,
    num_frames: int,
    size: tuple[int, int],
    device: torch.device,
    progress: Callable[[int], None],
    *,
    family: Family = Family.HOUSE,
) -> FilmedWalk:
    """The first frames of a tour; images stay where they were drawn, the truth goes to the host."""
    height, width = size
    tour = Tour(seed=seed, width=width, height=height, family=family)
    images, depths, poses = [], [], []
    for view in itertools.islice(tour.views(device), num_frames):
        images.append(view.image)
        depths.append(view.depth.cpu())
        poses.append(view.world_from_camera)
        progress(1)
    return FilmedWalk(
        images=torch.stack(images),
        truth=ClipGeometry(torch.stack(depths), torch.stack(poses)),
        intrinsics=tour.intrinsics(),
    )


def _watch(model: GeometryModel, variant: MapVariant, seed: int, film: FilmedWalk) -> WorldQuality:
    height, width = film.images.shape[-2:]
    session = open_session(model, variant.session, (height, width))
    start = time.perf_counter()
    found = MappedWalk.of(Geometry.join(list(session.run(film.images))))
    return score_walk(found, film, seed=seed, watched_s=time.perf_counter() - start)
